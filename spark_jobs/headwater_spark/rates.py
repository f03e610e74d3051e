"""How many events sources send, from archived raw events: what a plan goes by."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from headwater.durations import SECOND
from headwater_spark import archived

MINUTE, HOUR, DAY = 60 * SECOND, 3_600 * SECOND, 86_400 * SECOND
PERIODS = {"minute": MINUTE, "hour": HOUR, "day": DAY}


@dataclass(frozen=True, slots=True)
class Rate:
    """What a source, or a whole site, sent in a period that begins at `start`; rates are events a second."""

    start: int
    site: str
    source: str | None
    events: int
    # Over the time in which it sent, within the period.
    mean: float
    # In the minute with the most; never below the mean.
    peak: float


def rates(spark: SparkSession, archive: Path, period: int = HOUR, *, by_site: bool = False) -> list[Rate]:
    """The rates by period, site and source, in this order. Heartbeats are no events; late ones are: a node
    has to read them too."""
    name = f.lit(None).cast("string") if by_site else f.col("source")
    events = (
        archived.read(spark, archive)
        .where("NOT bare OR mark IS NOT NULL")
        .withColumn("source", name)
        .withColumn("start", f.expr(f"ts - pmod(ts, {period}L)"))
        .withColumn("minute", f.expr(f"ts - pmod(ts, {MINUTE}L)"))
    )
    minutes = events.groupBy("start", "site", "source", "minute").agg(
        f.count(f.lit(1)).alias("events"), f.min("ts").alias("first"), f.max("ts").alias("last")
    )
    found = minutes.groupBy("start", "site", "source").agg(
        f.sum("events").alias("events"),
        f.max("events").alias("most"),
        f.min("first").alias("first"),
        f.max("last").alias("last"),
    )
    rows = found.orderBy("start", "site", "source").collect()
    return [
        Rate(
            row["start"],
            row["site"],
            row["source"],
            row["events"],
            _mean(row["events"], row["last"] - row["first"]),
            max(row["most"] * SECOND / MINUTE, _mean(row["events"], row["last"] - row["first"])),
        )
        for row in rows
    ]


def _mean(events: int, lasted: int) -> float:
    """Events a second. Those of a source that sends evenly lie one distance less apart than they are many."""
    return (events - 1) * SECOND / lasted if events > 1 and lasted else events * 1.0
