"""What the root says about keys, shared by the sources of one process that begin at the same address."""

from __future__ import annotations

import asyncio
from time import monotonic
from weakref import WeakValueDictionary

# How long events without a key wait for the root to say whether queries compute by one. The time runs once,
# from the first source that is started: without an answer a device accepts events all the same.
ANSWER_SECONDS = 5.0


class KeyAnswer:
    """By which column queries compute, as the root has told any of the sources, and how long they wait."""

    def __init__(self) -> None:
        self._until = monotonic() + ANSWER_SECONDS
        # Empty: no query computes by key. None: the root has not said it.
        self.key_by: str | None = None

    @property
    def is_overdue(self) -> bool:
        return monotonic() >= self._until


# Kept as long as a source uses it.
_answers: WeakValueDictionary[tuple[asyncio.AbstractEventLoop, str], KeyAnswer] = WeakValueDictionary()


def find_answer(address: str) -> KeyAnswer:
    """The answer for the sources of the running loop that begin at this address."""
    place = asyncio.get_running_loop(), address
    found = _answers.get(place)
    if found is None:
        found = _answers[place] = KeyAnswer()
    return found
