"""Ctrl-C and SIGTERM: whenever they come, a command ends with a code of theirs and without a trace."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

# What shells say of a process that Ctrl-C has ended, or SIGTERM.
STOPPED, TERMINATED = 130, 143


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Ctrl-C ends the process without further ado: for imports, before anything has begun.

    As an exception it could be caught by whoever imports. Where Ctrl-C is ignored, as in the background of a
    shell, or somebody else has taken it, that stays.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(STOPPED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
