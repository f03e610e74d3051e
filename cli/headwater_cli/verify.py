"""What a run has put out against the oracle: the log says what was decided, the generator what was sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from headwater import oracle
from headwater.machines.root import RootMachine, Settings
from headwater.sources import SourceId
from headwater.topology import Topology
from headwater.verification import decisions_of, differences
from headwater_cli.generator import KEYS, MARKS, Sensor, last_beat, sensors
from headwater_cli.lives import Lives
from headwater_root import resultlines
from headwater_root.log import Log
from headwater_root.outbox import Outbox
from headwater_wire import records as stored
from headwater_wire.messages import Codec


class _NoJournal:
    """A replay writes nothing."""

    term = 0

    def append(self, record: object) -> int:
        raise AssertionError("a replay decides nothing")

    def sync(self) -> None:
        raise AssertionError("a replay decides nothing")


def differing(topology: Topology, directory: Path, seconds: int, sent: Sequence[Sensor] = ()) -> int:
    """How many windows differ, after sources that have sent for so many seconds.

    `sent` are the sensors, where they are others than those of the topology.
    """
    settings = Settings(expected=topology.expected, start_timeout=topology.start_timeout)
    machine = RootMachine(
        topology.queries, settings, _NoJournal(), lambda: "", lambda position, results: None
    )
    codec, lives = Codec(), Lives(topology.queries)
    with Log.open(directory / "root" / "inbox") as log:
        for position, data in log.read(0):
            record = stored.decode(data, codec)
            machine.replay(position, record)
            lives.take(record)
    engine = machine.engine
    # Everything that was sent, not only what the root says that it has counted.
    named = {SourceId.of(name).name: name for name in engine.sources}
    events, sources = [], []
    for sensor in sent or sensors(topology):
        name = named.get(sensor.name, sensor.name)
        sources.append(oracle.Source(name, sensor.lateness, sensor.site))
        seq = 0
        for second in sensor.seconds(seconds):
            for ts, value, key, mark in zip(second.ts, second.value, second.key, second.mark, strict=True):
                seq += 1
                said = MARKS[mark] if mark >= 0 else None
                events.append(oracle.Event(name, seq, ts, KEYS[key], value, said))
        events.append(oracle.Event(name, seq + 1, last_beat(seconds)))
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


def _values(values: dict[str, object]) -> dict[str, object]:
    """JSON knows no tuples; top and bottom are some."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
