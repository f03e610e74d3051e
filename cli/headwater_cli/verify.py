"""What a run has put out against the oracle: the log says who was counted, the spools say what they sent."""

from __future__ import annotations

from pathlib import Path

from headwater import oracle
from headwater.machines.root import RootMachine, Settings
from headwater.topology import Topology
from headwater.verification import differences, spec_of
from headwater_cli.generator import KEYS, MARKS, SECOND, START, sensors
from headwater_root import resultlines
from headwater_root.log import Log
from headwater_root.outbox import Outbox
from headwater_wire import records as stored
from headwater_wire.messages import Codec


class _NoJournal:
    """A replay writes nothing."""

    def write(self, records: object) -> int:
        raise AssertionError("a replay decides nothing")


def differing(topology: Topology, directory: Path) -> int:
    """How many windows differ."""
    settings = Settings(expected=topology.expected, start_timeout=topology.start_timeout)
    machine = RootMachine(
        topology.queries, settings, _NoJournal(), lambda: "", lambda position, results: None
    )
    codec = Codec()
    with Log.open(directory / "root" / "inbox") as log:
        for position, data in log.read(0):
            machine.replay(position, stored.decode(data, codec))
    engine = machine.engine
    made = {sensor.name: sensor for sensor in sensors(topology)}
    events, sources = [], []
    for name, known in engine.sources.items():
        sources.append(oracle.Source(name, known.lateness, known.site))
        sensor = made[name.partition("\0")[0]]
        seq = 0
        # The last record is the heartbeat behind everything.
        for second in sensor.seconds(1 << 31):
            for ts, value, key, mark in zip(second.ts, second.value, second.key, second.mark, strict=True):
                if seq == known.position - 1:
                    break
                seq += 1
                said = MARKS[mark] if mark >= 0 else None
                events.append(oracle.Event(name, seq, ts, KEYS[key], value, said))
            if seq == known.position - 1:
                break
        events.append(oracle.Event(name, known.position, START + 1_000_000 * SECOND, None, None, None))
    decisions = [
        oracle.Decision(
            d.source,
            d.after,
            d.floor,
            d.closes,
            d.ordinals,
            d.key_ordinals,
            d.skip,
            returns=d.kind in ("admit", "resume"),
        )
        for d in engine.decisions
    ]
    expected = oracle.windows(
        events,
        sources,
        [spec_of(query) for query in topology.queries],
        decisions=decisions,
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
