"""The audit: windows recomputed from archived raw events, compared with what was emitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from headwater.durations import microseconds
from headwater.queries import Query
from headwater.windows import Punctuation, Session, is_count
from headwater_spark import archived, emitted, recomputed
from headwater_spark.archived import Extent, Gap

# Floats may differ in their last digits: relative to what was added up.
# What is one of the values, or counts them, is not rounded.
EXACT = frozenset({"min", "max", "count", "first", "last", "distinct", "mode"})
TOLERANCE = 1e-9
# So many differences of a query are listed; all are counted.
LISTED = 100
# What is compared beside the functions.
_FIELDS = ("opened", "end", "count")
# And of count windows: the times of the first and the last event, where the result says them.
_TIMES = {"low": "first_time", "high": "last_time"}
# What a window without events has; other functions have nothing.
_EMPTY = {"count": 0.0, "sum": 0.0, "product": 1.0}


@dataclass(frozen=True, slots=True)
class Difference:
    """One window that is not as it should be: missing, extra, repeated or different."""

    kind: str
    site: str
    key: str | None
    # A rank, if the window is one of so many events; an ordinal, if it is between marks.
    start: int
    end: int
    # Functions that differ, with what was emitted and what was computed.
    values: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)


@dataclass(slots=True)
class Audited:
    """One query."""

    query: str
    # Why it was not looked at, if so.
    reason: str | None = None
    # Windows that are as they should be, and those of which nothing can be said.
    equal: int = 0
    unjudged: int = 0
    differing: int = 0
    differences: list[Difference] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Report:
    extent: Extent
    # Up to where the root has come, as far as results show.
    watermark: int | None
    queries: tuple[Audited, ...]

    @property
    def differing(self) -> int:
        return sum(audited.differing for audited in self.queries)

    @property
    def complete(self) -> bool:
        """Whether every query was looked at, and at least one window judged."""
        looked = all(audited.reason is None for audited in self.queries)
        return looked and any(audited.equal or audited.differing for audited in self.queries)


@dataclass(frozen=True, slots=True)
class Span:
    """Windows that begin at or after `begin` and end at or before `end`; None is without bound."""

    begin: int | None = None
    end: int | None = None


EVERYTHING = Span()


def audit(
    spark: SparkSession,
    queries: Sequence[Query],
    archive: Path,
    results: Path,
    span: Span = EVERYTHING,
    told: Callable[[str], None] = lambda said: None,
) -> Report:
    """Compare every query; `told` hears what is under way."""
    told("reading the archive")
    # Read once, and not planned anew for every query.
    events = archived.judged(archived.read(spark, archive)).localCheckpoint()
    rows = emitted.read(spark, results).localCheckpoint()
    extent = archived.extent(events, archive)
    watermark = _watermark(rows, queries)
    found = []
    for query in queries:
        told(f"query {query.id}")
        reason = recomputed.not_audited(query)
        if reason is not None:
            found.append(Audited(query.id, reason))
        else:
            found.append(_compared(query, events, rows, extent, watermark, span))
    return Report(extent, watermark, tuple(found))


def _watermark(rows: DataFrame, queries: Sequence[Query]) -> int | None:
    """The watermark was at least where the last window in time ended."""
    timed = [query.id for query in queries if not (is_count(query.window) or _by_marks(query))]
    found = rows.where(f.col("query").isin(timed)).agg(f.max("end")).collect()[0][0]
    return None if found is None else int(found)


def _by_marks(query: Query) -> bool:
    return isinstance(query.window, Punctuation)


def _compared(
    query: Query, events: DataFrame, rows: DataFrame, extent: Extent, watermark: int | None, span: Span
) -> Audited:
    names = [spec.name for spec in query.aggregates]
    windows = recomputed.windows(query, events)
    place = f.col("ordinal") if _by_marks(query) else f.col("start")
    # A query that was removed and added again is another one, which sees other events.
    mine = rows.where((f.col("query") == query.id) & (f.col("incarnation") <= 1)).select(
        "site",
        "key",
        place.alias("start"),
        f.col("start").alias("e_opened"),
        f.col("end").alias("e_end"),
        f.col("count").alias("e_count"),
        *(f.col(time).alias(f"e_{name}") for name, time in _TIMES.items()),
        *(f.col("values")[name].alias(f"e{n}") for n, name in enumerate(names)),
    )
    mine = mine.groupBy("site", "key", "start").agg(
        f.count(f.lit(1)).alias("times"),
        *(f.first(name).alias(name) for name in mine.columns if name.startswith("e")),
    )
    keys = [windows[name].eqNullSafe(mine[name]) for name in recomputed.BY]
    both = windows.alias("w").join(mine.alias("m"), keys, "full_outer")
    both = both.select(
        *(f.coalesce(f.col(f"w.{name}"), f.col(f"m.{name}")).alias(name) for name in recomputed.BY),
        *(f.col(name) for name in windows.columns if name not in recomputed.BY),
        *(f.col(name) for name in mine.columns if name not in recomputed.BY),
    )
    # Which of the fields are two.
    checks = {bound: f.col(bound) != f.col(f"e_{bound}") for bound in _FIELDS}
    if is_count(query.window):
        checks |= {name: f.coalesce(f.col(name) != f.col(f"e_{name}"), f.lit(False)) for name in _TIMES}
    checks |= {f"f{n}": _differs(n, name) for n, name in enumerate(names)}
    both = both.withColumns({f"d_{compared}": check for compared, check in checks.items()})
    other = reduce(or_, (f.col(f"d_{compared}") for compared in checks))
    empty = f.col("e_count") == 0 if query.emit_empty else f.lit(False)
    kind = (
        f.when(f.col("times") > 1, "repeated")
        .when(f.col("times").isNull() & _due(query, watermark), "missing")
        .when(f.col("times").isNull(), "unjudged")
        .when(f.col("count").isNull() & empty, f.when(_differs_empty(names), "different").otherwise("equal"))
        .when(f.col("count").isNull(), "extra")
        .when(other, "different")
        .otherwise("equal")
    )
    judged = _judged(query, extent, span)
    both = both.withColumn("kind", f.when(judged, kind).otherwise("unjudged"))
    counts = {row["kind"]: row["count"] for row in both.groupBy("kind").count().collect()}
    equal, unjudged = counts.pop("equal", 0), counts.pop("unjudged", 0)
    found = Audited(query.id, None, equal, unjudged, sum(counts.values()))
    if found.differing:
        # Computed again: most of the time there is nothing to list, and all of it would have to be kept.
        listed = both.where("kind NOT IN ('equal', 'unjudged')")
        first = listed.orderBy(f.coalesce("e_end", "end"), "site", "key", "start").limit(LISTED)
        found.differences = [_difference(row, names) for row in first.collect()]
    return found


def _differs(n: int, name: str) -> Column:
    """Whether a function's values are two."""
    if recomputed.is_list(name):
        computed, said = f.col(f"f{n}"), f.from_json(f"e{n}", "array<double>")
        return ~computed.eqNullSafe(said)
    computed, said = f.col(f"f{n}"), f.col(f"e{n}").cast("double")
    if name in EXACT:
        return ~computed.eqNullSafe(said)
    scale = f.greatest(f.abs(computed), f.abs(said))
    if name == "sum":
        scale = f.greatest(scale, "size")
    elif name == "avg":
        scale = f.greatest(scale, f.col("size") / f.col("count"))
    elif name.startswith(("variance", "stddev")):
        # What is taken from the mean carries the mean's own rounding.
        mean = f.col("size") / f.col("count") * f.lit(1e-6)
        scale = scale + (mean * mean if name.startswith("variance") else mean)
    near = f.abs(computed - said) <= scale * f.lit(TOLERANCE)
    # Equal for SQL are also two NaN, two infinities, and nothing with nothing.
    return ~(computed.eqNullSafe(said) | f.coalesce(near & ~f.isnan(computed) & ~f.isnan(said), f.lit(False)))


def _differs_empty(names: Sequence[str]) -> Column:
    """Whether a window without events has values that it cannot have."""
    other = f.lit(False)
    for n, name in enumerate(names):
        other |= ~f.col(f"e{n}").cast("double").eqNullSafe(f.lit(_EMPTY.get(name)).cast("double"))
    return other


def _due(query: Query, watermark: int | None) -> Column:
    """Whether a window must have been emitted by now."""
    if watermark is None:
        return f.lit(False)
    if is_count(query.window):
        return f.col("high") < watermark
    return f.col("end") < watermark if _by_marks(query) else f.col("end") <= watermark


def _judged(query: Query, extent: Extent, span: Span) -> Column:
    """Whether all that a window depends on is in the archive, and it was asked for."""
    window = query.window
    reach = microseconds(window.gap) if isinstance(window, Session) else 0
    by_rank = is_count(window)
    begin = f.coalesce("low", f.lit(0)) if by_rank else f.coalesce("opened", "e_opened")
    end = f.coalesce(f.col("high") + 1, f.lit(0)) if by_rank else f.coalesce("end", "e_end")
    fits = f.lit(True)
    if span.begin is not None:
        fits &= begin >= span.begin
    if span.end is not None:
        fits &= end <= span.end
    for gap in extent.gaps:
        # What is missing moves all ranks and ordinals behind it, and joins sessions beside it.
        behind = by_rank or _by_marks(query)
        fits &= ~_touches(begin, end, Gap(gap.low, None) if behind else gap, reach)
    if extent.until is not None:
        fits &= end + reach <= extent.until
        if by_rank:
            fits &= f.col("high").isNotNull()
    elif by_rank and extent.gaps:
        fits &= f.col("high").isNotNull()
    return fits


def _touches(begin: Column, end: Column, gap: Gap, reach: int) -> Column:
    touches = f.lit(True)
    if gap.low is not None:
        touches &= end + reach > gap.low
    if gap.high is not None:
        touches &= begin - reach <= gap.high
    return touches


def _difference(row: Row, names: Sequence[str]) -> Difference:
    values: dict[str, tuple[str | None, str | None]] = {}
    if row["kind"] == "different":
        fields = [(bound, f"e_{bound}", bound) for bound in _FIELDS]
        fields += [(time, f"e_{name}", name) for name, time in _TIMES.items() if f"d_{name}" in row]
        fields += [(name, f"e{n}", f"f{n}") for n, name in enumerate(names)]
        # Of a window without events nothing was computed.
        values = {
            name: (_text(row[said]), _text(row[computed]))
            for name, said, computed in fields
            if row[f"d_{computed}"] is not False
        }
    end = row["end"] if row["e_end"] is None else row["e_end"]
    return Difference(row["kind"], row["site"], row["key"], row["start"], end, values)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
