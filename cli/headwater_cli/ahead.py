"""An input that is read in a thread of its own, so that a pipe that is silent holds up nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from contextlib import suppress

from headwater_source.columns import Events

# So many parts are read before anybody wants them.
AHEAD = 4
# How long it is waited for a reader to end, in seconds: one that waits for a pipe does not.
PATIENCE = 0.5


class Ahead:
    """Parts of an input, as they come; begins to read at once."""

    def __init__(self, parts: Iterable[Events]) -> None:
        self._loop = asyncio.get_running_loop()
        self._said: asyncio.Queue[Events | BaseException | None] = asyncio.Queue()
        self._room = threading.Semaphore(AHEAD)
        # Nobody can wake a thread that waits for a pipe: it ends with the process.
        self._over = False
        self._thread = threading.Thread(target=self._read, args=(parts,), daemon=True)
        self._thread.start()

    def _read(self, parts: Iterable[Events]) -> None:
        try:
            for part in parts:
                self._room.acquire()
                if self._over:
                    return
                self._say(part)
            self._say(None)
        except BaseException as error:
            self._say(error)

    def _say(self, what: Events | BaseException | None) -> None:
        # Without a loop nobody listens any more.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._said.put_nowait, what)

    def close(self) -> None:
        """Nobody listens any more: let the reader end, if it can."""
        self._over = True
        self._room.release()
        self._thread.join(PATIENCE)

    async def next(self) -> Events | None:
        """The next part, None at the end; raises what the reader raised."""
        said = await self._said.get()
        if isinstance(said, BaseException):
            raise said
        self._room.release()
        return said
