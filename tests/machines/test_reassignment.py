"""Sources find their way back to a child that was away: those that the root assigns to it are read there."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headwater.durations import SECOND
from headwater.machines.messages import Challenge, Fenced, Hello, Leave, Message, Welcome
from headwater.machines.records import Planned, Rate, Specified
from headwater.machines.root import RootMachine, Settings
from headwater.machines.route import Connect, Place, Route, Try
from headwater.machines.stalls import Reason
from headwater.queries import Query
from headwater.sources import SourceId
from headwater.windows import Tumbling
from tests.harness import joined
from tests.machines.world import Disk

STEP = SECOND // 10
# A Service that leads to any child that is there.
SERVICE = "service:7070"


@dataclass
class Device:
    """One source: its route, and the child that it is connected to."""

    name: str
    route: Route = field(default_factory=lambda: Route([Place("", SERVICE)]))
    peer: str = ""
    assigned: str = ""
    said: tuple[str, int] = ("", 0)
    echo: str = ""
    connects: int = 0


class Hall:
    """A root with a plan, two children and six sources; each child takes three."""

    def __init__(self) -> None:
        draws = iter(range(1_000_000))
        self.machine = RootMachine(
            [Query("q", Tumbling(10), "sum")],
            Settings(expected=6, managed=True),
            Disk(),
            lambda: f"nonce-{next(draws)}",
            lambda position, results: None,
        )
        self.machine.begin()
        self.now = SECOND
        self.lives = {"a": 0, "b": 0}
        self.there: set[str] = set()
        # Children that run, but that cannot be connected to by their own address yet.
        self.hidden: set[str] = set()
        self.devices = {f"s{n}": Device(f"s{n}") for n in range(6)}
        for child in ("a", "b"):
            self.start(child)
        nodes = tuple(Planned(child, "root", 3.0) for child in ("a", "b"))
        self.machine.specify(Specified(1, "d", nodes, (Rate("", 0, 1.0),)))

    def start(self, child: str) -> None:
        self.lives[child] += 1
        self.there.add(child)
        joined(self.machine, child, token=f"{child}-{self.lives[child]}")

    def end(self, child: str, *, leaves: bool = False) -> None:
        self.there.remove(child)
        if leaves:
            generation = self.machine.members.generation(child)
            self.machine.step(child, Leave(child, generation), self.now)

    def run(self, seconds: float) -> None:
        until = self.now + int(seconds * SECOND)
        while self.now < until:
            self.now += STEP
            for send in self.machine.tick(self.now):
                if isinstance(send.message, Welcome):
                    self._deliver(send.to, send.message)
            for device in self.devices.values():
                self._follow(device)

    def _deliver(self, via: str, message: Welcome) -> None:
        device = self.devices[SourceId.of(message.source).name]
        if device.peer == via:
            device.assigned = message.child
            device.route.on_assigned(message.child, self._address(message.child))

    def _follow(self, device: Device) -> None:
        route = device.route
        if device.peer and device.peer not in self.there:
            device.peer = ""
            route.on_lost(self.now)
        if not device.peer and route.place.address and (peer := self._answer(route.place)):
            device.peer, device.said = peer, ("", -1)
            device.connects += 1
            route.on_connected(peer, self.now)
        step = route.decide(self.now)
        if isinstance(step, Try):
            route.on_tried(step.place, self._answer(step.place), self.now)
        elif isinstance(step, Connect):
            device.peer = ""
        if device.peer and device.said != (route.avoid, route.failures):
            device.said = route.avoid, route.failures
            self._greet(device)

    def _greet(self, device: Device) -> None:
        name = device.name
        for _ in range(2):
            hello = Hello(
                name,
                f"spool {name}",
                f"opening {name}",
                0,
                0,
                0,
                "",
                0,
                device.echo,
                device.peer,
                device.route.avoid,
            )
            for send in self.machine.step(device.peer, hello, self.now):
                if isinstance(send.message, Challenge):
                    device.echo = send.message.nonce
                elif isinstance(send.message, Welcome):
                    self._deliver(device.peer, send.message)
                    return

    def _answer(self, place: Place) -> str:
        found = next(
            (child for child in sorted(self.there) if place.address in (SERVICE, self._address(child))), ""
        )
        if place.address != SERVICE and found in self.hidden:
            return ""
        return found if place.child in ("", found) else ""

    def _address(self, child: str) -> str:
        return f"at {child}"

    def assert_each_is_read_by_its_child(self) -> None:
        members = self.machine.members
        for device in self.devices.values():
            assert device.peer == members.assigned(device.name) == device.assigned
        assert {child: len(members.sources_of(child)) for child in ("a", "b")} == {"a": 3, "b": 3}


def begun() -> Hall:
    hall = Hall()
    hall.run(20)
    hall.assert_each_is_read_by_its_child()
    return hall


def test_a_child_that_was_away_for_a_moment_has_its_sources_again() -> None:
    hall = begun()
    for _ in range(3):
        hall.end("b")
        hall.run(5)
        hall.start("b")
        hall.run(30)
        hall.assert_each_is_read_by_its_child()


def test_a_child_that_has_left_and_comes_back_has_its_sources_again() -> None:
    hall = begun()
    hall.end("b", leaves=True)
    hall.run(3)
    assert {device.peer for device in hall.devices.values()} == {"a"}
    hall.start("b")
    hall.run(30)
    hall.assert_each_is_read_by_its_child()


def test_a_child_that_has_left_leaves_nobody_more_than_it_takes() -> None:
    hall = begun()
    members = hall.machine.members
    hall.there.remove("b")
    hall.machine.step("b", Leave("b", members.generation("b")), hall.now)
    # Nobody has room, and nobody says hello elsewhere yet: it may be back soon.
    for _ in range(100):
        hall.now += STEP
        hall.machine.tick(hall.now)
    assert len(members.sources_of("a")) == 3


def test_a_child_that_is_reached_a_little_after_it_has_joined_has_its_sources_again() -> None:
    """The Service of a child has no address before the child is ready."""
    hall = begun()
    hall.end("b")
    hall.run(5)
    hall.start("b")
    hall.hidden.add("b")
    hall.run(4)
    hall.hidden.clear()
    hall.run(40)
    hall.assert_each_is_read_by_its_child()


def test_a_child_that_is_never_reached_moves_nobody_to_and_fro() -> None:
    hall = Hall()
    hall.hidden.add("b")
    hall.run(60)
    connects = {device.name: device.connects for device in hall.devices.values()}
    turns = hall.machine.members.turns
    hall.run(600)
    # Each is read where it is, and stays there.
    assert {device.peer for device in hall.devices.values()} == {"a"}
    assert {device.name: device.connects for device in hall.devices.values()} == connects
    assert hall.machine.members.turns == turns
    assert not hall.machine.members.sources_of("b")


def test_a_source_whose_process_is_refused_is_named_so_and_not_as_silent() -> None:
    """Its spool lacks records that the root has not counted."""
    hall = Hall()
    hall.run(5)
    device, machine = hall.devices["s0"], hall.machine
    via, echo = device.peer, ""
    for _ in range(2):
        hello = Hello("s0", "spool s0", "another opening", 100, 50, 100, "", 0, echo, via)
        (send,) = machine.step(via, hello, hall.now)
        if isinstance(send.message, Challenge):
            echo = send.message.nonce
    assert isinstance(send.message, Fenced)
    for child in ("a", "b"):
        machine.vitals.hear(child, hall.now + 6 * SECOND)
    found, _ = machine.holds(hall.now + 6 * SECOND)
    reasons = {SourceId.of(hold.source).name: (hold.reason, hold.message) for hold in found if hold.source}
    refusal = f"the root refuses the process that uses its name: {send.message.reason}"
    assert reasons["s0"] == (Reason.REFUSED, refusal)
    assert {reasons[name][0] for name in reasons if name != "s0"} == {Reason.SILENT}
    # Whoever is refused asks again every minute: that is over.
    later = hall.now + 200 * SECOND
    for child in ("a", "b"):
        machine.vitals.hear(child, later)
    found, _ = machine.holds(later)
    assert {hold.reason for hold in found if hold.source} == {Reason.SILENT}


def test_a_live_source_is_not_called_refused_because_another_process_has_its_name() -> None:
    hall = Hall()
    hall.run(5)
    machine = hall.machine
    first, second = (hello_of(hall, "s0", spool) for spool in ("spool s0", "another spool"))
    via = hall.devices["s0"].peer

    def say(hello: Hello) -> Message:
        (send,) = machine.step(via, hello, hall.now)
        if isinstance(send.message, Challenge):
            (send,) = machine.step(via, replace(hello, echo=send.message.nonce), hall.now)
        return send.message

    # The second one takes the name over, and the first one is refused from then on.
    assert isinstance(say(second), Welcome)
    assert isinstance(say(first), Fenced)
    assert isinstance(say(second), Welcome)
    assert isinstance(say(first), Fenced)
    later = hall.now + 6 * SECOND
    for child in ("a", "b"):
        machine.vitals.hear(child, later)
    found, _ = machine.holds(later)
    (hold,) = [each for each in found if SourceId.of(each.source).name == "s0"]
    assert hold.reason is Reason.SILENT
    assert "another process that uses its name is refused: " in hold.message


def hello_of(hall: Hall, name: str, spool: str) -> Hello:
    """What a process says that has a spool under a name."""
    device = hall.devices[name]
    opened = 100 if spool == f"spool {name}" else 200
    return Hello(name, spool, f"opening of {spool}", opened, 0, 0, "", 0, "", device.peer)
