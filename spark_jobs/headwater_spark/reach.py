"""Whether executors see the checkpoint: with one that they cannot see Spark commits without any error, and
all state is gone with the first executor.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Timer

from pyspark.sql import SparkSession

from headwater.errors import PermanentError, RetryableError
from headwater_spark.checkpoint import WORD, Checkpoint

# How long executors may take to come, in seconds.
PATIENCE = 180.0


class CheckpointNotShared(PermanentError):
    """An executor that does not see the checkpoint."""

    def __init__(self, directory: Path, hosts: Iterable[str]) -> None:
        super().__init__(
            f"{directory}: executors on {', '.join(sorted(set(hosts)))} do not see the driver's checkpoint; "
            "give them the same volume at the same path, or run without executors (root.spark.executors: 0)"
        )


class ExecutorsMissing(RetryableError):
    """Executors that do not come, or cannot run a task."""

    def __init__(self, slots: int, error: Exception) -> None:
        why = str(error).strip().partition("\n")[0][:300]
        super().__init__(
            f"{slots} tasks at once could not be run within {PATIENCE:.0f} s ({why}); see why executors do "
            "not start, or give them more room, then start the root again"
        )


def check(session: SparkSession, checkpoint: Checkpoint, slots: int) -> None:
    """Let every executor read the word that the driver has written; raise if one cannot. `slots` is how many
    tasks all of them can run at once."""
    context = session.sparkContext
    path, word = str(checkpoint.directory / WORD), checkpoint.id

    def looked(_: Iterable[int]) -> Iterator[tuple[str, bool]]:
        try:
            seen = Path(path).read_text().strip() == word
        except OSError:
            seen = False
        yield socket.gethostname(), seen

    timer = Timer(PATIENCE, context.cancelAllJobs)
    timer.start()
    try:
        # All at once, so that none has two of them and another none.
        found = context.parallelize(range(slots), slots).barrier().mapPartitions(looked).collect()
    except Exception as error:
        raise ExecutorsMissing(slots, error) from error
    finally:
        timer.cancel()
    blind = [host for host, seen in found if not seen]
    if blind:
        raise CheckpointNotShared(checkpoint.directory, blind)
