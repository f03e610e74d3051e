"""The checkpoint and the log belong together: neither goes on without the other.

`spark.json` beside the log says which checkpoint is its own and how many buckets there are; the checkpoint
has the same word in a file of ours. What Spark has done with stands in its own files, `commits` and
`offsets`.
"""

from __future__ import annotations

import json
import logging
import uuid
from dataclasses import dataclass
from pathlib import Path

from headwater.errors import PermanentError
from headwater_root import files
from headwater_root.runtime import SPARK as NAME

FORMAT = 1
# A file in the checkpoint with the id of it.
WORD = "headwater"
log = logging.getLogger(__name__)


class CheckpointDiffers(PermanentError):
    """Checkpoint and log are not of one root, or one of them is older than the other."""

    def __init__(self, directory: Path, what: str, remedy: str) -> None:
        super().__init__(f"{directory}: {what}; {remedy}")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint of Spark, as the log knows it."""

    directory: Path
    id: str
    buckets: int

    def done(self) -> int:
        """The last record of the last micro-batch that Spark has committed."""
        batches = _numbers(self.directory / "commits")
        return self._position(batches[-1]) if batches else 0

    def planned(self) -> int:
        """The last record of the last micro-batch that Spark has planned: one that was not committed is
        repeated."""
        batches = _numbers(self.directory / "offsets")
        return self._position(batches[-1]) if batches else 0

    def _position(self, batch: int) -> int:
        path = self.directory / "offsets" / str(batch)
        try:
            return int(json.loads(path.read_text().splitlines()[-1])["position"])
        except (OSError, ValueError, LookupError, TypeError) as error:
            remedy = "put the checkpoint back from a copy, together with the log"
            raise CheckpointDiffers(
                self.directory, f"{path.name} in offsets cannot be read ({error})", remedy
            ) from error

    def mend(self) -> None:
        """Take back what Spark was writing when the power failed, which it does not make durable: the last
        plan or commit, if it cannot be read. Nothing has come of such a plan: `keep` comes before that."""
        for name in ("commits", "offsets"):
            batches = _numbers(self.directory / name)
            if not batches:
                continue
            path = self.directory / name / str(batches[-1])
            # Its checksum may be torn as well, and is not needed.
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
            if not _is_whole(path):
                log.warning("a torn file of the checkpoint is taken back", extra={"path": str(path)})
                path.unlink()

    def keep(self, batch: int) -> None:
        """Make durable the plan of a micro-batch that is computed, its state, and the commits before it, for
        its results to be put out: Spark sees to none of it."""
        files.sync(self.directory / "offsets" / str(batch))
        files.sync_file_system(self.directory)

    def check(self, first: int, committed: int, written: int) -> None:
        """Raise unless the log, which has the records `[first, committed]`, goes on where the checkpoint
        ends. `written` is the last record behind which results begin."""
        done, planned = self.done(), self.planned()
        if done + 1 < first:
            raise CheckpointDiffers(
                self.directory,
                f"the checkpoint has come to record {done}, but the log begins with {first}",
                "put back the newest checkpoint: what lies between is in no other place",
            )
        if planned > committed:
            raise CheckpointDiffers(
                self.directory,
                f"the checkpoint has come to record {planned}, but the log ends with {committed}",
                "put back the newest copy of the log",
            )
        if written > planned:
            raise CheckpointDiffers(
                self.directory,
                f"the checkpoint has come to record {planned}, but there are results from {written} on",
                "put back the newest checkpoint: an older one would give results twice",
            )


def opened(directory: Path, checkpoint: Path, *, buckets: int, records: int) -> Checkpoint:
    """The checkpoint of a root's directory; a new one where the log has no records yet."""
    path = directory / NAME
    if path.exists():
        return _known(path, checkpoint, records)
    if records:
        raise CheckpointDiffers(
            directory,
            f"the log has {records} records that the embedded root has taken",
            "start that (root.engine: embedded), or begin anew in another directory",
        )
    if _word(checkpoint) is not None or _numbers(checkpoint / "offsets"):
        remedy = "give the root an empty one, or the log that belongs to it"
        raise CheckpointDiffers(checkpoint, "it is the checkpoint of another log", remedy)
    made = Checkpoint(checkpoint, uuid.uuid4().hex, buckets)
    files.make_directory(directory)
    told = {"format": FORMAT, "checkpoint": made.id, "buckets": buckets}
    files.replace(path, json.dumps(told).encode() + b"\n")
    _begin(made)
    return made


def _begin(made: Checkpoint) -> None:
    files.make_directory(made.directory)
    files.replace(made.directory / WORD, made.id.encode())


def _known(path: Path, checkpoint: Path, records: int) -> Checkpoint:
    try:
        told = json.loads(path.read_bytes())
        found, id, held = int(told["format"]), str(told["checkpoint"]), int(told["buckets"])
    except (ValueError, LookupError, TypeError) as error:
        raise files.Damaged(path, 0, f"is not what this program wrote ({error})", "put it back") from error
    if found != FORMAT:
        remedy = "start the release that wrote it"
        raise CheckpointDiffers(
            path.parent, f"{NAME} has format {found}, this release reads {FORMAT}", remedy
        )
    word, made = _word(checkpoint), Checkpoint(checkpoint, id, held)
    if word is None and not records and not _numbers(checkpoint / "offsets"):
        # The first start came to no end.
        _begin(made)
    elif word != id:
        what = "is not there" if word is None else "is that of another log"
        raise CheckpointDiffers(
            checkpoint,
            f"the checkpoint of the log in {path.parent} {what}",
            "put it back: it holds what windows have gathered of records that the log may have dropped",
        )
    # With as many buckets as there were: the state is kept by bucket.
    return made


def _word(checkpoint: Path) -> str | None:
    try:
        return (checkpoint / WORD).read_text().strip()
    except OSError:
        return None


def _is_whole(path: Path) -> bool:
    """Whether a file of Spark's has all of its lines: a version, and JSON behind it."""
    version, *lines = path.read_text(errors="replace").splitlines() or [""]
    try:
        return version.startswith("v") and [json.loads(line) for line in lines if line != "-"] != []
    except ValueError:
        return False


def _numbers(directory: Path) -> list[int]:
    if not directory.is_dir():
        return []
    return sorted(int(path.name) for path in directory.iterdir() if path.name.isdigit())
