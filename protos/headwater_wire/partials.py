"""Partials as messages, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from headwater.groups.gathered import SelectionPart
from headwater.groups.marked import MarkedPart
from headwater.groups.sliced import SlicedPart
from headwater.merging.marks import MarkCells
from headwater.merging.sessions import Fragments
from headwater.partials import Partial, Span
from headwater.prefix import NO_SKIPS, KeyedMarks, MarkState, Prefix, Refused
from headwater.queries import EVERYTHING, Where
from headwater.rows import TS_MAX, TS_MIN, Ints, Rows
from headwater.sources import SourceId
from headwater.windows import TS_LIMIT
from headwater_wire import states
from headwater_wire.arrays import coded, narrow, packed, viewed
from headwater_wire.errors import Malformed
from headwater_wire.numbers import number
from headwater_wire.v1 import partials_pb2 as pb

Place = tuple[str, str | None]
# Above every source code that a node gives out; a table of codes is made before they are looked at.
CODE_LIMIT = 1 << 22
# As many sites a group that tells no keys apart has at most.
PLACES_WITHOUT_KEYS = 1 << 16
# Of so many sources the names are not made anew with every batch.
SOURCES = 1 << 16


def encode(partial: Partial) -> pb.Partial:
    message = pb.Partial(
        version=partial.version,
        signature=partial.signature,
        largest=partial.largest if partial.largest > TS_MIN else None,
    )
    for code, text in partial.sources.items():
        source = _id(text)
        message.sources.add(code=code, name=source.name, incarnation=source.incarnation)
    _vector(partial, message)
    for group, part in partial.parts.items():
        if isinstance(part, SlicedPart):
            message.parts.append(pb.Part(group=group, sliced=_sliced(part)))
        else:
            message.parts.append(pb.Part(group=group, marked=_marked(part)))
    # A dictionary of the keys that are in it, not of all that ever were.
    held = [rows.codes for rows in partial.events if rows.codes is not None]
    used = np.unique(np.concatenate(held)) if held else np.empty(0, np.int64)
    message.keys.extend(partial.keys[code] for code in used.tolist())
    message.events.extend(_forwarded(rows, used) for rows in partial.events)
    return message


def decode(message: pb.Partial) -> Partial:
    partial = decode_sliced(message)
    partial.keys = list(message.keys)
    for span in message.vector:
        low, high = prefix(span.low), prefix(span.high)
        if low.position > high.position:
            behind = f"ends at {high.position}, before it begins at {low.position}"
            raise Malformed("vector", behind, "send records behind low, up to high")
        refused, sample = span.refused, span.sample
        partial.vector[_name(partial, span.source)] = Span(
            low,
            high,
            dict(refused) if refused else {},
            tuple(Refused(each.seq, each.ts, each.reason) for each in sample) if sample else (),
            span.heartbeats,
        )
    for part in message.parts:
        if part.WhichOneof("part") != "sliced":
            partial.parts[part.group] = _marked_part(part.marked, partial)
    partial.events = [_rows(forwarded, partial) for forwarded in message.events]
    return partial


def decode_sliced(message: pb.Partial) -> Partial:
    """What a partial holds of windows that are cut by time, and nothing else of it."""
    partial = Partial(
        version=number("version", message.version),
        signature=message.signature,
        largest=message.largest if message.HasField("largest") else TS_MIN,
    )
    for source in message.sources:
        if source.code >= CODE_LIMIT:
            raise Malformed("sources.code", f"is {source.code}", f"send codes below {CODE_LIMIT}")
        partial.sources[source.code] = _text(source.name, source.incarnation)
    for part in message.parts:
        if part.WhichOneof("part") == "sliced":
            partial.parts[part.group] = _sliced_part(part.sliced)
    return partial


@lru_cache(maxsize=SOURCES)
def _text(name: str, incarnation: int) -> str:
    return str(SourceId(name, incarnation))


@lru_cache(maxsize=SOURCES)
def _id(text: str) -> SourceId:
    return SourceId.of(text)


def _name(partial: Partial, code: int) -> str:
    if code not in partial.sources:
        raise Malformed("source", f"is {code}, which no source has", "name each source of the batch")
    return partial.sources[code]


# Prefixes


def _vector(partial: Partial, message: pb.Partial) -> None:
    code_of = {name: code for code, name in partial.sources.items()}
    for name, span in partial.vector.items():
        held = message.vector.add(source=code_of[name], heartbeats=span.heartbeats)
        _write(span.low, held.low)
        _write(span.high, held.high)
        if span.refused:
            held.refused.update(span.refused)
        for each in span.sample:
            held.sample.add(seq=each.seq, ts=each.ts, reason=each.reason)


def prefix_message(given: Prefix) -> pb.Prefix:
    message = pb.Prefix()
    _write(given, message)
    return message


def _write(given: Prefix, message: pb.Prefix) -> None:
    # Also where nothing of it is set, it is there.
    message.position = given.position
    if given.largest > TS_MIN:
        message.largest = given.largest
    if given.opening:
        message.opening = given.opening
    if given.skips:
        message.skips.extend(sorted(given.skips))
    for query, marks in given.marks.items():
        for key, state in marks.items():
            message.marks.append(
                pb.MarkState(
                    query=query, key=key, ordinal=state.ordinal, opened=state.opened, since=state.since
                )
            )


def prefix(message: pb.Prefix) -> Prefix:
    marks, skips = message.marks, message.skips
    return Prefix(
        number("position", message.position),
        message.largest if message.HasField("largest") else TS_MIN,
        _marks(marks) if marks else {},
        frozenset(number("skips", seq) for seq in skips) if skips else NO_SKIPS,
        message.opening,
    )


def _marks(messages: Iterable[pb.MarkState]) -> dict[str, KeyedMarks]:
    marks: dict[str, dict[str | None, MarkState]] = {}
    for mark in messages:
        state = MarkState(mark.ordinal, mark.opened if mark.HasField("opened") else None, mark.since)
        marks.setdefault(mark.query, {})[mark.key if mark.HasField("key") else None] = state
    return dict(marks)


# Groups


def _where(given: Where) -> pb.Where:
    keys = None if given.keys is None else pb.Names(name=sorted(given.keys))
    return pb.Where(
        above=given.above, at_least=given.at_least, below=given.below, at_most=given.at_most, keys=keys
    )


def _selection(message: pb.Where) -> Where:
    bounds = {
        field: getattr(message, field) if message.HasField(field) else None
        for field in ("above", "at_least", "below", "at_most")
    }
    keys = frozenset(message.keys.name) if message.HasField("keys") else None
    found = Where(**bounds, keys=keys)
    return EVERYTHING if found == EVERYTHING else found


def _places(names: Sequence[Place]) -> pb.Places:
    message = pb.Places(count=len(names))
    sites = {site: code for code, site in enumerate(dict.fromkeys(site for site, _ in names))}
    message.sites.extend(sites)
    if len(sites) > 1:
        message.site = narrow(np.array([sites[site] for site, _ in names]), len(sites))
    # Either all have a key or none has.
    if names and names[0][1] is not None:
        message.keys.extend(key or "" for _, key in names)
    return message


def _names(message: pb.Places) -> list[Place]:
    count, sites = message.count, list(message.sites)
    keys: Sequence[str | None] = list(message.keys) or [None] * min(count, PLACES_WITHOUT_KEYS)
    if len(keys) != count:
        raise Malformed("places.keys", f"has {len(keys)} entries", f"send one for each of {count} places")
    if len(sites) <= 1:
        return [(sites[0] if sites else "", key) for key in keys]
    codes = coded(message.site, len(sites), "places.site", count).tolist()
    return [(sites[code], key) for code, key in zip(codes, keys, strict=True)]


def _sliced(part: SlicedPart) -> pb.Sliced:
    message = pb.Sliced(places=_places(part.names), operators=part.operators)
    for where, gathered in part.selections.items():
        fragments = gathered.fragments
        message.selections.append(
            pb.Selection(
                where=_where(where),
                start_int64=packed(gathered.start, "<i8"),
                code_int64=packed(gathered.code, "<i8"),
                states=states.encode(gathered.states),
                fragments=None
                if fragments is None
                else pb.Fragments(
                    code_int64=packed(fragments.code, "<i8"),
                    first_int64=packed(fragments.first, "<i8"),
                    last_int64=packed(fragments.last, "<i8"),
                    states=states.encode(fragments.states),
                ),
            )
        )
    return message


def _sliced_part(message: pb.Sliced) -> SlicedPart:
    names = _names(message.places)
    selections: dict[Where, SelectionPart] = {}
    for each in message.selections:
        start = viewed(each.start_int64, "<i8", "start_int64")
        fragments = None
        if each.HasField("fragments"):
            first = viewed(each.fragments.first_int64, "<i8", "first_int64")
            fragments = Fragments(
                _codes(each.fragments.code_int64, len(first), len(names)),
                first,
                viewed(each.fragments.last_int64, "<i8", "last_int64", len(first)),
                states.decode(each.fragments.states, len(first)),
            )
        selections[_selection(each.where)] = SelectionPart(
            start,
            _codes(each.code_int64, len(start), len(names)),
            states.decode(each.states, len(start)),
            fragments,
        )
    return SlicedPart(names, tuple(message.operators), selections)


def _codes(data: bytes, size: int, names: int) -> Ints:
    codes: Ints = viewed(data, "<i8", "code_int64", size)
    if size and not (int(codes.min()) >= 0 and int(codes.max()) < names):
        raise Malformed("code_int64", "has codes of no place", f"send codes from 0 to below {names}")
    return codes


def _marked(part: MarkedPart) -> pb.Marked:
    cells = part.cells
    return pb.Marked(
        places=_places(part.names),
        source_int64=packed(cells.source, "<i8"),
        code_int64=packed(cells.code, "<i8"),
        ordinal_int64=packed(cells.ordinal, "<i8"),
        states=states.encode(cells.states),
        ended=[
            pb.Ended(source=source, key=key, ordinal=ordinal, start=start, end=end)
            for (source, key, ordinal), (start, end) in cells.ended.items()
        ],
    )


def _marked_part(message: pb.Marked, partial: Partial) -> MarkedPart:
    names = _names(message.places)
    source = viewed(message.source_int64, "<i8", "source_int64")
    for code in np.unique(source).tolist():
        _name(partial, code)
    size = len(source)
    ended = {}
    for each in message.ended:
        _name(partial, each.source)
        key = each.key if each.HasField("key") else None
        ended[each.source, key, each.ordinal] = (each.start, each.end)
    cells = MarkCells(
        source,
        _codes(message.code_int64, size, len(names)),
        viewed(message.ordinal_int64, "<i8", "ordinal_int64", size),
        states.decode(message.states, size),
        ended,
    )
    return MarkedPart(names, cells)


# Forwarded events


def _forwarded(rows: Rows, used: Ints) -> pb.Forwarded:
    assert isinstance(rows.source, int)
    message = pb.Forwarded(
        source=rows.source,
        value_float64=packed(rows.value, "<f8"),
        key=b"" if rows.codes is None else narrow(used.searchsorted(rows.codes), len(used)),
        in_order=rows.in_order,
    )
    if len(rows.ts) and int(rows.ts.max()) - int(rows.ts.min()) <= np.iinfo(np.int32).max:
        message.ts_first = int(rows.ts[0])
        message.ts_int32 = packed(rows.ts - rows.ts[0], "<i4")
    else:
        message.ts_int64 = packed(rows.ts, "<i8")
    if isinstance(rows.seq, int):
        message.seq_first = rows.seq
    else:
        message.seq_int64 = packed(rows.seq, "<i8")
    return message


def _rows(message: pb.Forwarded, partial: Partial) -> Rows:
    _name(partial, message.source)
    if message.HasField("ts_first"):
        if not -TS_LIMIT <= message.ts_first <= TS_LIMIT:
            raise Malformed("ts_first", f"is {message.ts_first}", "send times of events that count")
        ts = viewed(message.ts_int32, "<i4", "ts_int32") + np.int64(message.ts_first)
    else:
        ts = viewed(message.ts_int64, "<i8", "ts_int64")
    if len(ts) and not (int(ts.min()) >= -TS_LIMIT and int(ts.max()) <= TS_LIMIT):
        raise Malformed("ts_int64", "has times beyond the bounds", "send times of events that count")
    codes = None
    if message.key:
        codes = coded(message.key, len(partial.keys), "key", len(ts))
    seq: Ints | int
    if message.HasField("seq_first"):
        seq = message.seq_first
        if seq + len(ts) > TS_MAX:
            raise Malformed("seq_first", f"is {seq}", "records are numbered from 1")
    else:
        seq = viewed(message.seq_int64, "<i8", "seq_int64", len(ts))
    return Rows(
        ts,
        viewed(message.value_float64, "<f8", "value_float64", len(ts)),
        seq,
        message.source,
        message.in_order,
        None,
        codes,
    )
