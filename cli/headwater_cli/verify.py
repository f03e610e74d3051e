"""What a run has put out against the oracle: the log says what was decided, the generator what was sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from headwater import oracle
from headwater.ledger import Account
from headwater.machines.root import RootMachine, Settings
from headwater.sources import SourceId
from headwater.topology import Topology
from headwater.verification import decisions_of, differences
from headwater_cli.feeds import Feed
from headwater_root import resultlines
from headwater_root.lives import Lives
from headwater_root.log import Log
from headwater_root.outbox import Outbox
from headwater_source.columns import Events
from headwater_wire import records as stored
from headwater_wire.functions import Functions
from headwater_wire.messages import Codec


class _NoJournal:
    """A replay writes nothing."""

    term = 0

    def append(self, record: object) -> int:
        raise AssertionError("a replay decides nothing")

    def sync(self) -> None:
        raise AssertionError("a replay decides nothing")


@dataclass(frozen=True, slots=True)
class Comparison:
    """How many windows the oracle expects and in how many places the results differ from them; by source,
    what became of its records, and how many of them the oracle calls late and rejected."""

    windows: int
    differing: int
    accounts: dict[str, Account]
    judged: dict[str, tuple[int, int]]


def differing(topology: Topology, directory: Path, feeds: Iterable[Feed]) -> int:
    """How many windows differ, after these sources have sent everything."""
    return compared(topology, directory, feeds).differing


def compared(topology: Topology, directory: Path, feeds: Iterable[Feed]) -> Comparison:
    """What came out of a root that has ended against what these sources have sent, all of it."""
    settings = Settings(expected=topology.expected, start_timeout=topology.start_timeout)
    machine = RootMachine(
        topology.queries, settings, _NoJournal(), lambda: "", lambda position, results: None
    )
    codec, lives = Codec(Functions()), Lives(topology.queries)
    with Log.open(directory / "root" / "inbox") as log:
        for position, data in log.read(0):
            record = stored.decode(data, codec)
            machine.replay(position, record)
            lives.take(record)
    engine = machine.engine
    # Everything that was sent, not only what the root says that it has counted.
    named = {SourceId.of(name).name: name for name in engine.sources}
    decisions = decisions_of(engine)
    events: list[oracle.Event] = []
    sources = []
    judged = {}
    for feed in feeds:
        name = named.get(feed.name, feed.name)
        sources.append(oracle.Source(name, feed.lateness, feed.site))
        seq, begin = 1, len(events)
        for part in feed.parts():
            events += _events(name, seq, part)
            seq += len(part)
        _, late, rejected = oracle.judge(events[begin:], sources[-1], decisions)
        judged[SourceId.of(name).label] = len(late), len(rejected)
    expected = oracle.windows(
        events,
        sources,
        lives.specs(),
        decisions=decisions,
        watermark=engine.watermark,
    )
    # The oracle is told sources by the engine's names, which have their order; results by their labels.
    labelled = [replace(row, site=SourceId.of(row.site).label) for row in expected]
    rows = [
        row for _, lines in Outbox(directory / "root" / "outbox").read(0) for row in resultlines.decode(lines)
    ]
    found = [
        oracle.Row(
            r["query"],
            r["site"],
            r["key"],
            r["start"],
            r["end"],
            r["count"],
            _values(r["values"]),
            first_time=r["first_time"],
            last_time=r["last_time"],
        )
        for r in rows
    ]
    accounts = {SourceId.of(name).label: engine.account(name) for name in engine.sources}
    return Comparison(len(labelled), len(differences(labelled, found)), accounts, judged)


def _events(source: str, first: int, part: Events) -> Iterator[oracle.Event]:
    """Columns in the oracle's words."""
    bare = part.bare
    for row, (ts, value) in enumerate(zip(part.ts.tolist(), part.value.tolist(), strict=True)):
        key = None if part.key is None else part.key.at(row)
        mark = None if part.mark is None else part.mark.at(row)
        yield oracle.Event(
            source, first + row, ts, key, None if bare is not None and bare[row] else value, mark
        )


def _values(values: dict[str, object]) -> dict[str, object]:
    """JSON knows no tuples; top and bottom are some."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
