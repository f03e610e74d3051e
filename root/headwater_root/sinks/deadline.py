"""A limit for what waits for another machine: one that is silent must not be waited for without end."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.errors import RetryableError


class TooSlow(RetryableError):
    """The other side has not answered in time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no answer within {seconds:g} s (a sink that needs longer: raise its timeout)")


@contextmanager
def within(seconds: float, connected: int) -> Iterator[None]:
    """For the length of a block: when the time is over, the connection with this descriptor is cut.

    Whoever waits for it then fails, and the block raises `TooSlow`.
    """
    # One of our own: by the time that it is cut, the number may be that of another file.
    own = socket.socket(fileno=os.dup(connected))
    over = threading.Event()

    def cut() -> None:
        over.set()
        try:
            own.shutdown(socket.SHUT_RDWR)
        except OSError:
            # The other side was faster.
            return

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if over.is_set():
            raise TooSlow(seconds) from error
        raise
    finally:
        timer.cancel()
        timer.join()
        own.close()
