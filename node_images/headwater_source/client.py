"""A source that runs: a spool, a machine and a stream to a child."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence

import grpc
import grpc.aio

from headwater.changes import Change
from headwater.durations import SECOND
from headwater.machines.messages import Columns, Message, Send, Welcome
from headwater.machines.route import KNOWN, Connect, Place, Route, Try
from headwater.machines.source import Settings, SourceMachine
from headwater_source.addresses import split_addresses
from headwater_source.answers import KeyAnswer
from headwater_source.spool import Spool
from headwater_wire import failpoints
from headwater_wire.clock import now
from headwater_wire.credentials import Credentials
from headwater_wire.errors import Malformed
from headwater_wire.exchange import Exchange
from headwater_wire.messages import Codec
from headwater_wire.outgoing import MESSAGE_LIMIT
from headwater_wire.v1 import tree_pb2 as pb

log = logging.getLogger(__name__)
# How long a child that is tried beside the present one may take to answer, in seconds.
TRY_SECONDS = 3.0
# After how long without progress a source says what it waits for, in microseconds.
WAIT_SHOWN = 5 * SECOND
# How many places have their last answer remembered beside those where the source begins: all that it may try.
# With fewer, answers that are forgotten would be logged as news again and again.
ANSWERS = KNOWN + 1


class _Codec(Codec):
    """A source has no queries: it need not know the functions of those that come."""

    def changes(self, sent: Iterable[pb.Change]) -> tuple[Change, ...]:
        return ()


class SourceClient:
    """Sends what is appended to a spool, until the root has counted it.

    It begins at any child, and goes on at the one that is to read it, as the root says; `Route` decides where
    it connects. With credentials the name of the first child is `child`; without one, its certificate has to
    bear its address.
    """

    def __init__(
        self,
        name: str,
        child: str | None,
        spool: Spool,
        settings: Settings | None = None,
        credentials: Credentials | None = None,
        answer: KeyAnswer | None = None,
    ) -> None:
        self.name, self.spool = name, spool
        # Where other sources of the process learn what the root says about keys.
        self._answer = KeyAnswer() if answer is None else answer
        self.machine = SourceMachine(name, spool, settings or Settings())
        # A child assembles nothing for sources: what the spool gives at once is one message.
        self.exchange = Exchange(name, self._take, _Codec(), credentials, limit=MESSAGE_LIMIT)
        # Up to this number records were sent, acknowledged or not.
        self.sent = 0
        self._offset = 0
        self._child = child or ""
        self._route: Route | None = None
        # The number of the connection that the machine knows of.
        self._connection = 0
        # How many welcomes of the machine the route knows.
        self._welcomes = 0
        self._tries: set[asyncio.Task[None]] = set()
        # What was last answered, by the child and address that were tried, and when; the latest last.
        self._answers: dict[Place, tuple[str, int]] = {}
        # How far the root had counted when it was last looked, and since when nothing has changed.
        self._progress, self._progress_at = 0, now()
        self._beat: asyncio.Task[None] | None = None
        # Why it can go no further, if so: what is on disk is sent when the source is opened again.
        self.failed: Exception | None = None

    def start(self, addresses: str) -> None:
        """Begin at an address, or at any of a list."""
        self._route = Route([Place(self._child, each) for each in split_addresses(addresses)])
        self._progress_at = now()
        self._beat = asyncio.create_task(self._run(self._route))

    def push(self) -> None:
        """Send now what was appended, as far as there is room on the way."""
        self.exchange.send(self._sends())

    async def _run(self, route: Route) -> None:
        ticks = 0
        while self.failed is None:
            ticks += 1
            try:
                reconnected = self._follow(route)
                # What is appended is pushed at once: there is haste only while something is not answered.
                busy = self.machine.busy or not self.exchange.uplink.connected
                self._note_progress()
                self.push()
                if reconnected or ticks % 5 == 0 or not busy:
                    self.exchange.send(self.machine.tick(now()))
            except Exception as error:
                self._fail(error)
                break
            await asyncio.sleep(0.05 if busy else 0.5)

    def _follow(self, route: Route) -> bool:
        """Bring machine, route and connection together; gives whether there is a new connection."""
        uplink, machine = self.exchange.uplink, self.machine
        reconnected = False
        if uplink.connected:
            if self._connection != uplink.connections:
                self._connection, reconnected = uplink.connections, True
                machine.connect(uplink.peer, now())
                route.on_connected(uplink.peer, now())
                self._note_answer(route.place, f"{uplink.peer} has answered")
        elif uplink.address:
            machine.disconnect()
            route.on_lost(now())
            self._note_answer(route.place, uplink.problem or "no answer yet")
        if machine.assigned is not None and machine.welcomes != self._welcomes:
            self._welcomes = machine.welcomes
            route.on_assigned(*machine.assigned)
        is_silent = machine.is_silent(now())
        step = route.decide(now(), is_silent=is_silent)
        if isinstance(step, Connect):
            if uplink.address:
                log.info("connecting elsewhere", extra={"source": self.name, "place": _named(step.place)})
            if is_silent:
                machine.on_silence()
            machine.disconnect()
            self.exchange.connect(step.place.address, step.place.child, "root")
        elif isinstance(step, Try):
            if is_silent:
                self.exchange.redial(step.place.address)
            task = asyncio.create_task(self._try_place(route, step.place))
            self._tries.add(task)
            task.add_done_callback(self._tries.discard)
        machine.on_unreachable(route.avoid, route.failures)
        return reconnected

    async def _try_place(self, route: Route, place: Place) -> None:
        """Find out who answers at a place, while the present connection stays."""
        peer = ""
        try:
            async with asyncio.timeout(TRY_SECONDS):
                peer = await self.exchange.reach(place.address, place.child)
            answer = f"{peer or 'nobody'} has answered"
        except TimeoutError:
            answer = f"no answer within {TRY_SECONDS:.0f} s"
        except grpc.aio.AioRpcError as error:
            answer = f"{error.code().name}: {error.details()}"
        except (OSError, Malformed) as error:
            answer = str(error)
        except Exception as error:
            # Whatever it is, other places are tried afterwards.
            log.exception("a child cannot be tried", extra={"source": self.name, "address": place.address})
            answer = str(error)
        is_news = self._answers.get(place, ("", 0))[0] != answer
        self._note_answer(place, answer)
        if is_news and place not in route.firsts and peer != place.child:
            extra = {"source": self.name, "child": place.child, "address": place.address, "problem": answer}
            log.warning("a child cannot be reached", extra=extra)
        route.on_tried(place, peer, now())

    def _note_answer(self, place: Place, answer: str) -> None:
        self._answers.pop(place, None)
        self._answers[place] = answer, now()
        begins = 0 if self._route is None else len(self._route.firsts)
        while len(self._answers) > begins + ANSWERS:
            del self._answers[next(iter(self._answers))]

    @property
    def wait(self) -> str | None:
        """What the source waits for, whom it has tried and what they answered, once it has made no progress
        for some seconds; None while it has nothing to send or gets on."""
        self._note_progress()
        quiet = now() - self._progress_at
        if quiet < WAIT_SHOWN:
            return None
        # An address is tried as itself and as that of a child: only its latest answer says how it is now.
        # Answers from before this wait are left out, except on the present connection.
        place_now = None if self._route is None else self._route.place
        latest: dict[str, str] = {}
        for place, (answer, at) in reversed(self._answers.items()):
            if at >= self._progress_at or place == place_now:
                latest.setdefault(place.address, f"{_named(place)}: {answer}")
        tried = "; ".join(latest.values()) or "nobody yet"
        return f"no progress for {quiet // SECOND} s: {self._obstacle} (tried {tried})"

    def _note_progress(self) -> None:
        """Look whether the root has counted more; while there is nothing to count, nothing is waited for."""
        counted = self.machine.counted
        # Before the root has answered, the spool alone knows.
        is_idle = self.done or (self.machine.source is None and self.spool.head == self.spool.counted)
        if counted != self._progress or is_idle:
            self._progress, self._progress_at = counted, now()

    @property
    def _obstacle(self) -> str:
        uplink, machine = self.exchange.uplink, self.machine
        if self.failed is not None:
            return f"it cannot go on: {self.failed}"
        if machine.fenced is not None:
            return f"the root refuses it: {machine.fenced}"
        if not uplink.connected:
            return "no child can be reached"
        if machine.source is None:
            return f"{uplink.peer} is connected, but the root has not answered through it"
        if machine.is_silent(now()):
            return f"{uplink.peer} is connected, but does not answer"
        if machine.lost_from is not None:
            return (
                f"the root has counted up to record {machine.lost_from:,}, and the spool begins behind that: "
                "the root came back with an older copy of its log, and records are lost "
                "(`headwater source retire` lets the source go on behind them)"
            )
        if machine.busy:
            return (
                f"{uplink.peer} does not accept more yet: its way up is held up, or the events are too far "
                "ahead of the other sources or of the clock (`headwater status` says which)"
            )
        return f"{uplink.peer} has accepted everything, but the root has not counted it yet"

    def _fail(self, error: Exception) -> None:
        self.failed = error
        log.error("the source cannot go on", extra={"source": self.name, "problem": str(error)})

    def _take(self, sender: str, message: Message) -> Sequence[Send]:
        if self.failed is not None:
            return ()
        try:
            return self._taken(sender, message)
        except Exception as error:
            self._fail(error)
            return ()

    def _taken(self, sender: str, message: Message) -> Sequence[Send]:
        before = self.machine.fenced
        answers = self.machine.step(sender, message, now())
        if self.machine.fenced is not None and before is None:
            extra = {"source": self.name, "problem": self.machine.fenced}
            log.warning("fenced: nothing is sent", extra=extra)
        if isinstance(message, Welcome) and message.opening == self.spool.opening:
            self._offset = message.offset
            if message.key_by is not None:
                self._answer.key_by = message.key_by
        # What was acknowledged has made room for more.
        return [*answers, *self._sends()]

    def _sends(self) -> list[Send]:
        sends = self.machine.send(now())
        for each in sends:
            if isinstance(each.message, Columns):
                batch = each.message.batch
                failpoints.reached("source.sent")
                self.sent = max(self.sent, self._offset + batch.first - 1 + len(batch))
        return sends

    @property
    def done(self) -> bool:
        return self.machine.done

    async def stop(self) -> None:
        tasks = [*self._tries, *([] if self._beat is None else [self._beat])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.exchange.close()


def _named(place: Place) -> str:
    return f"{place.child} at {place.address}" if place.child else place.address
