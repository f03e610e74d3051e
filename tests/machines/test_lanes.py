"""Lanes at the root: whatever lane 0 decides holds in another one at the same number (protocol, rule 14)."""

from __future__ import annotations

from headwater.events import Batch
from headwater.machines.lanes import Lanes
from headwater.machines.records import Admitted, Body, Changed, Idled, Merged, Resumed
from headwater.machines.state import State
from headwater.node import Node
from headwater.queries import Query
from headwater.windows import Tumbling
from tests.machines.world import apart

TIMED = Query("t", Tumbling(10), "sum")
COUNTED = Query("n", Tumbling(count=2), "sum")


class Decided:
    """What a log comes to."""

    def __init__(self, *queries: Query, expected: int = 1) -> None:
        self.state = State(queries, expected, apart)
        self._numbering = Lanes(queries, apart)

    def log(self, *bodies: Body) -> None:
        for body in bodies:
            self.state.apply(self.state.position + 1, body)

    def admit(self, *names: str) -> None:
        self.log(*(Admitted(name, "", 0, f"spool-{name}", "o", 0) for name in names))

    def merge(self, source: str, *times: int, lane: int = 0) -> None:
        node = Node(self.state.queries, serves=self._numbering.serves(lane))
        known = self.state.engines[lane].sources[source]
        node.admit(source, lateness=0, prefix=known.prefix)
        records = [(ts, None, 1.0, None) for ts in times]
        node.push(Batch.from_records(source, known.position + 1, records))
        self.log(Merged(node.flush(), lane))


def test_where_a_source_begins_is_decided_in_a_lane_that_has_no_watermark_yet() -> None:
    decided = Decided(TIMED, COUNTED)
    decided.admit("a 1")
    decided.merge("a 1", 100)
    decided.admit("b 1")
    main, other = decided.state.engines.values()
    assert (main.watermark, other.watermark) == (100, None)
    assert main.sources["b 1"].largest == other.sources["b 1"].largest == 100
    assert [d.floor for d in main.decisions] == [d.floor for d in other.decisions] == [None, 100]


def test_a_lane_that_comes_later_has_the_watermark_of_the_first() -> None:
    decided = Decided(TIMED, expected=2)
    decided.admit("a 1", "b 1")
    decided.merge("a 1", 100)
    decided.merge("b 1", 1_000)
    # In this order: the watermark was never that of the second one alone.
    decided.log(Idled("b 1"), Idled("a 1"))
    decided.log(Changed(decided.state.engine.proposed(COUNTED)))
    assert [engine.watermark for engine in decided.state.engines.values()] == [100, 100]
    decided.log(Resumed("a 1"))
    assert [engine.sources["a 1"].largest for engine in decided.state.engines.values()] == [100, 100]
    decided.log(Resumed("b 1"))
    assert [engine.watermark for engine in decided.state.engines.values()] == [100, 100]
