"""An archive of the classes that Spark loads, from which a JVM starts in half of the time.

Loading and checking some 20,000 classes is most of what the start of a session costs. A JVM can take them
from a file that an earlier one wrote (class data sharing). The file is some 150 MB in the user's cache
directory, by versions of Java and Spark. To make it costs about two starts, so it is made when somebody asks
for it (`python -m headwater_spark.classes`). A JVM that finds that it does not fit ignores it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from headwater_root import files
from headwater_spark import cache, java
from headwater_spark.java import Java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# To write the archive takes a JVM long on a machine that is busy.
SECONDS = 600.0


def path(runtime: Java, environment: Mapping[str, str]) -> Path:
    """Where the archive for this Java and this Spark is, or would be."""
    home = str(Path(pyspark.__file__).parent)
    release = runtime.runtime / "release"
    about = release.read_text(errors="replace") if release.is_file() else ""
    name = hashlib.sha256("\n".join([str(runtime.runtime), about, home]).encode()).hexdigest()[:12]
    kept = cache.directory(environment) / "classes"
    return kept / f"spark-{pyspark.__version__}-java-{runtime.version}-{name}.jsa"


def options(runtime: Java, environment: Mapping[str, str]) -> list[str]:
    """Options of a JVM that let it use the archive, if there is one."""
    found = path(runtime, environment)
    return [f'"-XX:SharedArchiveFile={found}"', "-Xshare:auto"] if found.is_file() else []


def made(runtime: Java | None = None) -> Path:
    """Make the archive if there is none, in a process of its own; gives where it is."""
    runtime = runtime or java.found(os.environ)
    target = path(runtime, os.environ)
    if not target.is_file():
        files.make_directory(target.parent)
        with tempfile.TemporaryDirectory(prefix="headwater-classes-") as directory:
            command = [sys.executable, "-m", "headwater_spark.classes", directory]
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS
            )
            written = Path(directory) / "classes.jsa"
            if done.returncode or not written.is_file():
                raise OSError(f"the archive of classes was not made: {done.stderr.strip()[-500:]}")
            temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
            try:
                # Whole or not at all, also after the power fails: a JVM dies of half an archive.
                with written.open("rb") as source, temporary.open("wb") as copy:
                    shutil.copyfileobj(source, copy)
                    copy.flush()
                    os.fsync(copy.fileno())
                os.replace(temporary, target)
            finally:
                temporary.unlink(missing_ok=True)
    return target


def _write(directory: Path) -> None:
    """One session that does a little of everything, whose JVM writes the archive when it ends."""
    from headwater_spark import session

    archive = directory / "classes.jsa"
    conf = {"spark.driver.extraJavaOptions": f'"-XX:ArchiveClassesAtExit={archive}"'}
    spark = session.started("classes", directory, master="local[2]", brief=True, conf=conf)
    try:
        _exercise(spark, directory)
    finally:
        session.ended(spark, SECONDS)


def _exercise(spark: SparkSession, directory: Path) -> None:
    """What jobs and streams of ours use, so that its classes are in the archive."""
    rows = spark.range(100).selectExpr("id", "id % 7 AS k", "cast(id AS double) AS v")
    rows.write.parquet(str(directory / "rows"))
    read = spark.read.parquet(str(directory / "rows"))
    read.createOrReplaceTempView("rows")
    spark.sql(
        "SELECT k, sum(v), percentile(v, 0.5), max_by(v, id) FROM "
        "(SELECT *, row_number() OVER (PARTITION BY k ORDER BY id) AS n FROM rows) WHERE n > 1 GROUP BY k"
    ).toArrow()
    stream = spark.readStream.schema(read.schema).parquet(str(directory / "rows"))
    counted = stream.groupBy("k").count().writeStream.outputMode("update")
    query = (
        counted.option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .foreachBatch(_collected)
        .start()
    )
    query.awaitTermination()


def _collected(batch: DataFrame, number: int) -> None:
    batch.collect()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _write(Path(sys.argv[1]))
    else:
        sys.stdout.write(f"{made()}\n")
