"""Where answers are shown: a terminal as wide as it is, or a pipe, which breaks no line for want of one."""

from __future__ import annotations

import logging
from collections.abc import Callable

from rich.console import Console

# Columns of what is no terminal.
WIDTH = 160
# Takes a line for whoever watches.
Echo = Callable[[str], None]


def quiet() -> None:
    """What sources log is told in a command's own words, not among what it shows."""
    for name in ("headwater_source", "headwater_wire"):
        logging.getLogger(name).addHandler(logging.NullHandler())


def console() -> Console:
    found = Console()
    return found if found.is_terminal else Console(width=WIDTH)
