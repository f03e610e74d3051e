"""Archived raw events as Spark sees them: each record once, judged by those before it, and what is missing.

The rules are those of docs/engine.md, written once more, in SQL: nothing of the engine is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from headwater.errors import Invalid, Problem
from headwater.windows import TS_LIMIT

SCHEMA = (
    "source STRING, incarnation BIGINT, seq BIGINT, ts BIGINT, key STRING, value DOUBLE, mark STRING, "
    "bare BOOLEAN, skipped BOOLEAN, site STRING, lateness BIGINT, largest BIGINT, opening STRING, "
    "archived BIGINT"
)
# There if a child has closed its archive in order.
CLOSED = "_closed"
# So many gaps are told apart; more of them count as one.
GAPS = 64
WHO = ("source", "incarnation")
ORDER = ("ts", "source", "incarnation", "seq")


@dataclass(frozen=True, slots=True)
class Gap:
    """Times between which records may be missing; None is without end."""

    low: int | None
    high: int | None


@dataclass(frozen=True, slots=True)
class Extent:
    """What an archive holds, and what it does not."""

    records: int
    sources: int
    late: int
    rejected: int
    first: int | None
    last: int | None
    gaps: tuple[Gap, ...]
    # Up to here nothing is missing at the end; None if all children have closed their archives.
    until: int | None


def read(spark: SparkSession, directory: Path) -> DataFrame:
    """Every record once. Where a spool was opened again and wrote another record under a number, the later
    one counts: the earlier one had not come to the root."""
    if not any(directory.rglob("*.parquet")):
        problem = Problem(
            "--archive", f"{directory} holds no Parquet files", "give the path of spec.archive; docs/audit.md"
        )
        raise Invalid("there is nothing to read", [problem])
    found = spark.read.schema(SCHEMA).option("recursiveFileLookup", "true").parquet(str(directory))
    latest = Window.partitionBy(*WHO, "seq").orderBy(f.desc("archived"), f.desc_nulls_last("largest"))
    return (
        found.withColumn("file", f.input_file_name())
        .withColumn("copy", f.row_number().over(latest))
        .where("copy = 1")
        .drop("copy")
    )


def judged(records: DataFrame) -> DataFrame:
    """The records with `rejected`, `late` and `reached`, the largest ts of those before each."""
    before = Window.partitionBy(*WHO).orderBy("seq")
    strange = (
        f"skipped OR abs(ts) > {TS_LIMIT} OR (NOT bare AND (isnan(value) OR abs(value) = double('inf')))"
    )
    return (
        records.withColumn("rejected", f.expr(strange))
        .withColumn("key", f.coalesce("key", f.lit("")))
        # -0.0 is 0.0.
        .withColumn("value", f.col("value") + f.lit(0.0))
        .withColumn("counts", f.expr("CASE WHEN NOT rejected THEN ts END"))
        .withColumn("own", f.max("counts").over(before.rowsBetween(Window.unboundedPreceding, -1)))
        .withColumn("told", f.max("largest").over(before.rowsBetween(Window.unboundedPreceding, 0)))
        .withColumn("reached", f.greatest("own", "told"))
        .withColumn("late", f.expr("NOT rejected AND coalesce(ts < reached - lateness, false)"))
        .drop("counts", "own", "told")
    )


def extent(records: DataFrame, directory: Path) -> Extent:
    """What there is, of judged records."""
    totals = records.agg(
        f.count(f.lit(1)).alias("records"),
        f.count_distinct(*WHO).alias("sources"),
        f.count_if("late").alias("late"),
        f.count_if("rejected").alias("rejected"),
        f.expr("min(ts) FILTER (WHERE NOT rejected AND NOT late)").alias("first"),
        f.expr("max(ts) FILTER (WHERE NOT rejected AND NOT late)").alias("last"),
    ).collect()[0]
    return Extent(
        totals["records"],
        totals["sources"],
        totals["late"],
        totals["rejected"],
        totals["first"],
        totals["last"],
        _gaps(records),
        _until(records, directory),
    )


def _gaps(records: DataFrame) -> tuple[Gap, ...]:
    """Numbers that are not there. What counts of them lies between how the source stood before and after."""
    by_source = Window.partitionBy(*WHO).orderBy("seq")
    missing = (
        records.withColumn("before", f.coalesce(f.lag("seq").over(by_source), f.lit(0)))
        .withColumn("stood", f.expr("greatest(reached, CASE WHEN NOT rejected THEN ts END)"))
        .withColumn("stood", f.lag("stood").over(by_source))
        .where("seq > before + 1")
        .selectExpr(
            "stood - lateness AS low",
            # How the source stood in front of the record; if nobody had told, it is not known.
            "largest AS high",
        )
        .collect()
    )
    gaps = [Gap(row["low"], row["high"]) for row in missing]
    if len(gaps) <= GAPS:
        return tuple(gaps)
    lows, highs = [gap.low for gap in gaps], [gap.high for gap in gaps]
    low = None if None in lows else min(each for each in lows if each is not None)
    high = None if None in highs else max(each for each in highs if each is not None)
    return (Gap(low, high),)


def _until(records: DataFrame, directory: Path) -> int | None:
    """Of a child that still writes, what its sources read last may go on before this."""
    writing = [child for child in directory.iterdir() if child.is_dir() and not (child / CLOSED).exists()]
    last = [max(child.glob("*.parquet"), default=None) for child in writing]
    names = [path.name for path in last if path is not None]
    if not names:
        return None
    stands = records.groupBy(*WHO).agg(
        f.expr("max(greatest(ts, coalesce(reached, ts))) FILTER (WHERE NOT rejected)").alias("reached"),
        f.max("lateness").alias("lateness"),
        f.bool_or(f.element_at(f.split("file", "/"), -1).isin(names)).alias("writes"),
    )
    found = stands.where("writes").selectExpr("min(reached - lateness) AS until").collect()[0]["until"]
    return None if found is None else int(found)
