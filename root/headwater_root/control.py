"""The service Control: it reads requests, lets the machine decide, and tells what came of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message as ProtoMessage

from headwater.changes import Change
from headwater.degraded import Degraded
from headwater.errors import HeadwaterError, Invalid, Problem
from headwater.groups.members import Active
from headwater.machines.holds import Hold
from headwater.machines.messages import Send
from headwater.machines.root import RootMachine
from headwater.machines.stalls import Reason
from headwater.progress import Source
from headwater.queries import Query
from headwater.rows import TS_MAX, TS_MIN
from headwater.sources import NAME_LIMIT, SourceId
from headwater.topology import Functions, queries_of, query_document, query_of
from headwater.windows import Punctuation, Session, is_count
from headwater_root.applying import Gathered, Overtaken, apply
from headwater_root.delivery import Deliveries
from headwater_root.problems import PROBLEMS, cut, plain, problems_message
from headwater_wire.clock import now, wall
from headwater_wire.v1 import control_pb2 as pb
from headwater_wire.v1 import control_pb2_grpc, tree_pb2

NAME = pb.DESCRIPTOR.services_by_name["Control"].full_name
REQUEST_BYTES, DOCUMENT_BYTES, REPLY_BYTES = 65_536, 65_000, 1 << 20
# A manifest holds few; these come one by one.
ACTIVE_LIMIT = 4_096
# Of the queries of all changes together.
CHANGES_BYTES = 1 << 20
WORDS_BYTES = 2_048
# How many sources are assigned by one request.
ASSIGNMENTS_LIMIT = 4_096
QUERIES_PAGE, SOURCES_PAGE, SOURCES_PAGE_LIMIT = 100, 100, 1_000
NODES_LIMIT = 1_000
HOLD_REASONS = {
    Reason.EXPECTED: pb.Hold.REASON_EXPECTED,
    Reason.SILENT: pb.Hold.REASON_SILENT,
    Reason.CHILD_SILENT: pb.Hold.REASON_CHILD_SILENT,
    Reason.NO_CHILD: pb.Hold.REASON_NO_CHILD,
    Reason.HORIZON: pb.Hold.REASON_HORIZON,
    Reason.FUTURE: pb.Hold.REASON_FUTURE,
    Reason.QUARANTINE: pb.Hold.REASON_QUARANTINE,
    Reason.BACKPRESSURE: pb.Hold.REASON_BACKPRESSURE,
    Reason.BEHIND: pb.Hold.REASON_BEHIND,
    Reason.REFUSED: pb.Hold.REASON_REFUSED,
}

Request = TypeVar("Request")
Reply = TypeVar("Reply")


class NotThere(Invalid):
    """A query or source that a request names, and that the root does not know."""


class Full(Invalid):
    """A bound that is reached."""


@dataclass(frozen=True, slots=True)
class _Life:
    """A query there is or was: it came with a version and sees the events with `begin <= ts < end`."""

    active: Active
    incarnation: int
    version: int
    at_once: bool = False


class Unmerged(NamedTuple):
    """Records whose windows are not out: how many, for how long none was merged, in microseconds, and why, if
    that is known."""

    records: int
    stalled: int
    obstacle: str


class Control(control_pb2_grpc.ControlServicer):
    """Control of one root; everything happens in the thread of the machine."""

    def __init__(
        self,
        topology: str,
        machine: RootMachine,
        deliveries: Deliveries,
        windows: Mapping[int, int],
        send: Callable[[Sequence[Send]], None],
        halt: Callable[[HeadwaterError], None],
        functions: Functions = lambda name: None,
        unmerged: Callable[[], Unmerged | None] = lambda: None,
        degraded: Callable[[], Sequence[Degraded]] = lambda: (),
    ) -> None:
        """`windows` says how many each query (by its number) has put out, `halt` takes what no root
        survives, `functions` finds users' functions by their names. `unmerged` gives the records whose
        windows are not out, where these come later; `degraded` tells of which queries too many windows
        wait."""
        self._unmerged, self._degraded = unmerged, degraded
        self._topology, self._machine, self._deliveries = topology, machine, deliveries
        self._windows, self._send, self._halt, self._functions = windows, send, halt, functions
        # From the monotonic clock to the time of day, fixed: a moment is reported as the same time again.
        self._epoch = wall() - now()
        # Up to which version changes are measured, and the bytes of what they have added.
        self._measured = self._added_bytes = 0

    def join(self, server: grpc.aio.Server) -> None:
        control_pb2_grpc.add_ControlServicer_to_server(self, server)  # type: ignore[no-untyped-call]  # generated

    # The methods: names of the .proto file

    async def AddQuery(self, request: pb.AddQueryRequest, context: Any) -> pb.AddQueryReply:  # noqa: N802
        return await self._answered(context, self._add, request, changes=True)

    async def RemoveQuery(  # noqa: N802
        self, request: pb.RemoveQueryRequest, context: Any
    ) -> pb.RemoveQueryReply:
        return await self._answered(context, self._remove, request, changes=True)

    async def ListQueries(  # noqa: N802
        self, request: pb.ListQueriesRequest, context: Any
    ) -> pb.ListQueriesReply:
        return await self._answered(context, self._listed, request)

    async def Status(self, request: pb.StatusRequest, context: Any) -> pb.StatusReply:  # noqa: N802
        return await self._answered(context, self._status, request)

    async def Skip(self, request: pb.SkipRequest, context: Any) -> pb.SkipReply:  # noqa: N802
        return await self._answered(context, self._skip, request, changes=True)

    async def Retire(self, request: pb.RetireRequest, context: Any) -> pb.RetireReply:  # noqa: N802
        return await self._answered(context, self._retire, request, changes=True)

    async def Release(self, request: pb.ReleaseRequest, context: Any) -> pb.ReleaseReply:  # noqa: N802
        return await self._answered(context, self._release, request, changes=True)

    async def Assign(self, request: pb.AssignRequest, context: Any) -> pb.AssignReply:  # noqa: N802
        return await self._answered(context, self._assign, request, changes=True)

    async def ApplySpec(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.SpecPart], context: Any
    ) -> pb.ApplySpecReply:
        gathered = Gathered()
        async for part in request_iterator:
            await self._answered(context, gathered.add, part)
        return await self._answered(context, self._apply, gathered, changes=True)

    async def _answered(
        self, context: Any, answer: Callable[[Request], Reply], request: Request, *, changes: bool = False
    ) -> Reply:
        """The one place where errors become states of gRPC."""
        code = grpc.StatusCode.INTERNAL
        trailer: tuple[tuple[str, bytes], ...] = ()
        try:
            if isinstance(request, ProtoMessage):
                _bounded(request)
            if changes:
                # What waits is applied first, and whoever sent it hears of it.
                self._send(self._machine.commit())
            return answer(request)
        except Overtaken as error:
            code, words = grpc.StatusCode.FAILED_PRECONDITION, str(error)
        except NotThere as error:
            code, words = grpc.StatusCode.NOT_FOUND, str(error)
        except Full as error:
            code, words = grpc.StatusCode.RESOURCE_EXHAUSTED, str(error)
        except Invalid as error:
            code, words = grpc.StatusCode.INVALID_ARGUMENT, str(error)
            trailer = ((PROBLEMS, problems_message(error.problems).SerializeToString()),)
        except HeadwaterError as error:
            words = str(error)
            self._halt(error)
        await context.abort(code, cut(words, WORDS_BYTES), trailer)
        raise AssertionError("abort raises")

    # Queries

    def _add(self, request: pb.AddQueryRequest) -> pb.AddQueryReply:
        query = self.read(request.document)
        self.check_room(query)
        try:
            change = self._machine.add(query)
        except Invalid as error:
            raise Invalid("the query cannot be added", map(plain, error.problems)) from error
        reply = pb.AddQueryReply(id=query.id, version=change.version, first_result=first_result(change))
        if change.edge != TS_MIN:
            reply.edge = change.edge
            if bounds := first_window(change):
                reply.first_window.start, reply.first_window.end = bounds
        return reply

    def check_room(self, query: Query) -> None:
        """Every node is told all changes in one message, so there is a bound to them."""
        engine, what = self._machine.engine, "the query cannot be added"
        if len(engine.active) >= ACTIVE_LIMIT and query.id not in engine.active:
            said = f"there are {len(engine.active)}"
            raise Full(what, [Problem("queries", said, "remove one that is no longer needed")])
        for change in engine.changes[self._measured :]:
            # Whatever is added may be removed, which is a change of the same size.
            self._added_bytes += 2 * len(_document(change.query)) if change.kind == "add" else 0
        self._measured = engine.version
        if self._added_bytes + 2 * len(_document(query)) > CHANGES_BYTES:
            said = f"{engine.version} changes were made since the beginning, as many as nodes can be told"
            raise Full(what, [Problem("queries", said, "start the topology anew with the queries it needs")])

    def read(self, document: str) -> Query:
        """The query of a document; raises if it cannot be one of this root's."""
        what = "the query cannot be read"
        if len(document.encode()) > DOCUMENT_BYTES:
            problem = Problem("document", "is too long", f"send at most {DOCUMENT_BYTES} bytes")
            raise Invalid(what, [problem])
        try:
            given = json.loads(document)
        except (ValueError, RecursionError) as error:
            raise Invalid(
                what, [Problem("document", f"is no JSON ({error})", "send a query as JSON")]
            ) from None
        try:
            if isinstance(given, dict) and "kind" in given:
                topology, query = query_of(given, self._functions)
                if topology != self._topology:
                    said = f"is {topology!r}, but this is the root of {self._topology!r}"
                    raise Invalid(what, [Problem("spec.topologyRef", said, "ask the root of that topology")])
                return query
            (query,) = queries_of([given], self._functions)
            return query
        except Invalid as error:
            raise Invalid(what, map(plain, error.problems)) from error

    def present(self) -> Mapping[str, Query]:
        """The queries that run, by their ids."""
        return {
            life.active.query.id: life.active.query for life in self._lives() if life.active.end == TS_MAX
        }

    def _apply(self, gathered: Gathered) -> pb.ApplySpecReply:
        return apply(gathered, self._machine, self)

    def _remove(self, request: pb.RemoveQueryRequest) -> pb.RemoveQueryReply:
        active = self._machine.engine.active
        if request.id not in active:
            remedy = f"give one of {', '.join(active[:20])}" if active else "there is none to remove"
            problem = Problem("id", f"{request.id!r} is not there", remedy)
            raise NotThere("the query cannot be removed", [problem])
        change = self._machine.remove(request.id, at_once=request.at_once)
        edge = None if change.edge == TS_MIN else change.edge
        return pb.RemoveQueryReply(version=change.version, edge=edge)

    def _listed(self, request: pb.ListQueriesRequest) -> pb.ListQueriesReply:
        lives = list(self._lives())
        reply = pb.ListQueriesReply(version=self._machine.engine.version)
        limit, size = min(request.limit or QUERIES_PAGE, QUERIES_PAGE), 0
        place = request.after
        groups = self._groups()
        for life in lives[place : place + limit]:
            told = self._told(life, groups.get(life.active.index))
            size += told.ByteSize()
            if size > REPLY_BYTES and reply.queries:
                break
            reply.queries.append(told)
            place += 1
        reply.next = place if place < len(lives) else 0
        return reply

    def _lives(self) -> Iterator[_Life]:
        """All queries there ever were, in the order of their numbers."""
        engine = self._machine.engine
        added = [change for change in engine.changes if change.kind == "add"]
        first = len(engine.queries) - len(added)
        lives = [_Life(Active(n, query), 1, 0) for n, query in enumerate(engine.queries[:first])]
        present = {life.active.query.id: life for life in lives}
        times = dict.fromkeys(present, 1)
        for change in engine.changes:
            id = change.query.id
            if change.kind == "add":
                times[id] = times.get(id, 0) + 1
                active = Active(len(lives), change.query, change.edge)
                present[id] = _Life(active, times[id], change.version)
                lives.append(present[id])
            else:
                life = present.pop(id)
                active = Active(life.active.index, life.active.query, life.active.begin, change.edge)
                lives[active.index] = _Life(active, life.incarnation, life.version, change.at_once)
        return iter(lives)

    def _groups(self) -> dict[int, int]:
        """Of each query that is there, or ends: the number of its group."""
        groups = self._machine.engine.groups()
        return {member.index: number for number, group in groups.items() for member in group.members}

    def _lag(self) -> int | None:
        engine = self._machine.engine
        if engine.watermark is None or engine.largest == TS_MIN:
            return None
        return max(engine.largest - engine.watermark, 0)

    def _told(self, life: _Life, group: int | None) -> pb.ListedQuery:
        active = life.active
        state, watermark = pb.ListedQuery.STATE_ACTIVE, self._machine.engine.watermark
        if active.end != TS_MAX:
            over = life.at_once or (watermark is not None and active.last_end < watermark)
            state = pb.ListedQuery.STATE_ENDED if over else pb.ListedQuery.STATE_ENDING
        return pb.ListedQuery(
            id=active.query.id,
            incarnation=life.incarnation,
            document=_document(active.query),
            state=state,
            version=life.version,
            since=None if active.begin == TS_MIN else active.begin,
            until=None if active.end == TS_MAX else active.end,
            central=cut(active.query.central or ""),
            windows=self._windows.get(active.index, 0),
            group=None if state == pb.ListedQuery.STATE_ENDED else group,
            # All of these are of the engine of lane 0.
            lane=0,
            lag=None if state == pb.ListedQuery.STATE_ENDED else self._lag(),
        )

    # Status

    def _status(self, request: pb.StatusRequest) -> pb.StatusReply:
        engine, spec = self._machine.engine, self._machine.members.spec
        limit = min(request.limit or SOURCES_PAGE, SOURCES_PAGE_LIMIT)
        shown = list(islice(engine.sources.values(), request.after, request.after + limit))
        reached = request.after + len(shown)
        first, upto = request.nodes_after, request.nodes_after + NODES_LIMIT
        nodes = [] if request.after else list(self._nodes(first, upto))
        unmerged = self._unmerged()
        reply = pb.StatusReply(
            topology=self._topology,
            expected=self._machine.expected,
            started=engine.started,
            position=self._machine.position,
            watermark=engine.watermark,
            largest=None if engine.largest == TS_MIN else engine.largest,
            version=engine.version,
            queries=len(engine.active),
            totals=self._totals(),
            degraded=[
                pb.DegradedQuery(
                    query=each.query,
                    reason=cut(each.reason, 4_096),
                    waiting=each.waiting,
                    sources=[_named(name) for name in each.sources],
                )
                for each in self._degraded()
            ],
            sinks=list(self._sinks()),
            sources=[self._source(source) for source in shown],
            next=reached if reached < len(engine.sources) else 0,
            nodes=nodes,
            quarantined=[] if request.after else list(islice(self._quarantined(), NODES_LIMIT)),
            unmerged=None if unmerged is None else unmerged.records,
            merge_stalled=None if unmerged is None else unmerged.stalled,
            merge_obstacle="" if unmerged is None else unmerged.obstacle,
            generation=0 if spec is None else spec.generation,
            digest="" if spec is None else spec.digest,
            next_nodes=upto if nodes and upto < len(self._machine.members.nodes) else 0,
        )
        if not request.after:
            self._add_movement(reply)
        return reply

    def _add_movement(self, reply: pb.StatusReply) -> None:
        """What the clock says: how long nothing has moved, and what windows wait for."""
        at, movement = now(), self._machine.movement
        reply.now = at + self._epoch
        if movement.watermark_moved is None:
            # Nothing was looked at yet.
            return
        reply.still = max(at - movement.watermark_moved, 0)
        if (watermark := self._machine.engine.watermark) is not None:
            reply.behind_clock = reply.now - watermark
        reply.live = movement.live
        if movement.short_since is not None:
            reply.short_for = max(at - movement.short_since, 0)
        if self._machine.rate is not None:
            reply.rate = self._machine.rate
        holds, reply.holding = self._machine.holds(at)
        reply.holds.extend(map(self._hold, holds))

    def _hold(self, hold: Hold) -> pb.Hold:
        return pb.Hold(
            reason=HOLD_REASONS[hold.reason],
            message=cut(hold.message),
            since=hold.since + self._epoch,
            source=_named(hold.source) if hold.source else None,
            child=hold.child,
            node=hold.node,
            ends=None if hold.idle_at is None else hold.idle_at + self._epoch,
            behind=hold.behind,
        )

    def _quarantined(self) -> Iterator[pb.QuarantinedSource]:
        for name, reason in reversed(list(self._machine.quarantined.items())):
            yield pb.QuarantinedSource(name=name, reason=cut(reason))

    def _nodes(self, first: int, upto: int) -> Iterator[pb.NodeStatus]:
        members = self._machine.members
        present = {SourceId.of(s.name).name for s in self._machine.engine.sources.values() if not s.retired}
        reads = Counter(members.assigned(name) for name in present)
        # Those that matter first: the names of others that ever were are many in a tree that is old.
        listed = sorted(
            members.nodes.items(), key=lambda each: not (each[0] in members.planned or each[1].live)
        )
        for name, member in listed[first:upto]:
            yield pb.NodeStatus(
                name=name,
                child=member.child,
                generation=member.generation,
                address=member.address,
                state=pb.NodeStatus.STATE_MEMBER if member.live else pb.NodeStatus.STATE_LEFT,
                sources=reads[name],
                parent=self._machine.senders.get(name, ""),
                planned=name in members.planned,
                planned_parent=members.planned[name].parent if name in members.planned else "",
                capacity=members.planned[name].capacity if name in members.planned else 0.0,
                # Without a plan nobody knows what sources send.
                load=0.0 if members.spec is None else self._machine.load(name),
                heard_ago=self._heard_ago(name),
                rate=self._machine.vitals.rate(name),
            )

    def _heard_ago(self, node: str) -> int:
        at = now()
        return max(at - self._machine.heard(node, at), 0)

    def _totals(self) -> pb.Totals:
        engine = self._machine.engine
        accounts = [engine.account(name) for name in engine.sources]
        return pb.Totals(
            sources=len(accounts),
            idle=sum(source.idle and not source.retired for source in engine.sources.values()),
            retired=sum(source.retired for source in engine.sources.values()),
            accepted=sum(account.accepted - account.heartbeats for account in accounts),
            counted=sum(account.events for account in accounts),
            late=sum(account.late for account in accounts),
            rejected=sum(account.rejected for account in accounts),
            windows=sum(self._windows.values()),
            refused=self._machine.refused,
            quarantined=len(self._machine.quarantined),
            unassigned=sum(map(self._is_unassigned, engine.sources.values())),
        )

    def _is_unassigned(self, source: Source) -> bool:
        if source.idle or source.retired:
            return False
        child = self._machine.members.assigned(SourceId.of(source.name).name)
        return child is None or not self._machine.members.is_live(child)

    def _source(self, source: Source) -> pb.SourceStatus:
        id, account = SourceId.of(source.name), self._machine.engine.account(source.name)
        state = pb.SourceStatus.STATE_IDLE if source.idle else pb.SourceStatus.STATE_LIVE
        return pb.SourceStatus(
            name=id.name,
            incarnation=id.incarnation,
            site=source.site,
            state=pb.SourceStatus.STATE_RETIRED if source.retired else state,
            position=source.position,
            largest=None if source.largest == TS_MIN else source.largest,
            lateness=source.lateness,
            counted=account.events,
            late=account.late,
            rejected=account.rejected,
            child=self._machine.members.assigned(id.name) or "",
        )

    def _sinks(self) -> Iterator[pb.SinkStatus]:
        last, failing = self._deliveries.last, self._deliveries.failing
        for name, cursor in self._deliveries.cursors:
            failure = cut(str(failing.get(name, "")))
            yield pb.SinkStatus(name=name, behind=max(last - cursor, 0), delivered=cursor, failure=failure)

    # Sources

    def _skip(self, request: pb.SkipRequest) -> pb.SkipReply:
        what = "the record cannot be skipped"
        source = self._known(request.source, what)
        # Before the machine logs it: what the log holds, every replay has to be able to apply.
        if source.retired:
            problem = Problem("source", f"{request.source.name!r} is retired", "name one that is read")
            raise Invalid(what, [problem])
        if request.seq <= source.position:
            problem = Problem("seq", f"{request.seq} was read already", f"give one above {source.position}")
            raise Invalid(what, [problem])
        self._machine.skip(source.name, request.seq)
        return pb.SkipReply(
            source=_named(source.name), position=self._machine.position, counted_to=source.position
        )

    def _retire(self, request: pb.RetireRequest) -> pb.RetireReply:
        source = self._known(request.source, "the source cannot be retired")
        if not source.retired or self._machine.finishes(source.name):
            self._machine.retire(source.name)
        return pb.RetireReply(source=_named(source.name), counted_to=source.position)

    def _release(self, request: pb.ReleaseRequest) -> pb.ReleaseReply:
        source = self._known(tree_pb2.Named(name=request.name), "the source cannot be released")
        released = self._machine.release(request.name)
        return pb.ReleaseReply(released=released, source=_named(source.name), counted_to=source.position)

    def _assign(self, request: pb.AssignRequest) -> pb.AssignReply:
        what, members = "the sources cannot be assigned", self._machine.members
        if not 1 <= len(request.assignments) <= ASSIGNMENTS_LIMIT:
            said = f"has {len(request.assignments)} entries"
            raise Invalid(what, [Problem("assignments", said, f"send 1 to {ASSIGNMENTS_LIMIT}")])
        problems = []
        for place, each in enumerate(request.assignments):
            if not 1 <= len(each.source.encode()) <= NAME_LIMIT or not each.source.isprintable():
                said, remedy = f"is {cut(each.source)!r}", f"give a name of 1 to {NAME_LIMIT} bytes"
                problems.append(Problem(f"assignments[{place}].source", said, remedy))
            member = members.nodes.get(each.child)
            if member is None or not member.child or not member.live:
                said = f"{cut(each.child)!r} is no child that takes part"
                field = f"assignments[{place}].child"
                problems.append(Problem(field, said, "see the nodes with headwater status"))
        if problems:
            raise Invalid(what, problems)
        asked = {each.source: each.child for each in request.assignments}
        moved = sum(members.assigned(source) != child for source, child in asked.items())
        self._send(self._machine.assign(asked))
        return pb.AssignReply(moved=moved)

    def _known(self, asked: tree_pb2.Named, what: str) -> Source:
        sources = self._machine.engine.sources
        found = [id for id in map(SourceId.of, sources) if id.name == asked.name]
        if asked.incarnation:
            found = [id for id in found if id.incarnation == asked.incarnation]
        if not found:
            name = asked.name if not asked.incarnation else f"{asked.name}/{asked.incarnation}"
            problem = Problem("source", f"{cut(name)!r} is not known", "see the names with headwater status")
            raise NotThere(what, [problem])
        return sources[str(max(found))]


def first_window(change: Change) -> tuple[int, int] | None:
    """The bounds of the first whole window of a query that was added, where its edge alone says them."""
    periodic = None if is_count(change.query.window) else Active(0, change.query).periodic
    if periodic is None or change.edge == TS_MIN:
        return None
    return change.edge, change.edge + periodic.length


def first_result(change: Change) -> str:
    """What the first result of a query that was added will be."""
    window = change.query.window
    where = "from the first event on" if change.edge == TS_MIN else f"at or behind {change.edge}"
    if bounds := first_window(change):
        return f"the first whole window is [{bounds[0]}, {bounds[1]})"
    if isinstance(window, Session):
        return f"the first session is that of the first event {where}"
    if isinstance(window, Punctuation):
        return f"the first window begins with the first mark {window.start!r} {where}"
    if is_count(window):
        return f"the first window is of the first {window.count} events {where}"
    return "the first window is that of the first event"


def _bounded(request: Any) -> None:
    if request.ByteSize() > REQUEST_BYTES:
        problem = Problem("request", f"has {request.ByteSize()} bytes", f"send at most {REQUEST_BYTES}")
        raise Invalid("the request cannot be taken", [problem])


def _document(query: Query) -> str:
    return json.dumps(query_document(query), separators=(",", ":"))


def _named(source: str) -> tree_pb2.Named:
    id = SourceId.of(source)
    return tree_pb2.Named(name=id.name, incarnation=id.incarnation)
