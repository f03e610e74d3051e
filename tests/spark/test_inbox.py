"""The inbox: bounded portions of the log, and the watermark behind each record of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.machines.records import Record, Retired
from headwater_root.log import Log
from headwater_spark import inbox as inboxes
from headwater_spark import service
from headwater_spark.inbox import Inbox
from headwater_spark.service import Client, Service
from headwater_wire import records
from tests.certificates import Authority


class Written:
    """A log with records of given sizes, behind each of which the watermark is its position."""

    def __init__(self, directory: Path) -> None:
        self.log = Log.open(directory)
        self.watermark: int | None = None
        self.inbox = Inbox(self.log, 0, lambda: self.watermark)

    def add(self, size: int) -> int:
        # As the root does it: what is appended, then what follows from it.
        data = records.encode(Record(Retired("s" * size), self.watermark, 0))
        (position,) = self.log.append([data])
        self.inbox.appended(len(data), self.watermark)
        self.watermark = position
        return len(data)

    def sync(self) -> None:
        self.log.sync()
        self.inbox.committed()


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    made = Written(tmp_path / "log")
    yield made
    made.log.close()


def test_while_there_is_no_room_for_results_there_is_nothing_to_do(tmp_path: Path) -> None:
    made = Written(tmp_path / "log")
    full = True
    made.inbox = Inbox(made.log, 0, lambda: made.watermark, lambda: full)
    made.add(10)
    made.sync()
    assert made.inbox.reach(0, 0, 0.0) == (0, None)
    assert made.inbox.reach(0, 0, 0.1) == (0, None)
    full = False
    assert made.inbox.reach(0, 0, 0.0) == (1, 1)
    made.log.close()


def test_what_is_not_committed_cannot_be_reached(written: Written) -> None:
    written.add(10)
    assert written.inbox.reach(0, 0, 0.0) == (0, None)
    written.sync()
    assert written.inbox.reach(0, 0, 0.0) == (1, 1)
    # Another one that is only appended changes nothing of what is known of the first.
    written.add(10)
    assert written.inbox.reach(0, 0, 0.0) == (1, 1)


def test_a_portion_has_one_record_at_least_and_no_more_bytes_than_asked_for(written: Written) -> None:
    sizes = [written.add(size) for size in (500, 10, 10, 10, 900, 10)]
    written.sync()
    assert written.inbox.reach(0, 1, 0.0)[0] == 1
    assert written.inbox.reach(1, sum(sizes[1:4]), 0.0)[0] == 4
    assert written.inbox.reach(1, sum(sizes[1:4]) - 1, 0.0)[0] == 3
    assert written.inbox.reach(4, 100, 0.0)[0] == 5
    assert written.inbox.reach(0, 0, 0.0)[0] == 6


@settings(max_examples=50)
@given(st.lists(st.integers(0, 3_000), min_size=1, max_size=20), st.integers(1, 6), st.data())
def test_parts_tile_the_range_and_watermarks_are_those_behind_each_record(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], parts: int, data: st.DataObject
) -> None:
    written = Written(tmp_path_factory.mktemp("inbox") / "log")
    for size in sizes:
        written.add(size)
    written.sync()
    first = data.draw(st.integers(1, len(sizes)))
    last = data.draw(st.integers(first, len(sizes)))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(inboxes, "PART", 500)
        lasts, watermarks = written.inbox.plan(first, last, parts)
    assert lasts == sorted(set(lasts))
    assert lasts[-1] == last
    assert lasts[0] >= first
    assert len(lasts) <= parts
    assert watermarks.tolist() == list(range(first, last))
    # A later reader of the same log finds the same.
    again = Inbox(written.log, first - 1, lambda: written.watermark)
    assert again.plan(first, last, 1)[1].tolist() == watermarks.tolist()
    assert again.reach(first - 1, 0, 0.0) == (len(sizes), len(sizes))
    written.log.close()


def test_what_spark_has_done_with_is_forgotten(written: Written) -> None:
    for _ in range(5):
        written.add(100)
    written.sync()
    before = written.inbox.bytes
    written.inbox.finish(3)
    written.inbox.finish(2)
    assert (written.inbox.finished, written.inbox.records) == (3, 2)
    assert 0 < written.inbox.bytes < before
    assert written.inbox.reach(3, 0, 0.0) == (5, 5)
    assert written.inbox.plan(4, 5, 1)[1].tolist() == [4]


def test_who_waits_hears_of_the_next_record_and_of_the_end(written: Written) -> None:
    found: list[tuple[int, int | None]] = []
    waiting = threading.Thread(target=lambda: found.append(written.inbox.reach(0, 0, 600.0)))
    waiting.start()
    written.add(10)
    written.sync()
    waiting.join(60)
    assert found == [(1, 1)]
    begin = monotonic()
    waiting = threading.Thread(target=lambda: found.append(written.inbox.reach(1, 0, 600.0)))
    waiting.start()
    written.inbox.close()
    waiting.join(60)
    assert found == [(1, 1), (1, 1)]
    assert monotonic() - begin < 600


def test_over_grpc_it_is_the_same_and_for_who_has_the_word(written: Written) -> None:
    for size in (10, 2_000_000, 20):
        written.add(size)
    written.sync()
    finished: list[int] = []
    server, address = service.served(Service(written.inbox, "word", finished.append), "127.0.0.1")
    client, stranger = Client(address, "word"), Client(address, "other")
    try:
        assert client.reach(0, 0, 0.0) == (3, 3)
        assert client.plan(1, 3, 1) == ([3], [1, 2])
        read = list(client.read(2, 3))
        assert read == [(at, data) for at, data in written.log.read(1)]
        client.finish(2)
        assert finished == [2]
        for call in (
            lambda: stranger.reach(0, 0, 0.0),
            lambda: stranger.plan(1, 3, 1),
            lambda: list(stranger.read(1, 3)),
            lambda: stranger.finish(3),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                call()
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert finished == [2]
    finally:
        client.close()
        stranger.close()
        server.stop(None).wait()


def test_with_the_certificate_of_the_root_it_is_for_who_trusts_its_authority(
    written: Written, tmp_path: Path
) -> None:
    written.add(10)
    written.sync()
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    credentials = authority.issue("root")
    inbox = Service(written.inbox, "word", lambda position: None)
    server, address = service.served(inbox, "127.0.0.1", credentials=credentials)
    client = Client(address, "word", credentials.ca.read_text())
    strangers = Client(address, "word"), Client(address, "word", other.file.read_text())
    try:
        assert client.reach(0, 0, 0.0) == (1, 1)
        for stranger in strangers:
            with pytest.raises(grpc.RpcError) as refused:
                stranger.reach(0, 0, 0.0)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    finally:
        for each in (client, *strangers):
            each.close()
        server.stop(None).wait()
