"""The streaming query: the inbox, the merging by bucket, and the outbox behind it."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headwater.degraded import Degraded
from headwater.errors import PermanentError
from headwater_spark import finals
from headwater_spark.checkpoint import Checkpoint
from headwater_spark.merging import SCHEMA, Job, Merging
from headwater_spark.reach import Nonce
from headwater_spark.source import NAME, InboxSource

log = logging.getLogger(__name__)
_TRACE = "Traceback (most recent call last):"
# The last line of a trace: a class, and mostly what it says.
_RAISED = re.compile(r"[^\W\d][\w.]*(: |$)")


class SparkFailed(PermanentError):
    """The query has ended by itself: nothing is lost, and a restart goes on from the checkpoint."""

    def __init__(self, cause: str) -> None:
        remedy = "give it more with --memory" if "OutOfMemory" in cause else "spark/spark.log has more"
        super().__init__(f"the Spark job has failed: {cause}; nothing is lost, and {remedy}")


@dataclass(frozen=True, slots=True)
class Batch:
    """What a micro-batch came to: the records it is of, the lines, the windows of each query since ever, and
    of which queries too many wait."""

    first: int
    last: int
    lines: bytes
    emitted: Counter[int]
    degraded: tuple[Degraded, ...]


def started(
    session: SparkSession,
    checkpoint: Checkpoint,
    job: Job,
    inbox: dict[str, str],
    interval: float,
    write: Callable[[Batch], None],
    nonce: Nonce | None = None,
) -> StreamingQuery:
    """Begin, or go on where the checkpoint ends. `inbox` are the options of the source; `write` is called
    with each micro-batch, again with the same one if it was not committed. Executors of their own have to see
    the nonce."""
    session.dataSource.register(InboxSource)
    rows = session.readStream.format(NAME).options(**inbox, buckets=str(checkpoint.buckets)).load()
    windows = rows.groupBy("bucket").transformWithState(Merging(job, nonce), SCHEMA, "append", "none")

    def written(batch: DataFrame, number: int) -> None:
        # One action: a second one would run the stateful plan again.
        found = batch.toArrow().to_pylist()
        if found:
            checkpoint.keep(number)
            write(_batch(found))

    return (
        windows.writeStream.foreachBatch(written)
        .outputMode("append")
        .option("checkpointLocation", str(checkpoint.directory))
        .trigger(processingTime=f"{interval} seconds")
        .start()
    )


def _batch(rows: list[dict[str, Any]]) -> Batch:
    emitted: Counter[int] = Counter()
    for row in rows:
        emitted.update({int(query): count for query, count in json.loads(row["emitted"]).items()})
    (first,), (last,) = {row["first"] for row in rows}, {row["last"] for row in rows}
    degraded = tuple(
        Degraded(each["query"], each["reason"], each["waiting"], tuple(each["sources"]))
        for row in rows
        for each in json.loads(row["degraded"])
    )
    return Batch(first, last, finals.merged([row["finals"] for row in rows]), emitted, degraded)


def cause(query: StreamingQuery) -> str | None:
    """Why a query has ended, if it has failed: what the Python side raised, or else the JVM."""
    error = query.exception()
    if error is None:
        return None
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (raised(str(error)) or (lines[0] if lines else type(error).__name__))[:1_000]


def raised(told: str) -> str | None:
    """What the last of the Python traces in a text ends with, and the points that it lists."""
    found: list[str] = []
    within = False
    for line in told.splitlines():
        if line.endswith(_TRACE):
            found, within = [], True
        elif within and _RAISED.match(line):
            found, within = [line], False
        elif found and line.lstrip().startswith("- "):
            found.append(line.strip())
        else:
            # Behind a trace there is what the JVM has to say.
            within = within and (not line or line[0].isspace())
    return " ".join(found) or None
