"""Where results go. Each sink has a durable cursor into the outbox and depends on no other sink.

A sink may not change or drop rows, and may not say that it has delivered what can still be lost. One that
cannot deliver raises; the caller offers the same rows again later, to the same object or to one opened anew.
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
        """Deliver the rows of a position; one that is not beyond the cursor was delivered before."""

    def close(self) -> None: ...
