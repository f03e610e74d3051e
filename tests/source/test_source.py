"""The library: what is sent is on disk, counted once, and told apart from what cannot be taken."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import HeadwaterError, InvalidEvents, InvalidSource
from headwater.events import Batch
from headwater.machines.messages import (
    Columns,
    Commit,
    Hello,
    Message,
    Probe,
    Resync,
    Send,
    Standing,
    Welcome,
)
from headwater.machines.route import Place
from headwater.prefix import Prefix
from headwater.sources import SourceId, source_name_problem
from headwater.topology import InvalidTopology, topology_of
from headwater_cli.app import main
from headwater_source import Source, origin
from headwater_source.client import SourceClient
from headwater_source.columns import Events
from headwater_source.keys import MissingKeys
from headwater_source.origin import Beginning, Origin
from headwater_source.spool import Spool
from headwater_wire.exchange import Exchange
from headwater_wire.messages import Codec
from tests.patience import PATIENCE
from tests.tree.processes import QUERIES, Tree, document, tree

NOWHERE = "127.0.0.1:1"


def test_a_program_sends_and_waits_until_it_is_counted(tmp_path: Path) -> None:
    async def program(address: str) -> None:
        async with Source("pump", address, spool=tmp_path / "spool", lateness="2s", site="hall") as source:
            numbers = await source.send(
                np.arange(5) * 300_000, np.ones(5), keys=["a", "b", "a", "b", "a"], marks=None
            )
            assert numbers == range(1, 6)
            await source.send(1_200_000, 7.0, keys="a")
            await source.heartbeat(60_000_000)
            async with asyncio.timeout(PATIENCE):
                await source.flush()
            assert source.accepted == source.counted == source.sent == 7
        # Opened again it is the same source, with the same site and lateness.
        async with Source("pump", address, spool=tmp_path / "spool") as source:
            assert (source.site, source.lateness) == ("hall", 2_000_000)
            async with asyncio.timeout(PATIENCE):
                await source.flush()
            assert source.accepted == 7

    with tree(tmp_path / "tree") as running:
        asyncio.run(program(running.address))
        running.stop()
        rows = [row for row in running.rows() if row["query"] == "t"]
    assert [(row["start"], row["count"], row["values"]["sum"]) for row in rows] == [
        (0, 4, 4.0),
        (1_000_000, 2, 8.0),
    ]


async def until_it_waits(source: Source) -> str:
    async with asyncio.timeout(PATIENCE):
        while (wait := source.wait) is None:
            await asyncio.sleep(0.01)
    return wait


def test_a_source_says_what_it_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater_source.client.WAIT_SHOWN", 200_000)

    async def program() -> None:
        async with Source("pump", NOWHERE, spool=tmp_path, without_keys=True) as source:
            # Nothing is to be sent: nothing is waited for, however long that lasts.
            await asyncio.sleep(0.5)
            assert source.wait is None
            await source.send(1_700_000_000_000_000, 1.0)
            assert source.wait is None
            wait = await until_it_waits(source)
            assert wait.startswith("no progress for 0 s: no child can be reached (tried 127.0.0.1:1: ")
            assert "UNAVAILABLE" in wait

    asyncio.run(program())


def test_of_each_address_the_latest_answer_alone_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address is tried as one to begin at and as that of a child; an earlier answer says nothing more."""
    monkeypatch.setattr("headwater_source.client.WAIT_SHOWN", -1)
    with Spool.open(tmp_path, limit_bytes=1 << 20) as spool:
        spool.append(np.arange(3), np.ones(3))
        client = SourceClient("pump", None, spool)
        client._note_answer(Place("child-2", NOWHERE), "Connection refused")
        client._note_answer(Place("child-1", "127.0.0.1:2"), "no answer within 3 s")
        client._note_answer(Place("", NOWHERE), "child-2 has answered")
        assert client.wait is not None
        shown = client.wait.partition("tried ")[2].partition(")")[0]
        # What was answered before the root counted something is of another outage.
        client._progress_at = client._answers[Place("", NOWHERE)][1] + 1
        assert client.wait.endswith("(tried nobody yet)")
    assert shown == f"{NOWHERE}: child-2 has answered; child-1 at 127.0.0.1:2: no answer within 3 s"


def test_a_source_waits_when_the_root_comes_back_with_an_older_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that it has sent was counted, and then is not any more."""
    monkeypatch.setattr("headwater_source.client.WAIT_SHOWN", 200_000)
    with Spool.open(tmp_path, limit_bytes=1 << 20) as spool:
        spool.append(np.arange(100), np.ones(100))
        client, source = SourceClient("pump", None, spool), str(SourceId("pump", 1))
        machine = client.machine
        machine.connect("leaf", 0)
        machine.step("leaf", Welcome(spool.opening, source, 0, "leaf", "address"), 0)
        (sent,) = [each.message for each in machine.send(0) if isinstance(each.message, Columns)]
        machine.step("leaf", Commit(sent.stream, {source: 100}, None), 0)
        assert (machine.done, client.wait) == (True, None)
        (probe,) = [each.message for each in machine.tick(10_000_000) if isinstance(each.message, Probe)]
        older = Resync(probe.stream, probe.id, 0, {source: Standing(Prefix(17), 0, "")})
        machine.step("leaf", older, 0)
        assert not machine.done
        # That the number fell was news. Behind that nothing is counted any more.
        until = monotonic() + PATIENCE
        while client.wait is None:
            assert monotonic() < until
            sleep(0.01)


def test_a_source_whose_root_does_not_answer_names_the_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater_source.client.WAIT_SHOWN", 200_000)

    async def program() -> None:
        # A child that takes connections, and has no way up.
        child = Exchange("leaf", lambda sender, message: [], Codec())
        port = await child.serve("127.0.0.1:0")
        try:
            async with Source("pump", f"127.0.0.1:{port}", spool=tmp_path, without_keys=True) as source:
                await source.send(1_700_000_000_000_000, 1.0)
                wait = ""
                async with asyncio.timeout(PATIENCE):
                    while "leaf has answered" not in wait:
                        wait = await until_it_waits(source)
                        await asyncio.sleep(0.01)
                assert ": leaf is connected, but the root has not answered through it (tried " in wait
        finally:
            await child.close()

    asyncio.run(program())


def accepted(directory: Path, *calls: tuple[tuple[Any, ...], dict[str, Any]]) -> Batch:
    async def program() -> Batch:
        async with Source("s", NOWHERE, spool=directory, without_keys=True) as source:
            for arguments, named in calls:
                await source.send(*arguments, **named)
            batch = source.spool.read(0, 1_000)
            assert batch is not None
            return batch

    return asyncio.run(program())


def test_times_values_and_names_as_programs_have_them(tmp_path: Path) -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    at = int(noon.timestamp()) * 1_000_000
    batch = accepted(
        tmp_path,
        ((noon, 1), {}),
        (([noon, at + 1], [2.5, None]), {"keys": ["k", None], "marks": [None, "end"]}),
        ((np.array(["2026-01-31T12:00:00"], "datetime64[s]"), np.array([3])), {"keys": "é"}),
        (([np.int64(at)], [np.float32(4)]), {}),
        ((at / 1e6 + 0.5, 5), {"unit": "s"}),
    )
    assert batch.ts.tolist() == [at, at, at + 1, at, at, at + 500_000]
    assert batch.value[[0, 1, 3, 4]].tolist() == [1, 2.5, 3, 4]
    assert batch.bare is not None
    assert batch.bare.tolist() == [False, False, True, False, False, False]
    assert batch.key is not None
    assert [batch.keys[code] for code in batch.key] == ["", "k", "", "é", "", ""]
    assert batch.mark is not None
    assert batch.mark.tolist() == [-1, -1, 0, -1, -1, -1]


@pytest.mark.parametrize(
    "arguments, named, said",
    [
        ((["x"], [1.0]), {}, r"ts\[0\]: is 'x'"),
        ((1_700_000_000.5, 1.0), {}, r'ts\[0\]: is 1700000000.5, .* looks like seconds: unit="s"'),
        ((datetime(2026, 1, 1), 1.0), {}, "without a zone"),
        (([1], ["x"]), {}, r"values\[0\]: is 'x'"),
        (([1, 2], [1.0]), {}, "values: has 1 rows, ts 2"),
        (([1], [1.0]), {"keys": ["a", "b"]}, "keys: has 2 rows"),
        (([1], [1.0]), {"keys": ["k" * 1_025]}, r"keys\[0\]: is 1025 bytes"),
        (([1], [1.0]), {"marks": ["k" * 1_025]}, r"marks\[0\]: is 1025 bytes"),
    ],
)
def test_what_is_no_event_is_told(
    tmp_path: Path, arguments: tuple[Any, ...], named: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidEvents, match=said):
        accepted(tmp_path, (arguments, named))


def test_a_value_that_is_none_is_no_missing_row(tmp_path: Path) -> None:
    with pytest.raises(InvalidEvents) as refused:
        accepted(tmp_path, (([1, 2], ["x", 2.0]), {}))
    assert [problem.field for problem in refused.value.problems] == ["values[0]"]


@pytest.mark.parametrize("name", ["", "a\0b", "a\nb", "\x7f", "x" * 254])
def test_names_that_do_not_print_are_refused(name: str) -> None:
    with pytest.raises(InvalidSource, match="name:"):
        Source(name, NOWHERE)
    given = document(QUERIES)
    given["spec"]["sources"][0]["class"] = name
    with pytest.raises(InvalidTopology):
        topology_of(given)
    assert source_name_problem(name) is not None
    assert source_name_problem("Pumpe 7, Süd") is None


def test_what_cannot_be_opened_is_told(tmp_path: Path) -> None:
    for wrong in ({"lateness": "soon"}, {"lateness": -1}, {"address": ""}):
        with pytest.raises(InvalidSource):
            Source(**{"name": "s", "address": NOWHERE} | wrong)
    source = Source("s", NOWHERE, spool=tmp_path, without_keys=True)
    with pytest.raises(InvalidSource, match="async with"):
        asyncio.run(source.send(1, 1))
    accepted(tmp_path, ((1, 1), {}))
    with pytest.raises(InvalidSource, match="is that of 's'"):
        Source("t", NOWHERE, spool=tmp_path).open()
    (tmp_path / "origin.json").write_text("{")
    with pytest.raises(HeadwaterError, match="restore it"):
        Source("s", NOWHERE, spool=tmp_path).open()
    # It was let go of each time.
    Spool.open(tmp_path, limit_bytes=1 << 20).close()


def test_a_full_spool_makes_the_caller_wait(tmp_path: Path) -> None:
    async def program() -> None:
        async with Source("s", NOWHERE, spool=tmp_path, spool_bytes=64 << 10, without_keys=True) as source:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await source.send(np.arange(10_000), np.ones(10_000))
            assert 0 < source.accepted < 10_000

    asyncio.run(program())


def test_nobody_waits_for_room_once_sending_has_failed(tmp_path: Path) -> None:
    async def program() -> None:
        async with Source("s", NOWHERE, spool=tmp_path, spool_bytes=64 << 10, without_keys=True) as source:
            assert source._client is not None
            sending = asyncio.create_task(source.send(np.arange(10_000), np.ones(10_000)))
            before = -1
            while before < source.accepted or not before:
                before = source.accepted
                await asyncio.sleep(0.1)
            source._client._fail(RuntimeError("the disk failed"))
            async with asyncio.timeout(PATIENCE):
                with pytest.raises(RuntimeError, match="the disk failed"):
                    await sending

    asyncio.run(program())


def test_many_long_keys_fit(tmp_path: Path) -> None:
    keys = [f"{n:0900d}" for n in range(2_000)]
    found: list[str] = []

    async def program() -> None:
        async with Source("s", NOWHERE, spool=tmp_path, spool_bytes=4 << 20) as source:
            await source.send(np.arange(2_000), np.ones(2_000), keys=keys)
            while (batch := source.spool.read(len(found), 5_000)) is not None:
                assert batch.key is not None
                found.extend(batch.keys[code] for code in batch.key)

    asyncio.run(program())
    assert found == keys


# Origins


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 9), st.booleans()), min_size=1, max_size=12
    )
)
def test_every_record_of_every_input_is_taken_once(steps: list[tuple[str, int, bool]]) -> None:
    """Inputs in any order, each cut short after some records; a crash settles nothing before it ends."""
    beginnings = {name: Beginning(1, name) for name in "abc"}
    found, head = Origin("s"), 0
    taken = dict.fromkeys("abc", 0)
    for name, records, crash in steps:
        found = found.settled(head)
        known = next((each for each in reversed(found.inputs) if each.beginning == beginnings[name]), None)
        before = 0 if known is None else known.accepted
        assert before == taken[name]
        found = found.begun(beginnings[name], head, before)
        head += records
        taken[name] += records
        if not crash:
            found = found.settled(head)
            # A heartbeat, which is of no input.
            head += 1


def test_an_origin_is_kept(tmp_path: Path) -> None:
    assert origin.read(tmp_path, "s") is None
    file = tmp_path / "x.csv"
    file.write_bytes(b"ts,value\n1,1\n2,2\nbad\n3,3\n")
    beginning = Beginning.of(file)
    assert beginning is not None
    found = Origin("s", "hall", 7).begun(beginning, 5)
    origin.write(tmp_path, found)
    assert origin.read(tmp_path, "s") == found
    # Mended behind what was accepted it is the same input, and another one if it begins in another way.
    found = found.shortened(file, 17).settled(7)
    file.write_bytes(b"ts,value\n1,1\n2,2\n2,5\n3,3\n4,4\n")
    known = found.known(file)
    assert known is not None
    assert known.accepted == 2
    file.write_bytes(b"ts,value\n1,1\n2,3\n")
    assert found.known(file) is None
    assert json.loads((tmp_path / "origin.json").read_bytes())["name"] == "s"


@given(st.text(min_size=1, max_size=80), st.text(min_size=1, max_size=80))
def test_every_source_has_a_directory_of_its_own(one: str, other: str) -> None:
    names = [origin.directory_name(each) for each in (one, other)]
    assert (names[0] == names[1]) == (one == other)
    assert all(name not in (".", "..") and "/" not in name and len(name) <= 255 for name in names)


def test_events_without_rows_are_nothing(tmp_path: Path) -> None:
    async def program() -> None:
        async with Source("s", NOWHERE, spool=tmp_path) as source:
            assert not await source.append(Events(np.empty(0, np.int64), np.empty(0)))

    asyncio.run(program())


PLAIN = [{"id": "t", "aggregate": "count", "window": {"type": "tumbling", "length": "1s"}}]
BEGIN = 1_700_000_000_000_000


async def connected(source: Source) -> None:
    async with asyncio.timeout(PATIENCE):
        while not source.connected:
            await asyncio.sleep(0.02)


def test_values_without_any_key_are_refused_where_queries_compute_by_key(tmp_path: Path) -> None:
    async def program(address: str) -> None:
        async with Source("s", address, spool=tmp_path / "s") as source:
            await connected(source)
            # A heartbeat and a mark have no key, and need none.
            await source.heartbeat(BEGIN)
            await source.send(BEGIN, marks="begin")
            for keys in (None, "", [None, ""]):
                with pytest.raises(
                    MissingKeys, match=r"keys: are missing: .*\(keyBy: key\).*without_keys=True"
                ):
                    await source.send([BEGIN, BEGIN + 1], [1.0, 2.0], keys=keys)
            assert (source.accepted, source.warning) == (2, None)
            # Once one event has had a key, others need none, also when the source is opened again.
            await source.send([BEGIN + 1, BEGIN + 2], [1.0, 2.0], keys=[None, "a"])
            await source.send(BEGIN + 3, 3.0)
        async with Source("s", address, spool=tmp_path / "s") as source:
            await connected(source)
            await source.send(BEGIN + 4, 4.0)
            assert (source.accepted, source.warning) == (6, None)
        async with Source("t", address, spool=tmp_path / "t", without_keys=True) as source:
            await connected(source)
            await source.send(BEGIN, 1.0)
            assert (source.accepted, source.warning) == (1, None)

    with tree(tmp_path / "tree", expected=2) as running:
        asyncio.run(program(running.address))


def test_the_first_values_without_a_key_wait_for_the_root_to_answer(tmp_path: Path) -> None:
    async def program(address: str) -> None:
        async with Source("s", address, spool=tmp_path / "s") as source:
            with pytest.raises(MissingKeys):
                await source.send(BEGIN, 1.0)
            assert source.accepted == 0

    with tree(tmp_path / "tree") as running:
        asyncio.run(program(running.address))


def test_what_was_accepted_without_a_connection_is_sent_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def program(running: Tree) -> None:
        async with Source("s", running.address, spool=tmp_path / "s") as source:
            await source.send(BEGIN, 1.0)
            assert (source.accepted, source.connected, source.warning) == (1, False, None)
            await asyncio.to_thread(running.child, running.address)
            async with asyncio.timeout(PATIENCE):
                await source.flush()
            warning = source.warning or ""
            assert "(keyBy: key), but no event of this source has had a key" in warning
            assert "what follows without a key is refused" in warning
            assert [each.message for each in caplog.records].count("events without a key") == 1
            with pytest.raises(MissingKeys):
                await source.send(BEGIN + 1, 2.0)
            await source.send(BEGIN + 1, 2.0, keys="a")
            assert (source.accepted, source.warning) == (2, None)

    with tree(tmp_path / "tree") as running:
        running.running[-1].kill()
        running.running[-1].wait()
        asyncio.run(program(running))


def test_a_query_that_is_added_later_does_not_stop_a_source_without_keys(tmp_path: Path) -> None:
    query = tmp_path / "query.json"
    query.write_text(json.dumps(QUERIES[1]))

    async def program(running: Tree) -> None:
        async with Source("s", running.address, spool=tmp_path / "s") as source:
            await source.send(BEGIN, 1.0)
            async with asyncio.timeout(PATIENCE):
                await source.flush()
            assert source.warning is None
        done = CliRunner().invoke(main, ["query", "add", str(query), "--root", f"127.0.0.1:{running.above}"])
        assert done.exit_code == 0, done.output
        # Another process of the same source, which hears of the query at once.
        async with Source("s", running.address, spool=tmp_path / "s") as source:
            await connected(source)
            await source.send(BEGIN + 1, 2.0)
            assert source.warning is not None
            assert "(keyBy: key)" in source.warning
            assert "refused" not in source.warning
        # One that comes anew has never worked.
        async with Source("t", running.address, spool=tmp_path / "t") as source:
            with pytest.raises(MissingKeys):
                await source.send(BEGIN, 1.0)

    with tree(tmp_path / "tree", expected=2, queries=PLAIN) as running:
        asyncio.run(program(running))


def test_a_spool_of_the_release_before_goes_on_without_keys(tmp_path: Path) -> None:
    directory = tmp_path / "s"
    with Spool.open(directory, limit_bytes=1 << 20) as spool:
        spool.append(np.array([BEGIN]), np.ones(1))
    given = {"format": 1, "name": "s", "site": "", "lateness": 0, "inputs": []}
    (directory / "origin.json").write_text(json.dumps(given))

    async def program(address: str) -> None:
        async with Source("s", address, spool=directory) as source:
            await connected(source)
            await source.send(BEGIN + 1, 2.0)
            assert source.accepted == 2
            assert source.warning is not None

    with tree(tmp_path / "tree") as running:
        asyncio.run(program(running.address))


def unused_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@asynccontextmanager
async def welcoming(key_by: str | None, port: int = 0, silent: str = "") -> AsyncIterator[str]:
    """A child at which the root answers hellos alone, and those of one source not; gives its address."""

    def answer(sender: str, message: Message) -> Sequence[Send]:
        if not isinstance(message, Hello) or message.name == silent:
            return []
        source = str(SourceId(message.name, 1))
        welcome = Welcome(message.opening, source, 0, "leaf", f"127.0.0.1:{port}", key_by)
        return [Send(sender, welcome)]

    child = Exchange("leaf", answer, Codec())
    port = await child.serve(f"127.0.0.1:{port}")
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await child.close()


def test_calls_with_a_timeout_are_accepted_once_the_root_has_had_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that bounds each call goes on without a root, whatever the bound."""
    monkeypatch.setattr("headwater_source.answers.ANSWER_SECONDS", 1.0)

    async def program() -> None:
        async with Source("s", NOWHERE, spool=tmp_path) as source:
            begin, calls = monotonic(), 0
            while not source.accepted:
                assert monotonic() - begin < PATIENCE
                calls += 1
                try:
                    async with asyncio.timeout(0.3):
                        await source.send(BEGIN, 1.0)
                except TimeoutError:
                    continue
            # A connection that fails is no answer.
            assert monotonic() - begin >= 0.9
            assert calls > 1
            async with asyncio.timeout(0.3):
                await source.send(BEGIN + 1, 2.0)

    asyncio.run(program())


def test_the_sources_of_a_process_wait_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater_source.answers.ANSWER_SECONDS", 1.0)

    async def program() -> None:
        sources = [Source(f"s{n}", NOWHERE, spool=tmp_path / f"s{n}") for n in range(8)]
        begin = monotonic()
        for source in sources:
            source.open()
            source.start()
            await source.send(BEGIN, 1.0)
        assert 0.9 <= monotonic() - begin < 5
        await asyncio.gather(*(source.close() for source in sources))

    asyncio.run(program())


@pytest.mark.parametrize("key_by", ["machine", ""])
def test_what_one_source_has_heard_holds_for_the_others(tmp_path: Path, key_by: str) -> None:
    async def program() -> None:
        async with (
            welcoming(key_by, silent="t") as address,
            Source("s", address, spool=tmp_path / "s") as source,
            Source("t", address, spool=tmp_path / "t") as other,
        ):
            await connected(source)
            assert not other.connected
            async with asyncio.timeout(2):
                if key_by:
                    with pytest.raises(MissingKeys):
                        await other.send(BEGIN, 1.0)
                else:
                    await other.send(BEGIN, 1.0)
            assert other.accepted == (0 if key_by else 1)
        # Only what a source has heard itself is kept.
        found = origin.read(tmp_path / "t", "t")
        assert found is not None
        assert (found.keys, found.unanswered) == ("none", not key_by)

    asyncio.run(program())


def test_a_connection_that_fails_at_first_does_not_switch_the_refusal_off(tmp_path: Path) -> None:
    port = unused_port()

    async def program() -> None:
        async with Source("s", f"127.0.0.1:{port}", spool=tmp_path) as source:
            sending = asyncio.create_task(source.send(BEGIN, 1.0))
            async with asyncio.timeout(PATIENCE):
                while source.problem is None:
                    await asyncio.sleep(0.02)
            await asyncio.sleep(0.2)
            assert not sending.done()
            async with welcoming("machine", port):
                with pytest.raises(MissingKeys):
                    await sending
            assert source.accepted == 0

    asyncio.run(program())


def test_what_was_accepted_without_an_answer_is_told_of_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater_source.answers.ANSWER_SECONDS", 0.2)

    async def accept() -> None:
        async with Source("s", NOWHERE, spool=tmp_path) as source:
            await source.send(BEGIN, 1.0)

    async def go_on(*, keyed: bool, without_keys: bool = False) -> str | None:
        async with (
            welcoming("machine") as address,
            Source("s", address, spool=tmp_path, without_keys=without_keys) as source,
        ):
            if keyed:
                await source.send(BEGIN + 1, 2.0, keys="a")
            await connected(source)
            if not (keyed or without_keys):
                with pytest.raises(MissingKeys):
                    await source.send(BEGIN + 1, 2.0)
            return source.warning

    asyncio.run(accept())
    for _ in range(2):
        warning = asyncio.run(go_on(keyed=False)) or ""
        assert "(keyBy: machine), but no event of this source has had a key" in warning
        assert "what follows without a key is refused" in warning
    # With keys from now on, those of before are still without one.
    warning = asyncio.run(go_on(keyed=True)) or ""
    assert (
        "were accepted without a key before the root had answered: they count under one empty key" in warning
    )
    # Who says that this is meant hears no more of it.
    assert asyncio.run(go_on(keyed=False, without_keys=True)) is None
    assert asyncio.run(go_on(keyed=True)) is None


@pytest.mark.parametrize("key_by, keys", [(None, "none"), ("", "optional")])
def test_that_no_key_is_needed_is_remembered_only_if_the_root_has_said_so(
    tmp_path: Path, key_by: str | None, keys: str
) -> None:
    async def program() -> None:
        async with welcoming(key_by) as address, Source("s", address, spool=tmp_path) as source:
            await connected(source)
            # An answer that does not say it is one too: nobody waits for another.
            async with asyncio.timeout(2):
                await source.send(BEGIN, 1.0)
            assert (source.accepted, source.warning) == (1, None)

    asyncio.run(program())
    found = origin.read(tmp_path, "s")
    assert found is not None
    assert (found.keys, found.unanswered) == (keys, key_by is None)
