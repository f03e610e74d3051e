"""Room: what a node may still take, and when what it has gathered becomes a batch (protocol, rule 19)."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.machines.bounds import Settings
from headwater.machines.holding import Holding
from headwater.machines.lane import Lane


class Room:
    """Decisions alone: whoever asks acts on them."""

    def __init__(self, settings: Settings, holding: Holding) -> None:
        self._settings, self._holding = settings, holding

    def has_way(self, lane: Lane, names: Iterable[str] = ()) -> bool:
        """Whether another batch may be under way; one more for sources that are waited for."""
        hungry = any(self.is_hungry(lane, name) for name in names)
        return len(lane.sent) < self._settings.under_way + hungry

    def is_hungry(self, lane: Lane, name: str) -> bool:
        """Whether the watermark waits for this source, or a lane that is ahead with it: it is always read
        (rule 19)."""
        source, watermark = lane.source(name), self._holding.watermark
        if source is None or watermark is None or source.largest - source.lateness <= watermark:
            return True
        # What that lane has made of it is taken above only when this one comes there.
        others = (other.source(name) for other in self._holding.lanes.values() if other is not lane)
        return any(other is not None and other.position > source.position for other in others)

    def is_ahead(self, lane: Lane, name: str) -> bool:
        """Flow control by event time: nobody runs further ahead of the others than the horizon."""
        source, watermark = lane.engine.sources[name], self._holding.watermark
        return watermark is not None and (
            source.largest - source.lateness > watermark + self._settings.horizon
        )

    def has_place(self, lane: Lane, name: str, wanted: int) -> bool:
        """Whether as many bytes of columns may be kept; makes place for who is waited for."""
        holding, bound = self._holding, self._settings.held_bytes
        if not self.is_hungry(lane, name):
            return not self.is_ahead(lane, name) and holding.held_bytes + wanted <= bound
        if holding.held_bytes + wanted > bound:
            for each in holding.lanes.values():
                each.drop_columns(lambda: holding.held_bytes + wanted <= bound)
        # A reserve for whoever is waited for: else a full node would wait for the window that it holds up.
        return holding.held_bytes + wanted <= 2 * bound

    def is_time(self, lane: Lane, now: int) -> bool:
        """Whether windows wait for a batch, or it is a large one, or its columns take much of the room."""
        settings = self._settings
        # They are kept until it is acknowledged, and sources would wait for that.
        much = lane.unsent_bytes >= settings.held_bytes // settings.under_way
        large = much or lane.engine.waiting >= settings.rows or lane.is_large
        if not self.has_way(lane) or (now - lane.made_last < self._settings.least and not large):
            return False
        return large or lane.is_due(self._holding.watermark)
