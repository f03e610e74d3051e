"""The archive of a child: what was read, once, in whole and bounded files; the tree needs none of it."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from headwater import topology
from headwater.errors import Invalid
from headwater.events import Batch
from headwater.machines.messages import Columns, Stream
from headwater.progress import Source
from headwater_node.accepted import Accepted, Portion
from headwater_node.archive import CLOSED, Archive, encoded
from headwater_node.configuration import Configuration
from tests.faults.volume import Volume
from tests.node.test_program import filled, node, root, sent
from tests.programs import until

STREAM = Stream("s", 0, 0)


def columns(first: int, size: int, opening: str = "o") -> Columns:
    batch = Batch("s", first, np.arange(first, first + size), np.arange(first, first + size) * 1.0)
    return Columns(STREAM, str(first), batch, opening)


def numbers(portions: list[Portion]) -> list[int]:
    return [n for each in portions for n in range(each.batch.first, each.batch.first + len(each.batch))]


def at(position: int, largest: int = 0, **more: Any) -> Mapping[str, Source]:
    return {"s": Source("s", 0, "here", 5, position, largest, opening="o", **more)}


def test_only_what_was_read_is_taken_and_once() -> None:
    accepted = Accepted()
    accepted.came(columns(1, 10), at(0))
    assert numbers(list(accepted.read(at(4)))) == [1, 2, 3, 4]
    # It comes again because the rest was not read; and then the machine goes back and reads it once more.
    accepted.came(columns(1, 10), at(4))
    assert numbers(list(accepted.read(at(10)))) == list(range(5, 11))
    accepted.came(columns(7, 6), at(6))
    assert numbers(list(accepted.read(at(12)))) == [11, 12]
    assert (accepted.bytes, accepted.missed) == (0, 0)


def test_a_portion_has_how_the_source_stood_before_it() -> None:
    accepted = Accepted()
    accepted.came(columns(1, 2), at(0))
    list(accepted.read(at(2, largest=2)))
    # The root has raised it meanwhile, and passes over a record.
    accepted.came(columns(3, 2), at(2, largest=900, skips=frozenset({4})))
    (portion,) = accepted.read(at(4, largest=900))
    assert (portion.largest, portion.site, portion.lateness) == (900, "here", 5)
    assert portion.skips == frozenset({4})


def test_a_source_that_is_not_known_yet_is_taken_whole_once_it_is() -> None:
    accepted = Accepted()
    accepted.came(columns(5, 4), {})
    assert not list(accepted.read({}))
    (portion,) = accepted.read(at(8))
    assert (numbers([portion]), portion.largest) == ([5, 6, 7, 8], None)


def test_columns_of_another_opening_take_the_place_of_those_before() -> None:
    accepted = Accepted()
    accepted.came(columns(1, 4, "before"), at(0))
    accepted.came(columns(1, 2), at(0))
    assert [each.opening for each in accepted.read(at(2))] == ["o"]


def test_what_waits_is_bounded_and_what_is_missed_is_counted() -> None:
    accepted = Accepted(limit=200)
    for first in (1, 11, 21):
        accepted.came(columns(first, 10), at(0))
    assert numbers(list(accepted.read(at(30)))) == list(range(21, 31))
    assert (accepted.missed, accepted.bytes) == (20, 0)


def test_every_field_of_a_record_is_in_its_file(tmp_path: Path) -> None:
    rows = [(5, "a", 1.5, None), (6, None, None, "begin"), (7, "b", None, None), (8, "a", float("inf"), None)]
    batch = Batch.from_records("pump\0" + "0" * 9 + "2", 3, rows)
    path = tmp_path / "file.parquet"
    path.write_bytes(encoded([Portion(batch, "o", "hall", 9, 4, frozenset({6}))], 77))
    read = pq.read_table(path).to_pylist()
    assert [(row["seq"], row["ts"], row["key"], row["value"], row["mark"], row["bare"]) for row in read] == [
        (3, 5, "a", 1.5, None, False),
        (4, 6, "", None, "begin", True),
        (5, 7, "b", None, None, True),
        (6, 8, "a", float("inf"), None, False),
    ]
    assert [row["skipped"] for row in read] == [False, False, False, True]
    same = ("source", "incarnation", "site", "lateness", "largest", "opening", "archived")
    assert {tuple(row[name] for name in same) for row in read} == {("pump", 2, "hall", 9, 4, "o", 77)}


def read(directory: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(directory.glob("*/*.parquet")) for row in pq.read_table(path).to_pylist()]


def test_a_child_archives_what_it_reads(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    with ExitStack() as stack:
        top = stack.enter_context(root(tmp_path))
        child = stack.enter_context(node(tmp_path, top.port, archive={"path": str(archive), "rotate": "1s"}))
        spool = stack.enter_context(filled(tmp_path / "spool"))
        sent(spool, child.port)
        until(lambda: "headwater_node_archived_records_total 4.0" in child.get("/metrics")[1], "not archived")
        assert "headwater_node_archive_dropped_records_total 0.0" in child.get("/metrics")[1]
        assert not (archive / "c" / CLOSED).exists()
        assert child.end(signal.SIGTERM) == 0
    assert (archive / "c" / CLOSED).exists()
    second = 1_000_000
    assert [(row["source"], row["seq"], row["ts"], row["value"]) for row in read(archive)] == [
        ("s", 1, 0, 1.0),
        ("s", 2, second, 2.0),
        ("s", 3, 2 * second, 4.0),
        ("s", 4, 60 * second, 8.0),
    ]
    assert not list(archive.glob("*/.*"))


def test_an_archive_that_cannot_be_written_is_seen_and_holds_nobody_up(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.write_text("in the way")
    with ExitStack() as stack:
        top = stack.enter_context(root(tmp_path))
        child = stack.enter_context(node(tmp_path, top.port, archive={"path": str(archive), "rotate": "1s"}))
        spool = stack.enter_context(filled(tmp_path / "spool"))
        # The root has counted all of it.
        sent(spool, child.port)
        until(lambda: "headwater_node_archive_failing 1.0" in child.get("/metrics")[1], "not seen")
        assert "headwater_node_archive_dropped_records_total 4.0" in child.get("/metrics")[1]
        assert child.end(signal.SIGTERM) == 0
        (line,) = child.said("the archive cannot be written")
        assert "archive" in line["problem"]


def test_a_full_disk_costs_the_archive_what_came_meanwhile_and_nothing_else(tmp_path: Path) -> None:
    with Volume(tmp_path / "volume", kib=256) as volume, ExitStack() as stack:
        volume.fill()
        top = stack.enter_context(root(tmp_path))
        given = {"path": str(volume.path / "archive"), "rotate": "1s"}
        child = stack.enter_context(node(tmp_path, top.port, archive=given))
        spool = stack.enter_context(filled(tmp_path / "spool"))
        sent(spool, child.port)
        until(lambda: "headwater_node_archive_failing 1.0" in child.get("/metrics")[1], "not seen")
        volume.free()
        spool.append([61_000_000, 62_000_000], [16.0, 32.0])
        sent(spool, child.port)
        until(lambda: "headwater_node_archived_records_total 2.0" in child.get("/metrics")[1], "not archived")
        assert "headwater_node_archive_failing 0.0" in child.get("/metrics")[1]
        assert child.end(signal.SIGTERM) == 0
        assert [row["value"] for row in read(volume.path / "archive")] == [16.0, 32.0]
        # Something is missing: it was not closed as one that is whole.
        assert not (volume.path / "archive" / "c" / CLOSED).exists()
        assert len(child.said("the archive cannot be written")) == 1
        assert [line["dropped"] for line in child.said("the archive is written again")] == [4]


def test_files_that_are_too_old_or_too_much_go(tmp_path: Path) -> None:
    given = topology.Archive(str(tmp_path), retain=100, max_bytes=25)
    archive = Archive("c", given)
    archive.directory.mkdir()
    for written in (800, 895, 905, 910, 920):
        (archive.directory / f"{written:020}-000001.parquet").write_bytes(b"x" * 10)
    (archive.directory / "of-somebody-else").write_bytes(b"x" * 1000)
    archive._trim(1000)
    left = sorted(path.name for path in archive.directory.iterdir())
    assert left == [f"{910:020}-000001.parquet", f"{920:020}-000001.parquet", "of-somebody-else"]


def test_the_file_of_a_node_has_an_archive() -> None:
    given = {"name": "c", "role": "child", "listen": "h:1", "parent": "p", "parent_address": "h:2"}
    found = Configuration.of({**given, "archive": {"path": "/a", "maxBytes": "2GiB", "retain": "1d"}}).archive
    assert found == topology.Archive("/a", retain=86_400_000_000, max_bytes=2 << 30)
    with pytest.raises(Invalid, match=r"archive\.path: is missing"):
        Configuration.of({**given, "archive": {}})
    with pytest.raises(Invalid, match="archive at the children"):
        Configuration.of({**given, "role": "intermediate", "archive": {"path": "/a"}})
