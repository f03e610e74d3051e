"""Results as the root has emitted them: what a JSON lines or a Parquet sink has written."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headwater.errors import Invalid, Problem

LINES = "results.jsonl"
# What Spark calls a line that it cannot read.
_BAD = "_corrupt"
_FIELDS = (
    "id STRING, query STRING, incarnation BIGINT, site STRING, key STRING, start BIGINT, end BIGINT, "
    "count BIGINT, ordinal BIGINT"
)
_TIMES = ("first_time", "last_time")


def read(spark: SparkSession, directory: Path) -> DataFrame:
    """The results with `values`, a map of texts by function; lists are JSON.

    `first_time` and `last_time` are microseconds, and null in what a release before has written.
    """
    if (directory / LINES).is_file():
        return _lines(spark, directory / LINES)
    # A sink that still grows: what a merge leaves behind stays for a while in the directory as it is now.
    # A copy by kubectl cp has no link; the files are in a directory beside it, before within it.
    directory = directory.resolve()
    places = (directory / "results", directory.with_name(f"{directory.name}.files"), directory / "_files")
    files = next((place.resolve() for place in places if place.is_dir()), directory)
    if not any(files.rglob("*.parquet")):
        problem = Problem(
            "--results",
            f"{directory} holds neither {LINES} nor Parquet files",
            "give the folder of a jsonlines or parquet sink",
        )
        raise Invalid("there are no results to compare with", [problem])
    schema = f"{_FIELDS}, values MAP<STRING, DOUBLE>, others MAP<STRING, STRING>"
    schema += "".join(f", {name} TIMESTAMP" for name in _TIMES)
    found = spark.read.schema(schema).option("recursiveFileLookup", "true").parquet(str(files))
    texts = f.expr("map_concat(transform_values(values, (name, value) -> cast(value AS STRING)), others)")
    times = {name: f.unix_micros(name) for name in _TIMES}
    return found.withColumn("values", texts).drop("others").withColumns(times)


def _lines(spark: SparkSession, path: Path) -> DataFrame:
    """Whole lines: the last one may be half written, by a root that is just at it."""
    times = "".join(f"{name} BIGINT, " for name in _TIMES)
    schema = f"{_FIELDS}, values MAP<STRING, STRING>, {times}{_BAD} STRING"
    found = spark.read.schema(schema).json(str(path), mode="PERMISSIVE", columnNameOfCorruptRecord=_BAD)
    bad = [row[_BAD] for row in found.where(f.col(_BAD).isNotNull()).select("id", _BAD).limit(2).collect()]
    if len(bad) > 1 or (bad and not _is_cut(path)):
        problem = Problem(
            "--results",
            f"{path} has a line that is no result ({bad[0][:60]!r})",
            "give it as the root wrote it",
        )
        raise Invalid("there are no results to compare with", [problem])
    return found.where(f.col(_BAD).isNull()).drop(_BAD)


def _is_cut(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
