"""One run of a plan: the machines of sources, nodes and root, and the ways between them."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from headwater.machines import node, root, source
from headwater.machines.lanes import Lanes, shared
from headwater.machines.messages import Crowded, Message, Send, Silent
from headwater.machines.terms import BehindTheTree
from headwater.results import Result, Results
from headwater.sources import SourceId
from headwater_root.snapshots import Snapshots
from headwater_simulator.catalogue import QUERIES, apart
from headwater_simulator.disks import Disk, Killed, Spool
from headwater_simulator.faults import befall
from headwater_simulator.judge import Broken, Judge
from headwater_simulator.network import Network
from headwater_simulator.plans import CEASES, END, FAR, LETTERS, Fault, Plan
from headwater_simulator.ways import Ways, address_of
from headwater_wire.messages import Codec
from headwater_wire.v1 import tree_pb2

Machine = source.SourceMachine | node.NodeMachine | root.RootMachine
# Told a time, who is meant, and what happened.
Watch = Callable[[int, str, object], None]

_CODEC = Codec()
# Long after faults have ceased: whoever has not finished by then never will.
PATIENCE = 2_500
# Up to which time nodes read: theirs goes with the world's, but for a clock that is behind.
PRESENT, BEHIND = FAR - 1, 40
# Bytes of the columns of one message, at most.
MESSAGE = 1_000


def _unwatched(time: int, who: str, what: object) -> None:
    pass


class World:
    """Everything in it is decided by the plan."""

    def __init__(self, plan: Plan, watch: Watch = _unwatched) -> None:
        self.plan, self._watch = plan, watch
        self.now = self.steps = self._drawn = 0
        self.quiet = False
        # What has happened: faults by kind, and what each kind of machine answered to what.
        self.happened: Counter[str] = Counter()
        self.transitions: Counter[tuple[str, str, str]] = Counter()
        self._watched = watch is not _unwatched
        self._agenda: list[tuple[int, int, Callable[..., object], tuple[object, ...]]] = []
        self.rng = Random(f"{plan.seed} world")
        self._chance: dict[str, Random] = {}
        self.queries = [QUERIES[name] for name in plan.queries]
        self._apart = apart if plan.lanes else shared
        self._snapshots = Snapshots(self.queries, lambda name: None, self._apart)
        self.judge = Judge(self.queries, Lanes(self.queries, self._apart).numbers)
        self.disk = Disk(Random(f"{plan.seed} disk"), wire=plan.wire, watch=self.judge.durable)
        self.found: dict[int, list[Result]] = {}
        self.network = Network(plan)
        self.layers = [list(layer) for layer in plan.layers]
        self.parent = dict(plan.parents)
        self.feeds = {feed.name: feed for feed in plan.feeds}
        self._said = dict.fromkeys(self.feeds, 0)
        self.spools = {name: Spool(f"spool-{name}", self.judge.counted) for name in self.feeds}
        self.machines: dict[str, Machine] = {}
        # With the name, the process that goes by it no longer, and how far its clock is from the world's.
        self.zombies: list[tuple[str, node.NodeMachine, int]] = []
        self.paused: dict[str, int] = {}
        self.behind: dict[str, int] = {}
        # Each process has a clock of its own.
        self._clocks: dict[str, int] = {}
        # How many processes each has had, by which the ticks of those before are known.
        self._lives: Counter[str] = Counter()
        self.ways = Ways(self._lives, lambda name: name in self.machines)
        self._older, self._judged = False, 0
        for name in ["root", *plan.nodes]:
            self.make(name)
        for name, feed in self.feeds.items():
            self.at(feed.begins, self.make, name)
        for fault in plan.faults:
            self.at(fault.at, self.fault, fault)
        self.at(CEASES, self._cease)

    # Time

    def at(self, delay: int, action: Callable[..., object], *args: object) -> None:
        self._drawn += 1
        heapq.heappush(self._agenda, (self.now + delay, self._drawn, action, args))

    def _advance(self) -> None:
        self.now, _, action, args = heapq.heappop(self._agenda)
        self.steps += 1
        action(*args)

    def run(self) -> None:
        """Until everything is counted; raises if something breaks, or it never is."""
        while not (self.quiet and self.steps % 8 == 0 and self._done()):
            if self.now > PATIENCE:
                raise Broken(f"I8: {self._unfinished()}")
            self._advance()
        self._outlast()
        machine = self.living_root()
        assert machine is not None
        spools = {name: spool.records for name, spool in self.spools.items()}
        slowest = max(feed.lateness for feed in self.plan.feeds)
        self.judge.final(machine, self.found, spools, END - slowest)
        self._replay(machine)
        if self.plan.seed % 4 == 0:
            self._lose_log()

    def _outlast(self) -> None:
        """Rule 10: a process that was replaced hears of it, and ends."""
        while any(not zombie.stale for _, zombie, _ in self.zombies):
            if self.now > PATIENCE:
                raise Broken("rule 10: a process that was replaced goes on")
            self._advance()

    def _done(self) -> bool:
        return not self._unfinished()

    def _unfinished(self) -> str:
        machine = self.living_root()
        if machine is None or machine.engine.watermark is None:
            return "the root has not started"
        for name in self.feeds:
            mine, spool = self.machines.get(name), self.spools[name]
            if not isinstance(mine, source.SourceMachine) or not spool.head:
                return f"{name} has not begun"
            if spool.records[-1][0] != END:
                return f"{name} has not said all"
            if not mine.done:
                return f"{name} is not counted up to its last record, {spool.head}"
        return ""

    def _clock(self, name: str) -> int:
        return self.now + self._clocks[name]

    def _chance_of(self, name: str) -> Random:
        if name not in self._chance:
            self._chance[name] = Random(f"{self.plan.seed} {name}")
        return self._chance[name]

    # Processes

    def make(self, name: str) -> None:
        """Begin a process, in place of the one that there was."""
        self._lives[name] += 1
        self._clocks[name] = self._chance_of(name).randrange(10_000)
        if name == "root":
            self._make_root()
        elif name in self.feeds:
            self._make_source(name)
        else:
            self.machines[name] = self._new_node(name)
        if name in self.machines:
            self.at(self._chance_of(name).randint(1, 5), self._tick, name, self._lives[name])

    def _make_source(self, name: str) -> None:
        feed, spool = self.feeds[name], self.spools[name]
        spool.open(f"o{self._nonce()}")
        self.judge.histories[spool.opening] = spool.records
        times = {"patience": 60, "repeat": 60, "greeting": 10, "inquiry": 25, "retry": 12, "silence": 40}
        times["nudge"] = 12 if self.plan.addresses else times["inquiry"]
        settings = source.Settings(feed.site, feed.lateness, rows=12, **times)
        child = "" if self.plan.addresses else self.parent[name]
        self.machines[name] = source.SourceMachine(name, spool, settings, child)
        self.ways.begin(name)

    def _new_node(self, name: str) -> node.NodeMachine:
        tight = self.plan.tight
        bounds = node.Settings(
            under_way=1 if tight else 3,
            held_bytes=400 if tight else 1_500,
            batch_bytes=300 if tight else 1_000,
            rows=20,
            horizon=40 if tight else 80,
            patience=60,
            retry=12,
            least=2,
            linger=15,
            thorough=25,
            silence=45,
            memory=120,
            repeat=40,
            apart=self._apart,
        )
        child, token = name in self.layers[0], self._nonce()
        made = node.NodeMachine(
            name, self.parent[name], bounds, child=child, token=token, address=address_of(name)
        )
        made.read_until(PRESENT)
        return made

    def _make_root(self) -> None:
        settings = root.Settings(
            expected=self.plan.expected,
            start_timeout=60,
            return_timeout=60 if self.plan.addresses else 0,
            # It looks once a second, which is longer than a run.
            sending=0,
            memory=120,
            admission=15,
            keys_per_source=0 if self.quiet else self.plan.cap,
            apart=self._apart,
        )
        made = root.RootMachine(self.queries, settings, self.disk, self._nonce, self._emit)
        records = self.disk.open()
        if self.disk.snapshot[0]:
            made.restore(self._snapshots.decode(self.disk.snapshot[1]))
        try:
            for position in range(made.position + 1, len(records) + 1):
                made.replay(position, records[position - 1])
            made.begin()
        except (Killed, OSError):
            self._died(20)
            return
        self.machines["root"] = made
        self._judge_root(made)

    def _nonce(self) -> str:
        self._drawn += 1
        return str(self._drawn)

    def _emit(self, position: int, results: Results) -> None:
        if position > self.disk.durable:
            raise Broken(f"rule 16: results of record {position} leave before it is durable")
        self.disk.reach("emit")
        given = list(results)
        before = self.found.setdefault(position, given)
        if before is not given and repr(before) != repr(given):
            raise Broken(f"I9: a replay of record {position} gave {given}, not {before}")
        self.disk.reach("emitted")

    def _died(self, span: int) -> None:
        """The root is gone for some time."""
        self.machines.pop("root", None)
        self._lives["root"] += 1
        self.at(span, self.revive, "root")

    def revive(self, name: str) -> None:
        if name not in self.machines:
            self.make(name)

    def living_root(self) -> root.RootMachine | None:
        machine = self.machines.get("root")
        assert machine is None or isinstance(machine, root.RootMachine)
        return machine

    def act(
        self, name: str, action: Callable[[], Sequence[Send]], why: str = "by itself", zombie: bool = False
    ) -> None:
        """Let a machine do something, and send what it says; `why` is what it answers."""
        machine = self.machines[name]
        try:
            sends = action()
        except (Killed, OSError) as error:
            assert name == "root"
            self._watch(self.now, name, f"dies: {error}")
            if isinstance(error, Killed):
                self.happened[f"kill at {error}"] += 1
            self._died(self.rng.randint(1, 60))
            return
        if not isinstance(machine, source.SourceMachine) and machine.refusals.count:
            (_, what), *_ = machine.refusals.news()
            raise Broken(f"rule 6: {name} takes what a sound node has sent for broken: {what}")
        if isinstance(machine, root.RootMachine):
            self._judge_root(machine)
        elif sends and isinstance(machine, node.NodeMachine) and not zombie:
            self._judge_node(name, machine)
        said = " ".join(sorted({type(send.message).__name__ for send in sends}))
        self.transitions[self._role(name), why, said] += 1
        for send in sends:
            if isinstance(send.message, Silent):
                self.judge.reported(send.message)
            elif isinstance(send.message, Crowded):
                self.judge.crowds(send.message)
            if self._watched:
                self._watch(self.now, name, send)
            if self.plan.addresses and name in self.feeds and send.to != self.ways.connected(name):
                # A child does not pass on what a source says to another one.
                continue
            for time in self.network.times(name, send.to, self.now):
                self.at(time, self._receive, name, send.to, send.message)

    def _role(self, name: str) -> str:
        if name == "root" or name in self.feeds:
            return "root" if name == "root" else "source"
        return "child" if name[0] == LETTERS[0] else "intermediate"

    def decide(self, action: Callable[[], object]) -> None:
        """Let the root decide something that nobody is told of at once."""

        def decided() -> Sequence[Send]:
            action()
            return ()

        self.act("root", decided)

    def _judge_root(self, machine: root.RootMachine) -> None:
        if machine.position != self._judged and not self._older:
            self._judged = machine.position
            self.judge.stepped(machine)

    def _judge_node(self, name: str, machine: node.NodeMachine) -> None:
        """I7: what a node keeps has a bound; one message more may come from whoever is waited for."""
        if machine.held_bytes > 2 * machine.settings.held_bytes + MESSAGE:
            raise Broken(f"I7: {name} holds {machine.held_bytes} bytes of columns")

    # What each does by itself

    def _tick(self, name: str, life: int) -> None:
        if self._lives[name] != life or name not in self.machines:
            return
        if self.paused.get(name, 0) > self.now:
            self.at(self.paused[name] - self.now, self._tick, name, life)
            return
        machine, clock = self.machines[name], self._clock(name)
        if isinstance(machine, source.SourceMachine):
            self._say(name)
            self._follow(name, machine)
        elif isinstance(machine, node.NodeMachine):
            if machine.stale:
                # One that was replaced has registered behind it: it ends, and is started again.
                self.make(name)
                return
            machine.parent = self.parent[name]
            machine.read_until(BEHIND if self.behind.get(name, 0) > self.now else PRESENT)
            self.act(name, lambda: machine.flush(clock))
        self.act(name, lambda: machine.tick(clock))
        if isinstance(machine, root.RootMachine) and name in self.machines:
            self._keep(machine)
        self.at(self._chance_of(name).randint(7, 17), self._tick, name, life)

    def _keep(self, machine: root.RootMachine) -> None:
        """The root keeps a snapshot now and then, and replays what lies behind it alone."""
        if self.plan.snapshots and machine.settled and self._chance_of("root").random() < 0.06:
            self.disk.snapshot = machine.position, self._snapshots.encode(machine.state)

    def _say(self, name: str) -> None:
        """What a source has to say by now gets into its spool."""
        feed, spool = self.feeds[name], self.spools[name]
        while self._said[name] < len(feed.records) and feed.records[self._said[name]].when <= self.now:
            said = feed.records[self._said[name]]
            self._said[name] += 1
            spool.append((said.ts, said.key, said.value, said.mark))
        if self.quiet and not spool.unsynced and (not spool.records or spool.records[-1][0] != END):
            spool.append((END, None, None, None))
        if self.quiet or self._chance_of(name).random() < 0.8:
            spool.sync(self.now)

    def _follow(self, name: str, machine: source.SourceMachine) -> None:
        """Whoever owns the connections of a source follows a redirect, or finds nobody there."""
        chance = self._chance_of(name)
        if machine.assigned is not None and not self.plan.addresses:
            child = machine.assigned[0]
            if child == self.parent[name]:
                machine.avoid = ""
            elif child not in self.machines or chance.random() < 0.2:
                machine.avoid = child
            elif chance.random() < 0.5 and child != machine.avoid:
                self.parent[name] = child
        if self.parent[name] not in self.machines and chance.random() < 0.3:
            self.parent[name] = chance.choice(self.layers[0])
        if self.plan.addresses:
            self.ways.follow(name, machine, self.parent[name], self._clock(name), chance)
        else:
            machine.child = self.parent[name]
        if self.quiet or chance.random() < 0.05:
            self._skip(name, machine)
        if machine.fenced is not None and chance.random() < (0.1 if self.quiet else 0.02):
            self._release(name)
            if self.quiet:
                self._make_way(name)

    def _release(self, name: str) -> None:
        """An operator lets a source out of quarantine."""
        above = self.living_root()
        if above is not None and name in above.quarantined:
            self.happened["release"] += 1
            self.decide(lambda: above.release(name))

    def _make_way(self, name: str) -> None:
        """An operator gives up who has the name of a source that is kept out: its child may be gone for good,
        and nobody else may say that it is silent."""
        above = self.living_root()
        held = None if above is None else above.openings.held(name)
        if above is None or held is None:
            return
        present = str(SourceId(name, held.incarnation))
        if not above.engine.sources[present].retired:
            self.happened["retire"] += 1
            self.judge.given_up.add(present)
            self.decide(lambda: above.retire(present))

    def _skip(self, name: str, machine: source.SourceMachine) -> None:
        """An operator gives up a record that lies too far in the future."""
        above, mine = self.living_root(), machine.source
        if above is None or mine is None or mine not in above.engine.sources:
            return
        known = above.engine.sources[mine]
        held = above.openings.held(name)
        if held is None or known.retired:
            return
        place = held.offset + known.position
        records = self.spools[name].records
        waits = (
            place < len(records) and records[place][0] == FAR and held.opening == self.spools[name].opening
        )
        if waits and known.position + 1 not in known.prefix.skips and not known.idle:
            self.happened["skip"] += 1
            self.decide(lambda: above.skip(mine, known.position + 1))

    def _receive(self, sender: str, to: str, message: Message) -> None:
        if self.paused.get(to, 0) > self.now:
            self.at(self.paused[to] - self.now, self._receive, sender, to, message)
            return
        if to not in self.machines or not self.network.is_open(sender, to, self.now):
            return
        if self.plan.wire:
            envelope = tree_pb2.Envelope()
            envelope.ParseFromString(_CODEC.encode(sender, to, message).SerializeToString())
            message = _CODEC.decode(envelope)
        for name, zombie, ahead in self.zombies:
            if name == to:
                self.act(name, lambda: zombie.step(sender, message, self.now + ahead), zombie=True)  # noqa: B023
        machine, clock = self.machines[to], self._clock(to)
        if self._watched:
            self._watch(self.now, to, (sender, message))
        self.act(to, lambda: machine.step(sender, message, clock), type(message).__name__)

    # Faults

    def fault(self, fault: Fault) -> None:
        self._watch(self.now, fault.who, fault)
        if not self.quiet and befall(self, fault):
            self.happened[fault.kind] += 1

    def _cease(self) -> None:
        """From now on nothing befalls anybody."""
        self._watch(self.now, "", "faults cease")
        self.quiet = True
        self.network.heal()
        self.paused.clear()
        self.behind.clear()
        self.disk.full = False
        self.disk.disarm()
        for spool in self.spools.values():
            spool.full = False
        if self.plan.cap and "root" in self.machines:
            # Somebody has raised the bound: the keys are meant.
            self.make("root")

    def turn_to(self, name: str, spool: Spool) -> None:
        """A source begins anew with a spool that may lack what was counted of another."""
        self.judge.bereft.add(name)
        self.spools[name] = spool
        self.make(name)

    def peers(self, name: str) -> list[str]:
        """Those that could stand in for a node."""
        layer = next(layer for layer in self.layers if name in layer)
        return [other for other in layer if other != name and other in self.machines]

    def end(self, name: str, heir: str) -> None:
        """A node is gone for good; those below turn to another one."""
        self.machines.pop(name, None)
        self._lives[name] += 1
        self.ways.forget(name)
        for layer in self.layers:
            if name in layer:
                layer.remove(name)
        for below, above in self.parent.items():
            if above == name:
                self.parent[below] = heir

    def replace(self, name: str, machine: node.NodeMachine) -> None:
        """Another process takes a name over, and the one before goes on."""
        ahead = self._clocks[name]
        self.zombies.append((name, machine, ahead))
        self.make(name)
        self.at(3, self._haunt, name, machine, ahead)

    def _haunt(self, name: str, zombie: node.NodeMachine, ahead: int) -> None:
        """The process that was replaced goes on, until it hears of it or its place is gone."""
        if zombie.stale or name not in self.machines:
            self.zombies = [each for each in self.zombies if each[1] is not zombie]
            return
        clock = self.now + ahead
        self.act(name, lambda: zombie.flush(clock), zombie=True)
        if name in self.machines:
            self.act(name, lambda: zombie.tick(clock), zombie=True)
        self.at(7, self._haunt, name, zombie, ahead)

    # The log

    def _replay(self, machine: root.RootMachine) -> None:
        """I9: the log alone gives the same results and the same state."""
        found: dict[int, list[Result]] = {}
        again = root.RootMachine(
            self.queries,
            machine.settings,
            self.disk,
            self._nonce,
            lambda at, rows: found.update({at: list(rows)}),
        )
        for position, record in enumerate(self.disk.records[: machine.position], start=1):
            again.replay(position, record)
        if repr(found) != repr({at: self.found[at] for at in found}) or len(found) != len(self.found):
            raise Broken("I9: the log gives other results when it is replayed")
        if again.committed != machine.committed:
            raise Broken("I9: the log gives other positions when it is replayed")

    def _lose_log(self) -> None:
        """Rule 17: a root that comes back with an older log than the tree knows of halts loudly."""
        self._watch(self.now, "root", "its log is an older copy")
        self._older = True
        del self.disk.records[max(len(self.disk.records) // 2, 1) :]
        self.disk.durable, self.disk.snapshot, self.found = len(self.disk.records), (0, b""), {}
        self.disk._watch = lambda record: None
        self.happened["older log"] += 1
        until = self.now + 600
        try:
            self.make("root")
            while self.now < until:
                self._advance()
        except BehindTheTree:
            return
        raise Broken("rule 17: a root with an older log went on")
