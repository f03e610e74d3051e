"""A small world of sources, nodes and a root on a network that delays, loses, repeats and reorders."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headwater import oracle
from headwater.events import Batch, Record
from headwater.machines import node, root, source
from headwater.machines.lanes import shared
from headwater.machines.messages import Message, Send
from headwater.machines.records import Admitted
from headwater.machines.records import Record as Entry
from headwater.queries import Query
from headwater.results import Result, Results
from headwater.root import Root
from headwater.sources import SourceId
from headwater.verification import decisions_of, differences, spec_of
from headwater.windows import Tumbling, is_count
from headwater_root.snapshots import Snapshots
from headwater_wire import records as stored
from headwater_wire.messages import Codec
from headwater_wire.v1 import tree_pb2
from tests.harness import rows_of

CODEC = Codec()

END = 2_000
LATENESS = 3


@dataclass
class Spool:
    """Records in memory that survive their process."""

    id: str
    records: list[Record] = field(default_factory=list)
    opening: str = ""
    opened_at: int = 0
    confirmed: bool = True
    base: int = 0
    # Nobody sets these spools back.
    earlier: tuple[tuple[str, int], ...] = ()

    @property
    def head(self) -> int:
        return len(self.records)

    def open(self, opening: str) -> None:
        self.opened_at = self.head if self.confirmed else min(self.opened_at, self.head)
        self.opening, self.confirmed = opening, False

    def confirm(self, opening: str) -> None:
        self.confirmed |= opening == self.opening

    def trim(self, upto: int) -> None:
        assert upto <= self.head
        self.base = max(self.base, upto)

    def read(self, after: int, limit: int) -> Batch | None:
        assert after >= self.base, "trimmed before it was counted"
        records = self.records[after : after + limit]
        return Batch.from_records("spool", after + 1, records) if records else None


class Disk:
    """A log in memory of which only what was synced survives its process."""

    def __init__(self) -> None:
        self.records: list[Entry] = []
        self.durable = self.term = 0
        self.snapshot: tuple[int, bytes] = (0, b"")

    def append(self, record: Entry) -> int:
        # What is written is bytes, and what is read back is made of them.
        self.records.append(stored.decode(stored.encode(record), CODEC))
        return len(self.records)

    def sync(self) -> None:
        self.durable = len(self.records)

    def open(self) -> list[Entry]:
        del self.records[self.durable :]
        self.term += 1
        return list(self.records)


def apart(query: Query) -> bool:
    """Count windows have positions of their own here."""
    return is_count(query.window)


Machine = source.SourceMachine | node.NodeMachine | root.RootMachine


class World:
    """One run, which a seed replays exactly."""

    def __init__(
        self,
        seed: int,
        queries: Sequence[Query],
        *,
        faults: int = 12,
        lanes: bool = False,
        snapshots: bool = False,
        comings: int = 0,
        retires: int = 0,
        above: int = 0,
        keys_per_source: int = 0,
    ) -> None:
        """`snapshots`: half of the restarts of the root replay only what lies behind the last one.
        `comings`: so often a source has said all, is retired, and another one comes under a new name.
        `retires`: so often a source is retired in the midst of what it says, and comes back as another one.
        `above`: as many more layers of one node each.
        `keys_per_source`: so many, and in the middle one source brings more; whoever is in quarantine is
        released after some time."""
        self.keys_per_source = keys_per_source
        self.apart = apart if lanes else shared
        self.snapshots = Snapshots(queries, lambda name: None, self.apart)
        # Chance of its own, so that a seed means the same run otherwise.
        self.shots = random.Random(seed) if snapshots else None
        self.ends = random.Random(seed)
        self.rng = rng = random.Random(seed)
        self.queries = list(queries)
        self.now = self.count = 0
        self.quiet = False
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.disk, self.found = Disk(), dict[int, list[Result]]()
        self.children = [f"c{n}" for n in range(rng.randint(1, 3))]
        self.middle = [f"i{n}" for n in range(rng.randint(1, 2))]
        self.parent = {child: rng.choice(self.middle) for child in self.children}
        top = "root"
        self.above = [f"a{n}" for n in range(above)]
        for name in self.above:
            self.parent[name] = top
            top = name
        self.parent |= dict.fromkeys(self.middle, top)
        self.sources = [f"s{n}" for n in range(rng.randint(1, 4))]
        self.expected = len(self.sources)
        self.parent |= {name: rng.choice(self.children) for name in self.sources}
        self.loss, self.repeat, self.delay = (
            rng.choice([0, 0.1]),
            rng.choice([0, 0.1]),
            rng.choice([1, 5, 20]),
        )
        self.clock = {name: rng.randint(0, 12) for name in self.sources}
        self.mark = dict.fromkeys(self.sources, False)
        self.spools = {name: Spool(f"spool-{name}") for name in self.sources}
        self.machines: dict[str, Machine] = {}
        for name in ["root", *self.above, *self.middle, *self.children, *self.sources]:
            self._make(name)
            self._at(rng.randint(1, 5), lambda name=name: self._tick(name))  # type: ignore[misc]  # bound now
        for _ in range(faults):
            self._at(rng.randint(1, 1_500), self._fault)
        for _ in range(comings):
            self._at(rng.randint(100, 1_400), self._leave)
        for _ in range(retires):
            self._at(self.ends.randint(100, 1_400), self._retire)
        self.left: list[str] = []
        self.changes = 0
        if keys_per_source:
            self._at(self.ends.randint(100, 900), self._crowd)
            self._at(self.ends.randint(100, 200), self._release)

    # Time

    def _at(self, delay: int, action: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.events, (self.now + delay, self.count, action))

    def run(self) -> None:
        """Until everything is counted; raises if it never is."""
        while not self._done():
            assert self.now < 9_000, "stuck"
            self.now, _, action = heapq.heappop(self.events)
            if self.now > 1_500 and not self.quiet:
                self.quiet, self.loss, self.repeat = True, 0, 0
            action()

    def rest(self, time: int) -> None:
        """Let time go by."""
        until = self.now + time
        while self.events[0][0] <= until:
            self.now, _, action = heapq.heappop(self.events)
            action()

    def _done(self) -> bool:
        sources = [self.machines[name] for name in self.sources]
        return self.quiet and all(
            isinstance(s, source.SourceMachine)
            and s.done
            and s.spool.head > 0
            and self.spools[s.name].records[-1][0] == END
            for s in sources
        )

    # Machines

    def _make(self, name: str) -> None:
        if name == "root":
            settings = root.Settings(
                expected=self.expected,
                start_timeout=200,
                memory=150,
                admission=20,
                keys_per_source=self.keys_per_source,
                apart=self.apart,
            )
            made = root.RootMachine(self.queries, settings, self.disk, self._nonce, self._emit)
            if self.shots is not None and self.disk.snapshot[0] and self.shots.random() < 0.5:
                made.restore(self.snapshots.decode(self.disk.snapshot[1]))
            before, after = self.found, made.position
            self.found = {position: rows for position, rows in before.items() if position <= after}
            for position, record in enumerate(self.disk.open()[after:], start=after + 1):
                made.replay(position, record)
            assert repr(self.found) == repr(before), "a replay gave other results"
            made.begin()
            self.machines[name] = made
        elif name in self.sources:
            self.spools[name].open(f"o{self._nonce()}")
            mine = source.Settings(
                "", LATENESS, rows=12, patience=80, repeat=20, greeting=10, inquiry=20, retry=8
            )
            self.machines[name] = source.SourceMachine(name, self.spools[name], mine, self.parent[name])
        else:
            bounds = node.Settings(
                under_way=3,
                held_bytes=1_500,
                batch_bytes=1_000,
                rows=20,
                horizon=60,
                patience=80,
                retry=8,
                least=2,
                linger=15,
                thorough=20,
                silence=300,
                memory=150,
                repeat=60,
                apart=self.apart,
            )
            self.machines[name] = node.NodeMachine(
                name,
                self.parent[name],
                bounds,
                child=name in self.children,
                token=self._nonce(),
                address=f"at {name}",
            )

    def _nonce(self) -> str:
        self.count += 1
        return str(self.count)

    def _emit(self, position: int, results: Results) -> None:
        assert position not in self.found
        self.found[position] = list(results)

    def _tick(self, name: str) -> None:
        if name not in self.machines:
            return
        machine = self.machines[name]
        if isinstance(machine, source.SourceMachine):
            self._produce(name)
            if machine.assigned is not None and machine.assigned[0] != self.parent[name]:
                # Whoever owns the connection follows a redirect, or finds nobody there.
                child, address = machine.assigned
                assert address == f"at {child}"
                if self.rng.random() < 0.2:
                    machine.avoid = child
                elif self.rng.random() < 0.5:
                    self.parent[name] = child
            machine.child = self.parent[name]
        if isinstance(machine, node.NodeMachine):
            machine.parent = self.parent[name]
            self._send(name, machine.flush(self.now))
        self._send(name, machine.tick(self.now))
        if isinstance(machine, root.RootMachine) and self.shots is not None and self.shots.random() < 0.05:
            self.disk.snapshot = machine.position, self.snapshots.encode(machine.state)
        self._at(self.rng.randint(5, 9), lambda: self._tick(name))

    def _produce(self, name: str) -> None:
        rng, records = self.rng, self.spools[name].records
        if name in self.left:
            self._follow(name)
            return
        if self.quiet:
            if not records or records[-1][0] != END:
                records.append((END, None, None, None))
            return
        if len(records) > 60 or rng.random() < 0.3:
            return
        for _ in range(rng.randint(0, 4)):
            self.clock[name] += rng.randint(0, 3)
            ts = self.clock[name] - (rng.randint(0, 6) if rng.random() < 0.3 else 0)
            chance = rng.random()
            if chance < 0.08:
                records.append((ts, None, None, None))
            elif chance < 0.25:
                self.mark[name] = not self.mark[name]
                records.append((ts, None, None, "S" if self.mark[name] else "E"))
            else:
                records.append((ts, rng.choice("kl"), float(rng.randint(-5, 11)), None))

    # Network

    def _send(self, sender: str, sends: Sequence[Send]) -> None:
        for send in sends:
            for _ in range(1 + (self.rng.random() < self.repeat)):
                if self.rng.random() >= self.loss:
                    self._at(
                        self.rng.randint(1, self.delay),
                        lambda send=send: self._receive(sender, send.to, send.message),  # type: ignore[misc]  # bound now
                    )

    def _receive(self, sender: str, to: str, message: Message) -> None:
        if to not in self.machines:
            return
        machine = self.machines[to]
        envelope = tree_pb2.Envelope()
        envelope.ParseFromString(CODEC.encode(sender, to, message).SerializeToString())
        self._send(to, machine.step(envelope.sender, CODEC.decode(envelope), self.now))

    # Sources that come and go

    def _leave(self) -> None:
        """A source has nothing more to say; when that is counted, it goes, and another one comes."""
        staying = [name for name in self.sources if name not in self.left]
        if staying and not self.quiet:
            self.left.append(self.rng.choice(staying))

    def _follow(self, name: str) -> None:
        machine, present = self.machines["root"], self.machines[name]
        assert isinstance(machine, root.RootMachine)
        assert isinstance(present, source.SourceMachine)
        if present.source is None or not present.done or machine.engine.watermark is None:
            return
        machine.retire(present.source)
        del self.machines[name]
        self.sources.remove(name)
        self.left.remove(name)
        new = f"s{len(self.spools)}"
        self.sources.append(new)
        self.spools[new] = Spool(f"spool-{new}")
        self.parent[new] = self.rng.choice(self.children)
        self.clock[new], self.mark[new] = max(self.clock.values()), False
        self._make(new)
        self._at(self.rng.randint(1, 5), lambda: self._tick(new))

    def _retire(self) -> None:
        """Retire a source; one of which a lane has not come to where lane 0 is, if there is any."""
        machine = self.machines["root"]
        assert isinstance(machine, root.RootMachine)
        spoken = [self.machines[name] for name in self.sources if name not in self.left]
        known = [s.source for s in spoken if isinstance(s, source.SourceMachine) and s.source is not None]
        sources = machine.engine.sources
        there = [name for name in known if not sources[name].retired]
        behind = [name for name in there if machine.committed[name] < sources[name].position]
        if there and machine.engine.watermark is not None:
            machine.retire(self.ends.choice(behind or there))

    def _crowd(self) -> None:
        """A source brings one key after the other."""
        name = self.ends.choice(self.sources)
        for n in range(4 * self.keys_per_source):
            self.clock[name] += self.ends.randint(0, 1)
            self.spools[name].records.append((self.clock[name], f"x{n}", 1.0, None))

    def _release(self) -> None:
        machine = self.machines["root"]
        assert isinstance(machine, root.RootMachine)
        for name in list(machine.quarantined):
            machine.release(name)
        self._at(self.ends.randint(50, 150), self._release)

    # Faults

    def _fault(self) -> None:
        rng = self.rng
        kind = rng.choice(["crash", "crash", "root", "move", "move", "restart", "change"])
        if kind == "crash":
            self._make(rng.choice(self.children + self.middle + self.above))
        elif kind == "root":
            self._make("root")
        elif kind == "move":
            name = rng.choice(self.sources + self.children)
            machine = self.machines["root"]
            if name in self.children:
                self.parent[name] = rng.choice(self.middle)
            elif rng.random() < 0.5:
                self.parent[name] = rng.choice(self.children)
            elif isinstance(machine, root.RootMachine):
                self._send("root", machine.assign({name: rng.choice(self.children)}))
        elif kind == "restart":
            self._make(rng.choice(self.sources))
        else:
            self._change()

    def _change(self) -> None:
        machine = self.machines["root"]
        assert isinstance(machine, root.RootMachine)
        if machine.engine.watermark is None:
            return
        added = {change.query.id for change in machine.engine.changes}
        alive = {active for active in machine.engine.active if active.startswith("+")}
        if alive and self.rng.random() < 0.5:
            machine.remove(sorted(alive)[0])
        elif len(added) < 3:
            window = self.rng.choice([self.queries[0].window, self.queries[1].window, Tumbling(count=5)])
            machine.add(Query(f"+{len(added)}", window, "sum"))

    # What must hold

    def check(self) -> None:
        """Everything that was accepted is counted once, and every final window is what the oracle says."""
        machine = self.machines["root"]
        assert isinstance(machine, root.RootMachine)
        for number, engine in machine.engines.items():
            assert {name: known.position for name, known in engine.sources.items()} == {
                name: known.position for name, known in machine.engine.sources.items()
            }, f"lane {number} has not come to where lane 0 is"
            wrong = self._wrong(machine, number, engine)
            assert not wrong, "\n".join(wrong[:8])
        for name, known in machine.engine.sources.items():
            account = machine.engine.account(name)
            assert account.accepted == known.position == account.counted + account.late + account.rejected

    def _wrong(self, machine: root.RootMachine, number: int, engine: Root) -> list[str]:
        """How the windows of a lane differ."""
        events, sources = [], []
        bodies = (entry.body for entry in self.disk.records)
        offsets = {body.source: body.offset for body in bodies if isinstance(body, Admitted)}
        for name, known in engine.sources.items():
            sources.append(oracle.Source(name, known.lateness, known.site))
            records = self.spools[SourceId.of(name).name].records
            offset = offsets[name]
            for seq, (ts, key, value, mark) in enumerate(records[offset : offset + known.position], start=1):
                events.append(oracle.Event(name, seq, ts, key, value, mark))
        lives: dict[str, tuple[Query, int | None, int | None]] = {q.id: (q, None, None) for q in self.queries}
        for change in engine.changes:
            query, begin, _ = lives.get(change.query.id, (change.query, change.edge, None))
            lives[query.id] = (query, begin, change.edge if change.kind == "remove" else None)
        mine = {query.id for query in engine.queries}
        assert number == 0 or len(mine) == 1
        specs = [spec_of(query, begin, end) for query, begin, end in lives.values() if query.id in mine]
        expected = oracle.windows(
            events, sources, specs, decisions=decisions_of(engine), watermark=engine.watermark
        )
        results = (result for position in sorted(self.found) for result in self.found[position])
        found = [result for result in results if result.query in mine]
        return differences(expected, rows_of(found))
