"""What a run's log says of its queries, held to the oracle: each sees exactly the events of its own time."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import oracle
from headwater.events import Batch, Record
from headwater.machines.messages import Challenge, Delivery, Hello
from headwater.machines.records import Record as Entry
from headwater.machines.root import RootMachine, Settings
from headwater.node import Node
from headwater.queries import Query
from headwater.results import Result, Results
from headwater.sources import SourceId
from headwater.verification import differences
from headwater.windows import Punctuation, Session, Sliding, Tumbling
from headwater_root.lives import Lives
from tests.harness import joined, rows_of

SOURCE = str(SourceId("s", 1))
FIRST = [Query("a", Tumbling(10), "sum"), Query("b", Session(4), "count")]
LATER = [
    Query("c", Sliding(12, 4), ["max", "count"]),
    Query("c", Tumbling(count=3), "sum"),
    Query("c", Punctuation("S", "E"), "sum"),
    *FIRST,
]


class Tree:
    """A root with its log in memory, and one source whose child is always up to date."""

    def __init__(self) -> None:
        self.log: list[Entry] = []
        self.found: list[Result] = []
        self.records: list[Record] = []
        self.machine = RootMachine(FIRST, Settings(), self, lambda: "n", self._emit)
        (challenge,) = self.machine.step("c", Hello("s", "p", "o", 0, 0, 0), 0)
        assert isinstance(challenge.message, Challenge)
        self.stream = joined(self.machine)
        self.machine.step("c", Hello("s", "p", "o", 0, 0, 0, echo=challenge.message.nonce), 0)

    term = 1

    def append(self, record: Entry) -> int:
        self.log.append(record)
        return len(self.log)

    def sync(self) -> None:
        pass

    def _emit(self, position: int, results: Results) -> None:
        self.found += results

    def push(self, records: list[Record]) -> None:
        self.machine.commit()
        engine = self.machine.engine
        node = Node(FIRST)
        for change in engine.changes:
            node.apply(change)
        node.admit(SOURCE, lateness=0, prefix=engine.sources[SOURCE].prefix)
        node.push(Batch.from_records(SOURCE, len(self.records) + 1, records))
        self.records += records
        self.machine.step("c", Delivery(self.stream, f"c/{len(self.records)}", 0, node.flush()), 0)


_ACTIONS = st.one_of(
    st.tuples(st.just("push"), st.lists(st.tuples(st.integers(0, 5), st.sampled_from("vvvvSE")), min_size=1)),
    st.tuples(st.just("add"), st.sampled_from(LATER)),
    st.tuples(st.just("remove"), st.tuples(st.sampled_from("abc"), st.booleans())),
)


@given(st.lists(_ACTIONS, max_size=14))
@settings(max_examples=300)
def test_every_query_is_told_with_what_it_saw(actions: list[tuple[str, object]]) -> None:
    tree, clock = Tree(), 0
    for kind, given_ in actions:
        active = tree.machine.engine.active
        if kind == "push":
            records: list[Record] = []
            assert isinstance(given_, list)
            for step, what in given_:
                clock += step
                records.append((clock, None, 1.0, None) if what == "v" else (clock, None, None, what))
            tree.push(records)
        elif kind == "add" and isinstance(given_, Query) and given_.id not in active:
            tree.machine.add(given_)
        elif kind == "remove" and isinstance(given_, tuple) and given_[0] in active:
            tree.machine.remove(given_[0], at_once=given_[1])
    tree.push([(clock + 1_000, None, None, None)])
    tree.machine.commit()
    lives = Lives(FIRST)
    for record in tree.log:
        lives.take(record)
    events = [oracle.Event(SOURCE, n, *record) for n, record in enumerate(tree.records, start=1)]
    expected = oracle.windows(
        events, [oracle.Source(SOURCE)], lives.specs(), watermark=tree.machine.engine.watermark
    )
    wrong = differences(expected, rows_of(tree.found))
    assert not wrong, "\n".join(wrong[:8])
