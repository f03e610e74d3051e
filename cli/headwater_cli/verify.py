"""What a run has put out against the oracle: the log says what was decided, the generator what was sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from headwater import oracle
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


def differing(topology: Topology, directory: Path, feeds: Iterable[Feed]) -> int:
    """How many windows differ, after these sources have sent everything."""
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
    events: list[oracle.Event] = []
    sources = []
    for feed in feeds:
        name = named.get(feed.name, feed.name)
        sources.append(oracle.Source(name, feed.lateness, feed.site))
        seq = 1
        for part in feed.parts():
            events += _events(name, seq, part)
            seq += len(part)
    expected = oracle.windows(
        events,
        sources,
        lives.specs(),
        decisions=decisions_of(engine),
        watermark=engine.watermark,
    )
    # The oracle is told sources by the engine's names, which have their order; results by their labels.
    labelled = [replace(row, site=SourceId.of(row.site).label) for row in expected]
    rows = [
        row for _, lines in Outbox(directory / "root" / "outbox").read(0) for row in resultlines.decode(lines)
    ]
    found = [
        oracle.Row(r["query"], r["site"], r["key"], r["start"], r["end"], r["count"], _values(r["values"]))
        for r in rows
    ]
    return len(differences(labelled, found))


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
