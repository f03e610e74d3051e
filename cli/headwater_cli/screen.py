"""Where answers are shown: a terminal as wide as it is, or a pipe, which breaks no line for want of one."""

from __future__ import annotations

from rich.console import Console

# Columns of what is no terminal.
WIDTH = 160


def console() -> Console:
    found = Console()
    return found if found.is_terminal else Console(width=WIDTH)
