"""Messages that gRPC's core has refused to take, because they are too large as they come or once inflated.

The core ends such a call with RESOURCE_EXHAUSTED and tells the handler nothing: to that the stream has ended
like any other. Only a line that the library logs for debugging, in the task that reads, tells the two apart.
Should a later release say it otherwise, the status stays the same and nothing is counted.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from weakref import WeakSet

_LOGGER = "grpc._cython.cygrpc"
_SAID = "Failed to receive any message from Core"


class Unread(logging.Filter):
    """Listens to the library's lines; they go no further than their level allows."""

    def __init__(self) -> None:
        super().__init__()
        self._tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        said = logging.getLogger(_LOGGER)
        said.setLevel(logging.DEBUG)
        said.addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno <= logging.DEBUG and str(record.msg).startswith(_SAID):
            task = asyncio.current_task()
            if task is not None:
                self._tasks.add(task)
        return record.levelno >= logging.getLogger().getEffectiveLevel()

    def took_nothing(self) -> bool:
        """Whether what this task was reading has ended with a message that was not taken."""
        return asyncio.current_task() in self._tasks
