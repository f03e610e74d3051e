"""Checkpoint and log belong together: whatever does not fit is refused, with what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.machines.root import Settings
from headwater.queries import Query
from headwater.windows import Tumbling
from headwater_root.files import Damaged
from headwater_root.log import LogHeld
from headwater_root.runtime import OtherEngine, RootRuntime
from headwater_spark import checkpoint
from headwater_spark.checkpoint import CheckpointDiffers
from headwater_spark.runtime import SparkRoot

QUERIES = [Query("q", Tumbling(10))]


def batch(directory: Path, number: int, position: int, *, committed: bool = True) -> None:
    """As Spark writes it."""
    told = json.dumps({"position": position, "watermark": 7})
    for name, text in (("offsets", f"v1\n{{}}\n{told}"), ("commits", "v1\n{}")):
        if name == "offsets" or committed:
            (directory / name).mkdir(exist_ok=True)
            (directory / name / str(number)).write_text(text)


def made(tmp_path: Path) -> tuple[Path, checkpoint.Checkpoint]:
    held = tmp_path / "checkpoint"
    return held, checkpoint.opened(tmp_path, held, buckets=4, records=0)


def test_what_was_made_is_found_again_with_its_buckets(tmp_path: Path) -> None:
    held, first = made(tmp_path)
    assert checkpoint.opened(tmp_path, held, buckets=64, records=9) == first
    assert (first.done(), first.planned()) == (0, 0)
    batch(held, 0, 3)
    batch(held, 1, 8)
    batch(held, 2, 9, committed=False)
    assert (first.done(), first.planned()) == (8, 9)
    first.check(first=9, committed=9, written=9)
    first.check(first=1, committed=20, written=0)


def test_a_gap_between_checkpoint_and_log_is_refused(tmp_path: Path) -> None:
    held, found = made(tmp_path)
    batch(held, 0, 8)
    with pytest.raises(CheckpointDiffers, match="has come to record 8, but the log begins with 10; put back"):
        found.check(first=10, committed=20, written=0)
    with pytest.raises(CheckpointDiffers, match="has come to record 8, but the log ends with 7; put back"):
        found.check(first=1, committed=7, written=0)
    with pytest.raises(CheckpointDiffers, match="has come to record 8, but there are results from 9 on; put"):
        found.check(first=1, committed=20, written=9)
    found.check(first=1, committed=20, written=8)
    (held / "offsets" / "0").write_text("v1\n{}\n{")
    with pytest.raises(CheckpointDiffers, match="0 in offsets cannot be read"):
        found.done()


def test_what_the_power_has_torn_is_taken_back_and_nothing_else(tmp_path: Path) -> None:
    held, found = made(tmp_path)
    found.mend()
    batch(held, 0, 3)
    batch(held, 1, 8)
    batch(held, 2, 9, committed=False)
    found.keep(2)
    found.mend()
    assert (found.done(), found.planned()) == (8, 9)
    (held / "offsets" / "2").write_text("")
    (held / "offsets" / ".2.crc").write_text("")
    (held / "commits" / "1").write_text("v1\n")
    found.mend()
    assert (found.done(), found.planned()) == (3, 8)
    assert sorted(path.name for path in (held / "offsets").iterdir()) == ["0", "1"]
    # Not the last one: this is no power failure.
    (held / "offsets" / "0").write_text("")
    found.mend()
    with pytest.raises(CheckpointDiffers, match="0 in offsets cannot be read"):
        found.done()


def test_a_first_start_that_came_to_no_end_is_repeated(tmp_path: Path) -> None:
    held, first = made(tmp_path)
    (held / "headwater").unlink()
    with pytest.raises(CheckpointDiffers, match="is not there; put it back"):
        checkpoint.opened(tmp_path, held, buckets=4, records=1)
    assert checkpoint.opened(tmp_path, held, buckets=4, records=0) == first
    assert checkpoint.opened(tmp_path, held, buckets=4, records=1) == first


def test_a_checkpoint_that_is_gone_or_of_another_log_is_refused(tmp_path: Path) -> None:
    held, _ = made(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    made(other)
    held.rename(tmp_path / "away")
    with pytest.raises(CheckpointDiffers, match="is not there; put it back"):
        checkpoint.opened(tmp_path, held, buckets=4, records=9)
    (other / "checkpoint").rename(held)
    with pytest.raises(CheckpointDiffers, match="is that of another log; put it back"):
        checkpoint.opened(tmp_path, held, buckets=4, records=9)
    with pytest.raises(CheckpointDiffers, match="is the checkpoint of another log; give the root an empty"):
        checkpoint.opened(other / "fresh", held, buckets=4, records=0)


def test_other_formats_and_damage_are_told(tmp_path: Path) -> None:
    held, _ = made(tmp_path)
    path = tmp_path / "spark.json"
    told = json.loads(path.read_text())
    path.write_text(json.dumps({**told, "format": 9}))
    with pytest.raises(CheckpointDiffers, match="has format 9, this release reads 1; start the release"):
        checkpoint.opened(tmp_path, held, buckets=4, records=9)
    path.write_text("{")
    with pytest.raises(Damaged, match="is not what this program wrote"):
        checkpoint.opened(tmp_path, held, buckets=4, records=9)


def test_a_directory_stays_with_the_engine_that_began_it(tmp_path: Path) -> None:
    embedded, spark = tmp_path / "embedded", tmp_path / "spark"
    RootRuntime(QUERIES, embedded, Settings()).log.close()
    with pytest.raises(CheckpointDiffers, match="1 records that the embedded root has taken; start that"):
        SparkRoot(QUERIES, embedded, Settings())
    # Nothing was changed, and nothing is held.
    RootRuntime(QUERIES, embedded, Settings()).log.close()
    root = SparkRoot(QUERIES, spark, Settings())
    with pytest.raises(LogHeld):
        SparkRoot(QUERIES, spark, Settings())
    root.log.close()
    with pytest.raises(OtherEngine, match=r"start that \(root.engine: spark\), or begin anew"):
        RootRuntime(QUERIES, spark, Settings())
    SparkRoot(QUERIES, spark, Settings()).log.close()
