"""Where results go. Each sink has a durable cursor into the outbox and depends on no other sink.

A sink may not change or drop rows, and may not say that it has delivered what can still be lost. One that
cannot deliver raises; the caller then lets it recall how far it has come, and offers what is behind that
again later, to the same object or to one opened anew.
"""

from __future__ import annotations

from typing import Protocol


class Sink(Protocol):
    """Takes the rows of the outbox in the order of their positions."""

    @property
    def name(self) -> str: ...

    @property
    def cursor(self) -> int:
        """The last position that is delivered, durably; 0 before the first."""

    def deliver(self, position: int, rows: bytes) -> None:
        """Deliver all rows behind the cursor up to a position; if that is not beyond the cursor, none are."""

    def recall(self) -> None:
        """After something was raised: find out how far it has come. A write that raised may have happened."""

    def tidy(self) -> None:
        """Do what can wait until everything is delivered."""

    def close(self) -> None: ...
