"""What machines say to each other as envelopes, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from headwater.aggregates import UserDefined
from headwater.changes import Change
from headwater.errors import Invalid
from headwater.machines import messages as said
from headwater.machines.stalls import WORST, Reason, Stall
from headwater.prefix import Prefix
from headwater.queries import Query
from headwater.rows import TS_MAX
from headwater.sources import EARLIER, NAME_LIMIT, SourceId, source_name_problem
from headwater.topology import queries_of, query_document
from headwater_wire import events, partials
from headwater_wire.errors import Malformed, OtherPrograms
from headwater_wire.numbers import number
from headwater_wire.v1 import tree_pb2 as pb

PROTOCOL = 1
# A source may be so late, in microseconds: the fleet waits for it as long.
LATENESS_LIMIT = 366 * 86_400 * 1_000_000
Functions = Callable[[str], UserDefined | None]
_STALLS = {
    pb.Stall.REASON_SILENT: Reason.SILENT,
    pb.Stall.REASON_HORIZON: Reason.HORIZON,
    pb.Stall.REASON_FUTURE: Reason.FUTURE,
    pb.Stall.REASON_QUARANTINE: Reason.QUARANTINE,
    pb.Stall.REASON_BACKPRESSURE: Reason.BACKPRESSURE,
}
_REASONS = {reason: number for number, reason in _STALLS.items()}


class Codec:
    """Envelopes of one party; `functions` finds users' functions by their names."""

    def __init__(self, functions: Functions = lambda name: None) -> None:
        self._functions = functions

    def encode(self, sender: str, to: str, message: said.Message) -> pb.Envelope:
        field, body = _ENCODERS[type(message)](message)
        return pb.Envelope(sender=sender, to=to, **{field: body})

    def decode(self, envelope: pb.Envelope) -> said.Message:
        for field, name in (("sender", envelope.sender), ("to", envelope.to)):
            if not 0 < len(name.encode()) <= NAME_LIMIT:
                raise Malformed(field, f"is {name!r}", f"send 1 to {NAME_LIMIT} bytes")
        field = envelope.WhichOneof("message")
        if field is None:
            raise Malformed("message", "is of no kind that is known here", "send one of this version")
        body = getattr(envelope, field)
        if field == "registered":
            return self._registered(body)
        if field in ("tell", "resync", "commit"):
            return _DECODERS[field](body, self.changes(body.changes))
        if field not in _DECODERS:
            raise Malformed("message", f"is {field}, which is not for a machine", "send it whole")
        return _DECODERS[field](body)

    def _registered(self, sent: pb.Registered) -> said.Registered:
        queries = self._queries(sent.queries)
        assigned = tuple(map(name_of, sent.assigned))
        changes = self.changes(sent.changes)
        return said.Registered(
            sent.node,
            sent.token,
            number("generation", sent.generation),
            queries,
            changes,
            assigned,
            sent.nonce,
            sent.keys_per_source,
            sent.parent,
            sent.address,
            sent.return_timeout,
        )

    def _queries(self, sent: Iterable[str]) -> tuple[Query, ...]:
        try:
            return queries_of([json.loads(query) for query in sent], self._functions)
        except (ValueError, RecursionError, Invalid) as error:
            remedy = "install what they need here, in the version that the root has, and start this anew"
            raise OtherPrograms("query", f"cannot be computed here ({error})", remedy) from error

    def changes(self, sent: Iterable[pb.Change]) -> tuple[Change, ...]:
        return tuple(map(self.change, sent))

    def change(self, sent: pb.Change) -> Change:
        (query,) = self._queries([sent.query])
        kinds = {pb.Change.KIND_ADD: "add", pb.Change.KIND_REMOVE: "remove"}
        if sent.kind not in kinds:
            raise Malformed("kind", f"is {sent.kind}", "send KIND_ADD or KIND_REMOVE")
        return Change(cast(Any, kinds[sent.kind]), query, sent.edge, sent.version, sent.at_once)


def change_message(change: Change) -> pb.Change:
    kind = pb.Change.KIND_ADD if change.kind == "add" else pb.Change.KIND_REMOVE
    query = _query(change.query)
    return pb.Change(kind=kind, query=query, edge=change.edge, version=change.version, at_once=change.at_once)


def _query(query: Query) -> str:
    return json.dumps(query_document(query), separators=(",", ":"))


def _changes(changes: Sequence[Change]) -> list[pb.Change]:
    return [change_message(change) for change in changes]


# Parts of messages


def _stream(stream: said.Stream) -> pb.StreamId:
    return pb.StreamId(opener=stream.opener, generation=stream.generation, number=stream.number)


def _heard(stream: pb.StreamId) -> said.Stream:
    generation = number("stream.generation", stream.generation)
    return said.Stream(stream.opener, generation, number("stream.number", stream.number))


def named(source: str) -> pb.Named:
    id = SourceId.of(source)
    return pb.Named(name=id.name, incarnation=id.incarnation)


def name_of(sent: pb.Named | pb.Standing | pb.Committed | pb.Welcome) -> str:
    return str(SourceId(sent.name, sent.incarnation))


def _standing(source: str, standing: said.Standing | None) -> pb.Standing:
    id = SourceId.of(source)
    if standing is None:
        return pb.Standing(name=id.name, incarnation=id.incarnation)
    barrier = standing.barrier
    return pb.Standing(
        name=id.name,
        incarnation=id.incarnation,
        prefix=partials.prefix_message(standing.prefix),
        lateness=standing.lateness,
        site=standing.site,
        barrier=None if barrier is None else pb.Barrier(number=barrier.number, opening=barrier.opening),
    )


def _standings(sent: Iterable[pb.Standing]) -> dict[str, said.Standing | None]:
    found: dict[str, said.Standing | None] = {}
    for each in sent:
        if each.lateness > TS_MAX:
            raise Malformed("lateness", f"is {each.lateness}", "send microseconds")
        found[name_of(each)] = (
            said.Standing(partials.prefix(each.prefix), each.lateness, each.site, _barrier(each))
            if each.HasField("prefix")
            else None
        )
    return found


def _barrier(sent: pb.Standing) -> said.Barrier | None:
    if not sent.HasField("barrier"):
        return None
    return said.Barrier(number("barrier.number", sent.barrier.number), sent.barrier.opening)


def _echo(echo: said.Echo) -> pb.Echo:
    return pb.Echo(term=echo.term, name=echo.name, position=echo.position)


def _heard_echo(echo: pb.Echo) -> said.Echo:
    return said.Echo(number("echo.term", echo.term), echo.name, number("echo.position", echo.position))


def _heads(heads: Mapping[str, Prefix], barriers: Mapping[str, said.Barrier]) -> list[pb.Standing]:
    return [
        _standing(name, said.Standing(prefix, 0, "", barriers.get(name))) for name, prefix in heads.items()
    ]


# Messages


def _hello(message: said.Hello) -> tuple[str, Any]:
    return "hello", pb.Hello(
        name=message.name,
        spool=message.spool,
        opening=message.opening,
        opened_at=message.opened_at,
        head=message.head,
        site=message.site,
        lateness=message.lateness,
        echo=message.echo,
        base=message.base,
        via=message.via,
        avoid=message.avoid,
        earlier=[pb.Earlier(opening=opening, upto=upto) for opening, upto in message.earlier],
    )


def _registered(message: said.Registered) -> tuple[str, Any]:
    return "registered", pb.Registered(
        node=message.node,
        token=message.token,
        generation=message.generation,
        queries=map(_query, message.queries),
        changes=_changes(message.changes),
        assigned=map(named, message.assigned),
        nonce=message.nonce,
        keys_per_source=message.keys_per_source,
        return_timeout=message.return_timeout,
        parent=message.parent,
        address=message.address,
    )


def _register(message: said.Register) -> tuple[str, Any]:
    return "register", pb.Register(
        node=message.node,
        token=message.token,
        child=message.child,
        address=message.address,
        generation=message.generation,
        echo=message.echo,
        parent=message.parent,
        items=message.items,
        stalls=map(_stall, message.stalls),
    )


def _stall(stall: Stall) -> pb.Stall:
    return pb.Stall(
        source=named(stall.source),
        reason=_REASONS[stall.reason],
        quiet=max(stall.quiet, 0),
        idle_in=stall.idle_in,
        node=stall.node,
        record=stall.record,
    )


def _heard_stalls(body: pb.Register) -> Iterator[Stall]:
    """Those that can be read: a report is for people, and a later release may know other reasons."""
    for each in body.stalls[:WORST]:
        if each.reason in _STALLS and len(each.node.encode()) <= NAME_LIMIT:
            idle_in = min(each.idle_in, TS_MAX) if each.HasField("idle_in") else None
            reason, quiet = _STALLS[each.reason], min(each.quiet, TS_MAX)
            record = min(each.record, TS_MAX)
            yield Stall(name_of(each.source), reason, quiet, idle_in, each.node, record)


def _welcome(message: said.Welcome) -> tuple[str, Any]:
    id = SourceId.of(message.source)
    return "welcome", pb.Welcome(
        opening=message.opening,
        name=id.name,
        incarnation=id.incarnation,
        offset=message.offset,
        child=message.child,
        address=message.address,
        key_by=message.key_by,
    )


def _heard_welcome(body: pb.Welcome) -> said.Welcome:
    key_by = body.key_by if body.HasField("key_by") else None
    offset = number("offset", body.offset)
    return said.Welcome(body.opening, name_of(body), offset, body.child, body.address, key_by)


def _fenced(message: said.Fenced) -> tuple[str, Any]:
    return "fenced", pb.Fenced(
        name=message.name, opening=message.opening, reason=message.reason, quarantined=message.quarantined
    )


def _columns(message: said.Columns) -> tuple[str, Any]:
    return "columns", pb.Columns(
        stream=_stream(message.stream),
        id=message.id,
        opening=message.opening,
        events=events.encode(message.batch),
    )


def _delivery(message: said.Delivery) -> tuple[str, Any]:
    return "delivery", pb.Delivery(
        stream=_stream(message.stream),
        id=message.id,
        lane=message.lane,
        partial=partials.encode(message.partial),
        echoes=map(_echo, message.echoes),
    )


def _probe(message: said.Probe) -> tuple[str, Any]:
    return "probe", pb.Probe(
        stream=_stream(message.stream),
        id=message.id,
        lane=message.lane,
        heads=_heads(message.heads, message.barriers),
        interest=map(named, message.interest),
        version=message.version,
        echoes=map(_echo, message.echoes),
        brief=message.brief,
    )


def _ask(message: said.Ask) -> tuple[str, Any]:
    sources = map(named, message.sources)
    stream = _stream(message.stream)
    return "ask", pb.Ask(stream=stream, lane=message.lane, sources=sources, version=message.version)


def _tell(message: said.Tell) -> tuple[str, Any]:
    return "tell", pb.Tell(
        stream=_stream(message.stream),
        lane=message.lane,
        standings=[_standing(*item) for item in message.standings.items()],
        changes=_changes(message.changes),
    )


def _resync(message: said.Resync) -> tuple[str, Any]:
    return "resync", pb.Resync(
        stream=_stream(message.stream),
        id=message.id,
        lane=message.lane,
        standings=[_standing(*item) for item in message.standings.items()],
        changes=_changes(message.changes),
    )


def _commit(message: said.Commit) -> tuple[str, Any]:
    committed = []
    for source, position in message.committed.items():
        id = SourceId.of(source)
        committed.append(pb.Committed(name=id.name, incarnation=id.incarnation, position=position))
    return "commit", pb.Commit(
        stream=_stream(message.stream),
        committed=committed,
        watermark=message.watermark,
        changes=_changes(message.changes),
        echo=_echo(message.echo),
        lanes=message.lanes,
        version=message.version,
    )


def _silent(message: said.Silent) -> tuple[str, Any]:
    standing = _standing(message.source, said.Standing(message.prefix, 0, ""))
    return "silent", pb.Silent(child=message.child, generation=message.generation, source=standing)


def _crowded(message: said.Crowded) -> tuple[str, Any]:
    standing = _standing(message.source, said.Standing(message.prefix, 0, ""))
    return "crowded", pb.Crowded(
        child=message.child, generation=message.generation, source=standing, keys=message.keys
    )


_ENCODERS: dict[type, Callable[[Any], tuple[str, Any]]] = {
    said.Hello: _hello,
    said.Register: _register,
    said.Registered: _registered,
    said.Leave: lambda m: ("leave", pb.Leave(node=m.node, generation=m.generation)),
    said.Stale: lambda m: ("stale", pb.Stale(stream=_stream(m.stream))),
    said.Challenge: lambda m: ("challenge", pb.Challenge(name=m.name, opening=m.opening, nonce=m.nonce)),
    said.Welcome: _welcome,
    said.Fenced: _fenced,
    said.Columns: _columns,
    said.Delivery: _delivery,
    said.Probe: _probe,
    said.Ask: _ask,
    said.Tell: _tell,
    said.Ack: lambda m: ("ack", pb.Ack(stream=_stream(m.stream), id=m.id)),
    said.Resync: _resync,
    said.Commit: _commit,
    said.Silent: _silent,
    said.Crowded: _crowded,
}


def _heard_hello(body: pb.Hello) -> said.Hello:
    # A source may have no site. Whoever is let in here stands in every result that bears its name.
    for field, name in (("name", body.name), ("site", body.site)):
        if (name or field == "name") and (wrong := source_name_problem(name)):
            raise Malformed(field, *wrong)
    # The head is that of now: what was trimmed, and what was there at the opening, lies before it.
    head = number("head", body.head)
    places = [("base", body.base), ("opened_at", body.opened_at)]
    for field, place in (*places, *(("earlier.upto", each.upto) for each in body.earlier)):
        if place > head:
            raise Malformed(field, f"is {place}, behind the head {head}", "send what the spool says")
    if body.lateness > LATENESS_LIMIT:
        raise Malformed("lateness", f"is {body.lateness}", f"send at most {LATENESS_LIMIT} microseconds")
    _check_words(body, ("spool", "opening", "echo", "via", "avoid"))
    if len(body.earlier) > EARLIER:
        raise Malformed("earlier", f"has {len(body.earlier)} openings", f"send the last {EARLIER}")
    for each in body.earlier:
        _check_words(each, ("opening",))
    return said.Hello(
        body.name,
        body.spool,
        body.opening,
        body.opened_at,
        body.base,
        body.head,
        body.site,
        body.lateness,
        body.echo,
        body.via,
        body.avoid,
        tuple((each.opening, each.upto) for each in body.earlier),
    )


def _check_words(body: Any, fields: Sequence[str]) -> None:
    for field in fields:
        if len(getattr(body, field).encode()) > NAME_LIMIT:
            raise Malformed(field, "is too long", f"send at most {NAME_LIMIT} bytes")


def _heard_register(body: pb.Register) -> said.Register:
    _check_words(body, ("node", "token", "address", "echo", "parent"))
    generation = number("generation", body.generation)
    return said.Register(
        body.node,
        body.token,
        body.child,
        body.address,
        generation,
        body.echo,
        body.parent,
        min(body.items, TS_MAX),
        tuple(_heard_stalls(body)),
    )


def _heard_probe(body: pb.Probe) -> said.Probe:
    held = {name: head for name, head in _standings(body.heads).items() if head is not None}
    heads = {name: head.prefix for name, head in held.items()}
    barriers = {name: head.barrier for name, head in held.items() if head.barrier is not None}
    interest = tuple(map(name_of, body.interest))
    echoes = tuple(map(_heard_echo, body.echoes))
    version = number("version", body.version)
    return said.Probe(
        _heard(body.stream), body.id, body.lane, heads, interest, version, echoes, barriers, body.brief
    )


def _heard_ask(body: pb.Ask) -> said.Ask:
    version = number("version", body.version)
    return said.Ask(_heard(body.stream), body.lane, tuple(map(name_of, body.sources)), version)


def _heard_commit(body: pb.Commit, changes: tuple[Change, ...]) -> said.Commit:
    committed = {name_of(each): number("position", each.position) for each in body.committed}
    watermark = body.watermark if body.HasField("watermark") else None
    echo, lanes = _heard_echo(body.echo), tuple(body.lanes)
    return said.Commit(_heard(body.stream), committed, watermark, changes, echo, lanes, body.version)


def _stands(source: pb.Standing) -> Prefix:
    if not source.HasField("prefix"):
        raise Malformed("source.prefix", "is missing", "say where the source stands")
    return partials.prefix(source.prefix)


def _heard_silent(body: pb.Silent) -> said.Silent:
    generation = number("generation", body.generation)
    return said.Silent(body.child, generation, name_of(body.source), _stands(body.source))


def _heard_crowded(body: pb.Crowded) -> said.Crowded:
    generation, keys = number("generation", body.generation), number("keys", body.keys)
    return said.Crowded(body.child, generation, name_of(body.source), _stands(body.source), keys)


_DECODERS: dict[str, Callable[..., said.Message]] = {
    "hello": _heard_hello,
    "register": _heard_register,
    "leave": lambda m: said.Leave(m.node, number("generation", m.generation)),
    "stale": lambda m: said.Stale(_heard(m.stream)),
    "challenge": lambda m: said.Challenge(m.name, m.opening, m.nonce),
    "welcome": _heard_welcome,
    "fenced": lambda m: said.Fenced(m.name, m.opening, m.reason, m.quarantined),
    "columns": lambda m: said.Columns(_heard(m.stream), m.id, events.decode(m.events), m.opening),
    "delivery": lambda m: said.Delivery(
        _heard(m.stream), m.id, m.lane, partials.decode(m.partial), tuple(map(_heard_echo, m.echoes))
    ),
    "probe": _heard_probe,
    "ask": _heard_ask,
    "tell": lambda m, changes: said.Tell(_heard(m.stream), m.lane, _standings(m.standings), changes),
    "ack": lambda m: said.Ack(_heard(m.stream), m.id),
    "resync": lambda m, changes: said.Resync(
        _heard(m.stream), m.id, m.lane, _standings(m.standings), changes
    ),
    "commit": _heard_commit,
    "silent": _heard_silent,
    "crowded": _heard_crowded,
}
