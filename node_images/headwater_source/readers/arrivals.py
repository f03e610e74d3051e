"""How an input arrives: its bytes, and for how long there were none."""

from __future__ import annotations

import os
import select
from time import monotonic


class Arrivals:
    """The bytes of a file or pipe, for the thread that reads them; any thread may ask for the silence."""

    def __init__(self, file: int) -> None:
        self._file = file
        # Since when the reader waits for bytes; None while it has some to work on.
        self._since: float | None = None

    def read(self, size: int) -> bytes:
        """What there is, up to `size` bytes, as soon as there is any; nothing at the end."""
        self._since = monotonic()
        try:
            return os.read(self._file, size)
        finally:
            self._since = None

    @property
    def silence(self) -> float:
        """For how many seconds there have been no bytes; 0 while there are some to read or to work on.

        The reader may not have seen bytes that are there: the process was stopped, or other threads are busy.
        """
        since = self._since
        return 0.0 if since is None or self._has_bytes() else monotonic() - since

    def _has_bytes(self) -> bool:
        poll = select.poll()
        poll.register(self._file, select.POLLIN)
        return any(event & select.POLLIN for _, event in poll.poll(0))
