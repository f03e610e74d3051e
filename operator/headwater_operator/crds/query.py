"""A query, as it stands in the list of a topology and as an object of its own."""

from __future__ import annotations

from headwater import aggregates
from headwater.aggregates import TOP_LIMIT
from headwater.queries import ID_LIMIT
from headwater.topology.queries import (
    AGGREGATES_LIMIT,
    COLUMN_LIMIT,
    FUNCTION_PREFIX,
    KEYS_LIMIT,
    SCHEMES,
    WINDOW_FIELDS,
)
from headwater.topology.sections import TEXT_LIMIT
from headwater.windows import LENGTH_LIMIT, MERGES, OVERLAP_LIMIT
from headwater_operator.crds import cel
from headwater_operator.crds.fields import (
    Rule,
    Schema,
    choice,
    duration,
    flag,
    listed,
    mapping,
    number,
    text,
    whole,
    with_rules,
)

# Printed characters alone, with spaces in the midst of them at most.
_PRINTED = r"[^\p{C}\p{Z}/]"
_COUNTS = LENGTH_LIMIT - 1
_IN_TIME = "(self.window.type == 'tumbling' || self.window.type == 'sliding') && !has(self.window.count)"
REQUIRED = ("aggregate", "window")


def id_field() -> Schema:
    found = text(
        "The name of the query, by which its results are known.",
        ID_LIMIT,
        f"^{_PRINTED}(({_PRINTED}| )*{_PRINTED})?$",
    )
    return with_rules(found, Rule(f"size(bytes(self)) <= {ID_LIMIT}", f"must be {ID_LIMIT} bytes at most"))


def fields() -> dict[str, Schema]:
    """All but what names it."""
    return {
        "aggregate": _aggregate(),
        "window": _window(),
        "keyBy": text(
            "The column whose values are aggregated apart. An event has one key, so all queries of a "
            "topology name the same.",
            COLUMN_LIMIT,
        ),
        "where": _where(),
        "scope": choice("global: over all sites (default). local: each site by itself.", ("global", "local")),
        "deduplicate": flag("Count events with equal key, time and value once."),
        "emitEmpty": flag(
            "Report windows that hold no event too: tumbling and sliding windows in time, without keyBy and "
            "scope local."
        ),
        "scheme": choice(
            "How windows of a number of events are computed. central: at the root, from forwarded events. "
            "auto: as is best (default).",
            SCHEMES,
        ),
        "allowInexact": flag("Allow schemes for windows of a number of events whose results are not exact."),
    }


def rules() -> list[Rule]:
    counted = "has(self.window.count)"
    return [
        Rule(
            f"!has(self.scheme) || {counted}",
            "only windows of a number of events have one; drop scheme, or give window.count",
            ".scheme",
        ),
        Rule(
            f"!has(self.allowInexact) || {counted}",
            "only windows of a number of events have one; drop allowInexact, or give window.count",
            ".allowInexact",
        ),
        Rule(
            "!has(self.emitEmpty) || !self.emitEmpty || "
            f"({_IN_TIME} && !has(self.keyBy) && (!has(self.scope) || self.scope == 'global'))",
            "needs a tumbling or sliding window in time without key and site; drop emitEmpty, keyBy or scope",
            ".emitEmpty",
        ),
        Rule(
            "self.window.type != 'punctuation' || !has(self.deduplicate) || !self.deduplicate",
            "a punctuation window follows one source, but only one place sees every copy of an event; drop "
            "deduplicate",
            ".deduplicate",
        ),
    ]


def _aggregate() -> Schema:
    """A string or a list of strings: a schema cannot say so, and what is in a list the operator judges."""
    plain = [name for name in aggregates.NAMES if not name.endswith(("(q)", "(k)"))]
    names = "|".join(plain).replace("(", r" *\( *").replace(")", r" *\)").replace("=", " *= *")
    share = r"0*\.[0-9]+|0+\.?|0*1(\.0*)?|[0-9]*\.?[0-9]+[eE]-[0-9]+"
    calls = rf"quantile *\( *({share}) *\)|(top|bottom) *\( *0*([1-9][0-9]{{0,2}}|{TOP_LIMIT}) *\)"
    known = ", ".join(aggregates.NAMES)
    return {
        "description": f"What is computed, one or a list: {known}, or {FUNCTION_PREFIX}NAME for a function "
        "of an installed package.",
        "x-kubernetes-preserve-unknown-fields": True,
        # Of a string:
        "pattern": f"^ *({names}|{calls}|{FUNCTION_PREFIX}.+) *$",
        "maxLength": TEXT_LIMIT,
        # Of a list:
        "minItems": 1,
        "maxItems": AGGREGATES_LIMIT,
        # No boolean, no number and no mapping is one.
        "not": {"enum": [True, False]},
        "minimum": 1,
        "maximum": 0,
        "minProperties": 1,
        "maxProperties": 0,
    }


def _where() -> Schema:
    pairs = [("above", "<", "below"), ("above", "<", "atMost"), ("atLeast", "<", "below")]
    pairs.append(("atLeast", "<=", "atMost"))
    return mapping(
        "Which events count; all that is given must hold.",
        {
            "above": number("Values above this."),
            "atLeast": number("Values of at least this."),
            "below": number("Values below this."),
            "atMost": number("Values of at most this."),
            "keys": listed(
                "Events with one of these keys.",
                {"type": "string", "maxLength": TEXT_LIMIT},
                KEYS_LIMIT,
                least=1,
            ),
        },
        (),
        *(
            Rule(
                f"!has(self.{low}) || !has(self.{high}) || self.{low} {sign} self.{high}",
                "no value can match; widen the bounds",
            )
            for low, sign, high in pairs
        ),
    )


def _window() -> Schema:
    length, slide = cel.microseconds("self.length"), cel.microseconds("self.slide")
    sized = "(self.type == 'tumbling' || self.type == 'sliding')"
    found = [
        Rule(
            f"!has(self.{field}) || " + " || ".join(f"self.type == '{kind}'" for kind in kinds),
            f"drop {field}, or make the type {' or '.join(kinds)}",
            f".{field}",
        )
        for field in dict.fromkeys(field for fields in WINDOW_FIELDS.values() for field in fields)
        if (kinds := [kind for kind, fields in WINDOW_FIELDS.items() if field in fields])
    ]
    found += [
        Rule(
            f"!{sized} || has(self.length) != has(self.count)",
            "give length or count, and not both",
            ".length",
        ),
        Rule(
            "self.type != 'sliding' || !has(self.length) || (has(self.slide) && !has(self.every))",
            "a sliding window in time has a slide, and no every",
            ".slide",
        ),
        Rule(
            "self.type != 'sliding' || !has(self.count) || (has(self.every) && !has(self.slide))",
            "a sliding window of a number of events has every, and no slide",
            ".every",
        ),
        Rule(
            "!has(self.every) || !has(self.count) || self.every <= self.count",
            "events would be lost between windows; make every at most count",
            ".every",
        ),
        Rule(
            f"!has(self.slide) || !has(self.length) || {slide} <= {length}",
            "events would be lost between windows; make slide at most length",
            ".slide",
        ),
        Rule(
            f"!has(self.slide) || !has(self.length) || {length} <= {OVERLAP_LIMIT} * {slide}",
            f"puts every event into more than {OVERLAP_LIMIT:,} windows, each of which is a result; raise it",
            ".slide",
        ),
        Rule(
            f"!has(self.offset) || !has(self.count) || {cel.microseconds('self.offset')} == 0",
            "a window of a number of events has no offset; drop offset",
            ".offset",
        ),
        Rule(
            "self.type != 'session' || has(self.gap)",
            "is missing; give a duration such as 10s",
            ".gap",
            "FieldValueRequired",
        ),
        Rule(
            "self.type != 'punctuation' || has(self.start)",
            "is missing; name the mark that opens a window",
            ".start",
            "FieldValueRequired",
        ),
        Rule(
            "self.type != 'punctuation' || has(self.merge)",
            f"is missing; give one of {', '.join(MERGES)}",
            ".merge",
            "FieldValueRequired",
        ),
        Rule(
            "!has(self.merge) || self.merge != 'overlap' || !has(self.start) || "
            "(has(self.end) && self.end != self.start)",
            "windows that begin where the last one ended all touch, so none would ever be final; give an end "
            "mark, or merge by bounds or order",
            ".merge",
        ),
    ]
    return mapping(
        "Which events belong together. Bounds are half-open: [start, end).",
        {
            "type": choice(
                "tumbling: one after the other. sliding: overlapping. session: events closer together than a "
                "gap. punctuation: between marks of a source.",
                tuple(WINDOW_FIELDS),
            ),
            "length": duration("How long a window is in time, such as 10s.", at_least=1),
            "slide": duration("How far apart sliding windows begin, such as 1s.", at_least=1),
            "offset": duration(
                "How far from the epoch windows in time begin; may be negative.", at_least=0, signed=True
            ),
            "count": whole("How many events a window holds, instead of a length.", 1, _COUNTS),
            "every": whole("How many events apart sliding windows of a count begin.", 1, _COUNTS),
            "gap": duration("Without an event for so long a session is over.", at_least=1),
            "start": text("The mark that opens a window."),
            "end": text("The mark that closes it; without one, the next start mark does."),
            "merge": choice(
                "Which windows of different sources are one. local: none. bounds: those with equal bounds. "
                "order: the i-th of every source. overlap: those that overlap or touch.",
                MERGES,
            ),
            "maxOpen": whole(
                "If more windows of sources than that wait to be final, the query is said to be degraded.",
                1,
                _COUNTS,
            ),
        },
        ("type",),
        *found,
    )
