"""What a run has put out against the oracle: the log says what was decided, the generator what was sent."""

from __future__ import annotations

from pathlib import Path

from headwater import oracle
from headwater.machines.root import RootMachine, Settings
from headwater.sources import SourceId
from headwater.topology import Topology
from headwater.verification import decisions_of, differences, spec_of
from headwater_cli.generator import KEYS, MARKS, last_beat, sensors
from headwater_root import resultlines
from headwater_root.log import Log
from headwater_root.outbox import Outbox
from headwater_wire import records as stored
from headwater_wire.functions import Functions
from headwater_wire.messages import Codec


class _NoJournal:
    """A replay writes nothing."""

    def write(self, records: object) -> int:
        raise AssertionError("a replay decides nothing")


def differing(topology: Topology, directory: Path, seconds: int) -> int:
    """How many windows differ, after sources that have sent for so many seconds."""
    settings = Settings(expected=topology.expected, start_timeout=topology.start_timeout)
    machine = RootMachine(
        topology.queries, settings, _NoJournal(), lambda: "", lambda position, results: None
    )
    codec = Codec(Functions())
    with Log.open(directory / "root" / "inbox") as log:
        for position, data in log.read(0):
            machine.replay(position, stored.decode(data, codec))
    engine = machine.engine
    # Everything that was sent, not only what the root says that it has counted.
    named = {SourceId.of(name).name: name for name in engine.sources}
    events, sources = [], []
    for sensor in sensors(topology):
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
        [spec_of(query) for query in topology.queries],
        decisions=decisions_of(engine),
        watermark=engine.watermark,
    )
    rows = [
        row for _, lines in Outbox(directory / "root" / "outbox").read(0) for row in resultlines.decode(lines)
    ]
    found = [
        oracle.Row(r["query"], r["site"], r["key"], r["start"], r["end"], r["count"], _values(r["values"]))
        for r in rows
    ]
    return len(differences(expected, found))


def _values(values: dict[str, object]) -> dict[str, object]:
    """JSON knows no tuples; top and bottom are some."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
