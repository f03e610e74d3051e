"""Records of the root's log as bytes, and back."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from headwater.machines import records as held
from headwater_wire import partials
from headwater_wire.errors import Malformed
from headwater_wire.messages import Codec, change_message, name_of, named
from headwater_wire.v1 import log_pb2 as pb


def encode(record: held.Record) -> bytes:
    message, body = pb.LogRecord(watermark=record.watermark, version=record.version), record.body
    if isinstance(body, held.Merged):
        message.merged.CopyFrom(partials.encode(body.partial))
        message.lane = body.lane
    elif isinstance(body, held.Admitted):
        message.admitted.source.CopyFrom(named(body.source))
        message.admitted.site, message.admitted.lateness = body.site, body.lateness
        message.admitted.spool, message.admitted.opening = body.spool, body.opening
        message.admitted.offset = body.offset
        message.admitted.earlier.extend(body.earlier)
    elif isinstance(body, held.Opened):
        message.opened.source.CopyFrom(named(body.source))
        message.opened.opening = body.opening
        message.opened.earlier.extend(body.earlier)
        if body.upto is not None:
            message.opened.upto = body.upto
    elif isinstance(body, held.Idled):
        message.idled.CopyFrom(named(body.source))
    elif isinstance(body, held.Resumed):
        message.resumed.CopyFrom(named(body.source))
    elif isinstance(body, held.Retired):
        message.retired.CopyFrom(named(body.source))
    elif isinstance(body, held.Quarantined):
        message.quarantined.source.CopyFrom(named(body.source))
        message.quarantined.reason = body.reason
    elif isinstance(body, held.Released):
        message.released = body.name
    elif isinstance(body, held.Skipped):
        message.skipped.source.CopyFrom(named(body.source))
        message.skipped.seq = body.seq
    elif isinstance(body, held.Started):
        message.started.SetInParent()
    elif isinstance(body, held.Began):
        message.began.term, message.began.name = body.term, body.name
        message.began.expected = body.expected
    elif isinstance(body, held.Joined):
        message.joined.node, message.joined.token = body.node, body.token
        message.joined.generation, message.joined.child = body.generation, body.child
        message.joined.address = body.address
    elif isinstance(body, held.Left):
        message.left = body.node
    elif isinstance(body, held.Specified):
        _specify(message.specified, body)
    elif isinstance(body, held.Assigned):
        message.assigned.source, message.assigned.child = body.source, body.child
    else:
        message.changed.CopyFrom(change_message(body.change))
    return message.SerializeToString()


def _specify(message: pb.Specified, body: held.Specified) -> None:
    message.generation, message.digest, message.expected = body.generation, body.digest, body.expected
    message.owner = body.owner
    for node in body.nodes:
        message.nodes.add(node=node.node, parent=node.parent, capacity=node.capacity)
    for rate in body.rates:
        message.rates.add(site=rate.site, lateness=rate.lateness, rate=rate.rate)


def _specified(message: pb.Specified) -> held.Specified:
    return held.Specified(
        message.generation,
        message.digest,
        tuple(held.Planned(each.node, each.parent, each.capacity) for each in message.nodes),
        tuple(held.Rate(each.site, each.lateness, each.rate) for each in message.rates),
        message.expected,
        message.owner,
    )


def decode(data: bytes, codec: Codec) -> held.Record:
    message = pb.LogRecord()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise Malformed(
            "record", f"cannot be read ({error})", "use the program that wrote the log"
        ) from error
    watermark = message.watermark if message.HasField("watermark") else None
    return held.Record(_body(message, codec), watermark, message.version)


def _body(message: pb.LogRecord, codec: Codec) -> held.Body:
    kind = message.WhichOneof("body")
    if kind == "merged":
        return held.Merged(partials.decode(message.merged), message.lane)
    if kind == "admitted":
        given = message.admitted
        return held.Admitted(
            name_of(given.source),
            given.site,
            given.lateness,
            given.spool,
            given.opening,
            given.offset,
            tuple(given.earlier),
        )
    if kind == "opened":
        upto = message.opened.upto if message.opened.HasField("upto") else None
        opened = message.opened
        return held.Opened(name_of(opened.source), opened.opening, upto, tuple(opened.earlier))
    if kind == "idled":
        return held.Idled(name_of(message.idled))
    if kind == "resumed":
        return held.Resumed(name_of(message.resumed))
    if kind == "retired":
        return held.Retired(name_of(message.retired))
    if kind == "quarantined":
        return held.Quarantined(name_of(message.quarantined.source), message.quarantined.reason)
    if kind == "released":
        return held.Released(message.released)
    if kind == "skipped":
        return held.Skipped(name_of(message.skipped.source), message.skipped.seq)
    if kind == "started":
        return held.Started()
    if kind == "changed":
        return held.Changed(codec.change(message.changed))
    if kind == "began":
        return held.Began(message.began.term, message.began.name, message.began.expected)
    if kind == "joined":
        node = message.joined
        return held.Joined(node.node, node.token, node.generation, node.child, node.address)
    if kind == "left":
        return held.Left(message.left)
    if kind == "assigned":
        return held.Assigned(message.assigned.source, message.assigned.child)
    if kind == "specified":
        return _specified(message.specified)
    raise Malformed("record", "is of no kind that is known here", "use the program that wrote the log")
