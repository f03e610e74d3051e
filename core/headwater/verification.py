"""The engine's answers against the oracle's: a query in the oracle's words, and where two answers differ."""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from headwater.durations import microseconds
from headwater.oracle import Custom, Decision, Row, Spec
from headwater.queries import Query
from headwater.results import Result
from headwater.root import Root
from headwater.windows import Punctuation, Session, Tumbling, Window, is_count, length_and_slide

TOLERANCE = 1e-9


def spec_of(
    query: Query,
    begin: int | None = None,
    end: int | None = None,
    emitted_until: int | None = None,
    incarnation: int = 1,
) -> Spec:
    """The query as the oracle takes it; added at `begin`, removed at `end`, if it was."""
    where = query.where
    custom = {each.name: Custom(each.name, each.lift, each.combine, each.lower) for each in query.custom}
    return Spec(
        query.id,
        **_window(query.window),
        aggregates=tuple(custom.get(each.name, each.name) for each in query.aggregates),
        keyed=query.key_by is not None,
        above=where.above,
        at_least=where.at_least,
        below=where.below,
        at_most=where.at_most,
        keys=where.keys,
        local=query.scope == "local",
        deduplicate=query.deduplicate,
        emit_empty=query.emit_empty,
        begin=begin,
        end=end,
        emitted_until=emitted_until,
        incarnation=incarnation,
    )


def row_of(result: Result) -> Row:
    """A window of the engine in the oracle's words."""
    return Row(
        result.query,
        result.site,
        result.key,
        result.start,
        result.end,
        result.count,
        result.values,
        first_time=result.first_time,
        last_time=result.last_time,
    )


def decisions_of(root: Root) -> list[Decision]:
    """What the root has decided about its sources, in the oracle's words."""
    return [
        Decision(
            d.source,
            d.after,
            d.floor,
            d.closes,
            d.ordinals,
            d.key_ordinals,
            d.skip,
            returns=d.kind in ("admit", "resume"),
            unskips=d.kind == "unskip",
        )
        for d in root.decisions
    ]


def _window(window: Window) -> dict[str, Any]:
    if isinstance(window, Session):
        return {"kind": "session", "gap": microseconds(window.gap)}
    if isinstance(window, Punctuation):
        return {
            "kind": "punctuation",
            "start_mark": window.start,
            "end_mark": window.ends_with,
            "merge": window.merge,
        }
    length, slide = length_and_slide(window)
    return {
        "kind": "tumbling" if isinstance(window, Tumbling) else "sliding",
        "measure": "count" if is_count(window) else "time",
        "length": length,
        "slide": slide,
        "offset": microseconds(window.offset),
    }


def differences(expected: Iterable[Row], found: Iterable[Row], tolerance: float = TOLERANCE) -> list[str]:
    """A line for each row that is missing, too many or different; the order of the rows does not matter.

    What floats can round is compared within `tolerance` of its natural scale, everything else exactly;
    the scale is that of the expected rows, so the found ones need none.
    """
    lines: list[str] = []
    candidates: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in found:
        candidates[_identity(row)].append(row)
    for row in expected:
        # A source may have several mark windows with the same bounds: any of them will do, each once.
        same = candidates[_identity(row)]
        if not same:
            lines.append(f"{_name(row)}: missing, expected {row.count} events {row.values}")
            continue
        apart = [_differences(row, candidate, tolerance) for candidate in same]
        best = min(range(len(same)), key=lambda place: len(apart[place]))
        lines += [f"{_name(row)}: {difference}" for difference in apart[best]]
        del same[best]
    for rows in candidates.values():
        lines += [f"{_name(row)}: not expected, found {row.count} events {row.values}" for row in rows]
    return lines


def _identity(row: Row) -> tuple[Any, ...]:
    return row.query, row.site, row.key, row.start, row.end


def _name(row: Row) -> str:
    place = f"{row.query} [{row.start}, {row.end})"
    return (
        place
        + (f" site {row.site!r}" if row.site else "")
        + (f" key {row.key!r}" if row.key is not None else "")
    )


def _differences(expected: Row, found: Row, tolerance: float) -> list[str]:
    lines = []
    if expected.count != found.count:
        lines.append(f"{found.count} events instead of {expected.count}")
    for name, wanted, got in (
        ("first", expected.first_time, found.first_time),
        ("last", expected.last_time, found.last_time),
    ):
        if wanted != got:
            lines.append(f"its {name} event is at {got} instead of {wanted}")
    if expected.values.keys() != found.values.keys():
        lines.append(f"aggregates {sorted(found.values)} instead of {sorted(expected.values)}")
        return lines
    for name, value in expected.values.items():
        if not same(name, value, found.values[name], expected.scale, expected.count, tolerance):
            lines.append(f"{name} is {found.values[name]!r} instead of {value!r}")
    return lines


def same(
    name: str, expected: Any, found: Any, scale: float = 0.0, count: int = 1, tolerance: float = TOLERANCE
) -> bool:
    """Whether two values of one aggregate are the same, as far as floats can tell.

    A sum may be off by a share of the sum of absolute values (`scale`), an average by a share of their
    mean. So may a standard deviation: that mean or the deviation itself, whichever is larger, is the size
    of the values, and an accumulator that loses more than a share of it is not stable. A variance is
    compared by its root. A product and its root err relative to themselves.
    """
    function = name.partition("(")[0]
    if _equal(expected, found):
        return True
    if function not in _SCALE or not isinstance(expected, float) or not isinstance(found, float):
        return False
    wanted, got = float(expected), float(found)  # numpy's own floats would warn of infinity
    if abs(wanted - got) <= sys.float_info.min:
        return True
    if function == "variance":
        if min(wanted, got) < 0:
            return False
        wanted, got = math.sqrt(wanted), math.sqrt(got)
    if not (math.isfinite(wanted) and math.isfinite(got)):
        return False
    size = {"itself": 0.0, "sum": scale, "mean": scale / max(count, 1)}[_SCALE[function]]
    return abs(wanted - got) <= tolerance * max(abs(wanted), size)


# The aggregates that round, and what beside the value itself they may round relative to.
_SCALE: Mapping[str, str] = {
    "sum": "sum",
    "avg": "mean",
    "product": "itself",
    "geomean": "itself",
    "variance": "mean",
    "stddev": "mean",
}


def _equal(expected: Any, found: Any) -> bool:
    """Equal, where NaN equals NaN; also inside of tuples."""
    if isinstance(expected, tuple) and isinstance(found, tuple):
        return len(expected) == len(found) and all(map(_equal, expected, found))
    return bool(expected == found) or bool(expected != expected and found != found)
