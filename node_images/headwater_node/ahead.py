"""Sources that wait because they are too far ahead of the others in event time (protocol, rule 19)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from headwater.durations import SECOND
from headwater.events import Batch
from headwater.progress import Source
from headwater.sources import SourceId

log = logging.getLogger(__name__)
# For so long a source may wait before it is told of: most who are ahead go on soon.
PATIENCE = 10 * SECOND


@dataclass(slots=True)
class _Waits:
    """Up to where a source was read, and since when it waits there."""

    position: int
    since: int
    told: bool = False


class Ahead:
    """Who waits for the watermark; `horizon` in microseconds of event time."""

    def __init__(self, horizon: int) -> None:
        self._horizon = horizon
        self._waiting: dict[str, _Waits] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def look(self, batch: Batch, sources: Mapping[str, Source], watermark: int | None, now: int) -> None:
        """See whether a source that has sent a batch has to wait with the rest of it."""
        self.settle(sources)
        source = sources.get(batch.source)
        if source is None or watermark is None or source.position >= batch.first - 1 + len(batch):
            return
        if source.largest - source.lateness <= watermark + self._horizon:
            return
        waits = self._waiting.setdefault(source.name, _Waits(source.position, now))
        if not waits.told and now - waits.since >= PATIENCE:
            waits.told = True
            extra = {
                "source": SourceId.of(source.name).name,
                "seq": source.position + 1,
                "largest": source.largest,
                "watermark": watermark,
                "horizon": self._horizon,
                "remedy": "headwater status shows whom the watermark waits for: let that one send or say a "
                "heartbeat, or retire it",
            }
            log.warning("a source waits: it is too far ahead of the others", extra=extra)

    def settle(self, sources: Mapping[str, Source]) -> None:
        """Whoever was read on, or is gone, waits no longer."""
        for name, waits in list(self._waiting.items()):
            source = sources.get(name)
            if source is None or source.position != waits.position:
                del self._waiting[name]
                if source is not None and waits.told:
                    log.info("a source goes on", extra={"source": SourceId.of(name).name})
