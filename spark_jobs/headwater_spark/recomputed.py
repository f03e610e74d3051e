"""Windows computed anew with Spark SQL, from the definitions alone: nothing of the engine is used.

A row is a window: site, key, start (the ordinal, if it is between marks), `opened` and `end`, `count`, `low`
and `high` (the times of its first and last event), `size` (the sum of
absolute values: what rounding is measured by), and a column for each function.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from headwater.durations import microseconds
from headwater.queries import Query, Where
from headwater.windows import Punctuation, Session, Sliding, Tumbling, is_count, length_and_slide
from headwater_spark.archived import ORDER, WHO

BY = ("site", "key", "start")


def not_audited(query: Query) -> str | None:
    """Why a query cannot be computed here; None if it can."""
    if query.custom:
        return f"it has a function of its own ({query.custom[0].name})"
    if isinstance(query.window, Punctuation):
        if query.window.merge != "local":
            return f"punctuation windows merged by {query.window.merge} depend on decisions of the root"
        if query.key_by is not None:
            return "marks with keys are not followed"
    return None


def windows(query: Query, judged: DataFrame) -> DataFrame:
    """The windows of a query that can be computed."""
    kept = judged.where("NOT rejected AND NOT late")
    window = query.window
    if isinstance(window, Punctuation):
        placed = _marked(window, kept)
        placed = placed.where("NOT bare").where(_selects(query.where))
    else:
        site = f.col("site") if query.scope == "local" else f.lit("")
        events = kept.where("NOT bare").where(_selects(query.where)).withColumn("site", site)
        if query.deduplicate:
            copies = Window.partitionBy("site", "key", "ts", "value").orderBy(*ORDER)
            events = events.withColumn("copy", f.row_number().over(copies)).where("copy = 1")
        if query.key_by is None:
            events = events.withColumn("key", f.lit(None).cast("string"))
        placed = _sessions(window, events) if isinstance(window, Session) else _slid(window, events)
    opened = "opened" if isinstance(window, Punctuation) else "start"
    found = placed.groupBy(*BY).agg(
        f.max(opened).alias("opened"),
        f.max("end").alias("end"),
        f.count(f.lit(1)).alias("count"),
        f.min("ts").alias("low"),
        f.max("ts").alias("high"),
        f.sum(f.abs("value")).alias("size"),
        *(_function(spec.name).alias(f"f{n}") for n, spec in enumerate(query.aggregates)),
    )
    if is_count(window) and not isinstance(window, Session | Punctuation):
        length, _ = length_and_slide(window)
        found = found.where(f.col("count") == length)
    return found


def _selects(where: Where) -> Column:
    chosen = f.lit(True)
    if where.above is not None:
        chosen &= f.col("value") > float(where.above)
    if where.at_least is not None:
        chosen &= f.col("value") >= float(where.at_least)
    if where.below is not None:
        chosen &= f.col("value") < float(where.below)
    if where.at_most is not None:
        chosen &= f.col("value") <= float(where.at_most)
    if where.keys is not None:
        chosen &= f.col("key").isin(sorted(where.keys))
    return chosen


def _slid(window: Tumbling | Sliding, events: DataFrame) -> DataFrame:
    """Windows of one length: every event in each that it belongs to."""
    length, slide = length_and_slide(window)
    if is_count(window):
        order = Window.partitionBy("site", "key").orderBy(*ORDER)
        events, offset = events.withColumn("place", (f.row_number().over(order) - 1).cast("long")), 0
    else:
        events, offset = events.withColumn("place", f.col("ts")), microseconds(window.offset)
    # How far it is from the start of the last window that has it, and how many windows before have it too.
    events = events.withColumn("into", f.expr(f"pmod(place - {offset}L, {slide}L)"))
    events = events.withColumn(
        "back", f.explode(f.expr(f"sequence(0L, ({length}L - 1 - into) div {slide}L)"))
    )
    events = events.withColumn("start", f.expr(f"place - into - back * {slide}L"))
    if is_count(window):
        events = events.where("start >= 0")
    return events.withColumn("end", f.expr(f"start + {length}L"))


def _sessions(window: Session, events: DataFrame) -> DataFrame:
    """Gaps and islands."""
    gap = microseconds(window.gap)
    order = Window.partitionBy("site", "key").orderBy(*ORDER)
    begins = f.expr(f"CASE WHEN ts - before < {gap}L THEN 0 ELSE 1 END")
    events = (
        events.withColumn("before", f.lag("ts").over(order))
        .withColumn("begins", begins)
        .withColumn("island", f.sum("begins").over(order))
    )
    island = Window.partitionBy("site", "key", "island")
    return events.withColumn("start", f.min("ts").over(island)).withColumn(
        "end", f.max("ts").over(island) + f.lit(gap)
    )


def _marked(window: Punctuation, kept: DataFrame) -> DataFrame:
    """Windows between the marks of a source; `start` is the ordinal, which is what such a result goes by."""
    order = Window.partitionBy(*WHO).orderBy("seq")
    so_far = order.rowsBetween(Window.unboundedPreceding, 0)
    earlier = order.rowsBetween(Window.unboundedPreceding, -1)
    starts, ends = f.col("mark") == window.start, f.col("mark") == window.ends_with
    both = window.start == window.ends_with
    # The last mark says whether a window is open: a start while one is, and an end while none is, do nothing.
    kind = f.when(starts, f.lit("start")).when(ends, f.lit("end"))
    rows = kept.withColumn("kind", kind).withColumn("was", f.last("kind", ignorenulls=True).over(earlier))
    opens = (f.col("kind") == "start") & (f.lit(both) | f.coalesce(f.col("was") == "end", f.lit(True)))
    closes = (f.lit(both) & (f.col("kind") == "start") & f.col("was").isNotNull()) | (
        (f.col("kind") == "end") & f.coalesce(f.col("was") == "start", f.lit(False))
    )
    rows = (
        rows.withColumn("opens", f.coalesce(opens, f.lit(False)))
        .withColumn("closes", f.coalesce(closes, f.lit(False)))
        .withColumn("place", f.sum(f.col("opens").cast("long")).over(so_far))
        .withColumn("shut", f.sum(f.col("closes").cast("long")).over(so_far))
        # The row that closes a window is none of its events, but says when it ended.
        .withColumn("inside", f.col("place") > f.col("shut"))
        .withColumn("start", f.col("place") - 1)
    )
    bounds = (
        rows.where("opens")
        .select(*WHO, "start", f.col("ts").alias("opened"))
        .join(
            rows.where("closes").select(
                *WHO, (f.col("shut") - 1).alias("start"), f.col("ts").alias("closed")
            ),
            [*WHO, "start"],
        )
        .select(*WHO, "start", "opened", f.greatest("opened", "closed").alias("end"))
    )
    label = f.expr(
        "CASE WHEN incarnation = 0 OR (incarnation = 1 AND NOT source RLIKE '#[0-9]+$') THEN source "
        "ELSE concat(source, '#', incarnation) END"
    )
    return (
        rows.where("inside")
        .join(bounds, [*WHO, "start"])
        .withColumn("site", label)
        .withColumn("key", f.lit(None).cast("string"))
    )


_FIRST = "struct(ts, source, incarnation, seq)"
_LOGARITHM = "ln(abs(value))"
_ZERO, _MINUS = "max(value = 0)", "count_if(value < 0) % 2 = 1"
_PLAIN: dict[str, str] = {
    "sum": "sum(value)",
    "count": "count(*)",
    "avg": "avg(value)",
    "product": f"CASE WHEN {_ZERO} THEN 0D ELSE exp(sum({_LOGARITHM})) * IF({_MINUS}, -1, 1) END",
    "geomean": (
        f"CASE WHEN {_ZERO} THEN 0D WHEN {_MINUS} AND count(*) % 2 = 0 THEN double('NaN') "
        f"ELSE exp(avg({_LOGARITHM})) * IF({_MINUS}, -1, 1) END"
    ),
    "variance": "var_pop(value)",
    "stddev": "stddev_pop(value)",
    "variance(ddof=1)": "coalesce(var_samp(value), double('NaN'))",
    "stddev(ddof=1)": "coalesce(stddev_samp(value), double('NaN'))",
    "min": "min(value)",
    "max": "max(value)",
    "range": "max(value) - min(value)",
    "first": f"min_by(value, {_FIRST})",
    "last": f"max_by(value, {_FIRST})",
    "median": "percentile(value, 0.5)",
    "distinct": "size(collect_set(value))",
    "mode": "mode(value, true)",
}
_CALLS: dict[str, Callable[[str], str]] = {
    "quantile": lambda q: f"percentile(value, {float(q)!r}D)",
    "top": lambda k: f"slice(sort_array(collect_list(value), false), 1, {int(k)})",
    "bottom": lambda k: f"slice(sort_array(collect_list(value), true), 1, {int(k)})",
}


def is_list(name: str) -> bool:
    """Whether a function has several values."""
    return name.startswith(("top(", "bottom("))


def _function(name: str) -> Column:
    if name in _PLAIN:
        found = _PLAIN[name]
    else:
        kind, _, argument = name.rstrip(")").partition("(")
        found = _CALLS[kind](argument)
    return f.expr(found if is_list(name) else f"cast({found} AS double)")
