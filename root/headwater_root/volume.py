"""Whether the event loop waits for the disk: then it is not hanging, whoever asks from another thread."""

from __future__ import annotations

from types import TracebackType


class Volume:
    """A context around everything that it writes; the loop's thread enters it, any may look."""

    def __init__(self) -> None:
        self._depth = 0

    @property
    def busy(self) -> bool:
        return self._depth > 0

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
