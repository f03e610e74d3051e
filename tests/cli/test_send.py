"""`headwater send` as a user calls it, into a real tree, compared with the oracle."""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from headwater_cli.app import main
from headwater_cli.feeds import Kept, beat
from headwater_cli.heartbeats import AFTER
from headwater_cli.sending import Options, Sending, as_json
from headwater_source import Source
from headwater_source.client import SourceClient
from headwater_source.columns import Coded, Events
from headwater_source.readers import Reader, columns_of, open_input
from headwater_source.readers.csvlines import CsvReader
from headwater_source.spool import Spool
from tests.patience import PATIENCE
from tests.tree.processes import Tree, tree

COMMAND = [sys.executable, "-m", "headwater_cli", "send"]
LATENESS = 1_000_000
# What is sent to one tree lies within its horizon.
NOW = time.time_ns() // 1_000
BEGIN = 1_700_000_000_000_000
NOWHERE = "127.0.0.1:1"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Tree]:
    with tree(tmp_path / "tree") as found:
        yield found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    """For tests that ask only whether everything was counted."""
    with tree(tmp_path_factory.mktemp("shared")) as found:
        yield found


def send(there: Tree | str, *arguments: object, spool: Path) -> Result:
    to = there if isinstance(there, str) else there.address
    return CliRunner().invoke(main, ["send", *map(str, arguments), "--to", to, "--spool", str(spool)])


def summary(done: Result) -> dict[str, Any]:
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def lines(count: int, seed: int = 1, source: str | None = None, begin: int = BEGIN) -> list[str]:
    """Records in some disorder, some of them late."""
    rng = random.Random(seed)
    found = []
    for n in range(count):
        ts = begin + n * 1_000 - (rng.randrange(2 * LATENESS) if rng.random() < 0.1 else 0)
        row = f"{ts},{rng.randrange(-50, 50)},k{rng.randrange(3)}"
        found.append(row if source is None else f"{row},{source}")
    return found


def written(path: Path, rows: Iterable[str], header: str = "ts,value,key") -> Path:
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def kept(path: Path, name: str = "s") -> Kept:
    """What a file says of a source, and the heartbeat of --end."""
    found = Kept(name, "", LATENESS)
    parts = list(open_input(str(path)))
    for part in parts:
        found.kept += [events for source, events in part.by_source("s") if source == name]
    found.kept.append(beat(max(int(part.ts.max()) for part in parts) + AFTER))
    return found


def test_a_file_is_counted_once_however_often_it_is_sent(running: Tree, tmp_path: Path) -> None:
    path = written(tmp_path / "x.csv", lines(3_000))
    given = ("--name", "s", "--lateness", "1s", "--json")
    spool = tmp_path / "spools"
    done = send(running, path, *given, spool=spool)
    assert done.exit_code == 0, done.stderr
    said = summary(done)
    assert said["read"] == said["accepted"] == said["counted"] == said["sent"] == 3_000
    assert said["left"] == 0
    # The same again: nothing is sent. Longer: what is new is.
    done = send(running, path, *given, spool=spool)
    assert done.exit_code == 0, done.stderr
    assert "3,000 records" in done.stderr
    assert (summary(done)["before"], summary(done)["accepted"]) == (3_000, 0)
    written(path, lines(4_000))
    done = send(running, path, *given, "--end", spool=spool)
    assert done.exit_code == 0, done.stderr
    assert (summary(done)["before"], summary(done)["accepted"]) == (3_000, 1_000)
    running.stop()
    assert running.differing([kept(path)]) == 0
    assert len(running.rows()) > 10


def test_killed_in_the_midst_and_sent_again_it_is_exact(running: Tree, tmp_path: Path) -> None:
    """The sender is killed several times, the child once; every event is counted once."""
    path = written(tmp_path / "x.csv", lines(40_000))
    arguments = [path, "--name", "s", "--lateness", "1s", "--rate", 10_000, "--end", "--json"]
    command = [*COMMAND, *map(str, arguments), "--to", running.address, "--spool", str(tmp_path / "spools")]
    spool = tmp_path / "spools" / "s"
    for size in (100_000, 300_000):
        killed = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            until_spooled(spool, size)
        finally:
            killed.kill()
            killed.wait()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            until_spooled(spool, 500_000)
            running.running[-1].kill()
            running.running[-1].wait()
            running.child(running.address)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, err
    said = json.loads(out)
    assert 0 < said["before"] < 40_000
    assert said["before"] + said["accepted"] == said["read"] == 40_000
    running.stop()
    assert running.differing([kept(path)]) == 0


def until_spooled(directory: Path, size: int) -> None:
    """Wait until so many bytes are in the segments of a spool."""
    until = time.monotonic() + 20
    while sum(path.stat().st_size for path in directory.glob("*.seg")) < size:
        assert time.monotonic() < until, "nothing was accepted"
        time.sleep(0.01)


def test_a_bad_record_stops_it_and_is_mended(running: Tree, tmp_path: Path) -> None:
    rows = lines(50)
    path = written(tmp_path / "x.csv", [*rows[:20], "nonsense,1,k", *rows[20:]])
    given = ("--name", "s", "--lateness", "1s", "--json")
    spool = tmp_path / "spools"
    done = send(running, path, *given, spool=spool)
    assert done.exit_code == 1
    assert f"{path}, line 22: ts: is 'nonsense'" in done.stderr
    assert (summary(done)["accepted"], summary(done)["counted"]) == (20, 20)
    # Mended, with another length: nothing is sent twice.
    written(path, rows)
    done = send(running, path, *given, "--end", spool=spool)
    assert done.exit_code == 0, done.stderr
    assert (summary(done)["before"], summary(done)["accepted"]) == (20, 30)
    running.stop()
    assert running.differing([kept(path)]) == 0


def test_bad_records_are_passed_over_and_counted(tmp_path: Path) -> None:
    rows = lines(50)
    path = written(tmp_path / "x.csv", [*rows[:20], "nonsense,1,k", *rows[20:]])
    done = send(NOWHERE, path, "--name", "s", "--skip-bad", "--timeout", "0s", spool=tmp_path / "spools")
    assert done.exit_code == 3, done.stderr
    assert "line 22" in done.stderr
    assert "1 bad records passed over" in done.stdout
    assert "50 accepted" in done.stdout


def test_a_column_of_sources_is_one_spool_each(tmp_path: Path) -> None:
    rows = [row for three in zip(*(lines(500, n, f"s{n}") for n in range(3)), strict=True) for row in three]
    path = written(tmp_path / "x.csv", rows, "ts,value,key,source")
    with tree(tmp_path / "tree", expected=3) as running:
        done = send(running, path, "--lateness", "1s", "--end", "--json", spool=tmp_path / "spools")
        assert done.exit_code == 0, done.stderr
        assert (summary(done)["sources"], summary(done)["counted"]) == (3, 1_503)
        assert sorted(each.name for each in (tmp_path / "spools").iterdir()) == ["s0", "s1", "s2"]
        running.stop()
        assert running.differing([kept(path, f"s{n}") for n in range(3)]) == 0
        assert running.rows()


def test_a_pipe_trickles_and_ctrl_c_leaves_the_rest_in_the_spool(running: Tree, tmp_path: Path) -> None:
    spool = tmp_path / "spools"
    command = [*COMMAND, "-", "--format", "csv", "--name", "s", "--json", "--to", running.address]
    with subprocess.Popen(
        [*command, "--spool", str(spool), "--time-unit", "us", "--without-keys"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(b"ts,value\n1000000,1\n")
            process.stdin.flush()
            until_there(spool / "s", 1)
            for n in range(3):
                process.stdin.write(b"%d,1\n" % (1_000_001 + n))
                process.stdin.flush()
                # It does not wait for more: none comes.
                until_there(spool / "s", 2 + n)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE)
            assert process.returncode == 130, err
            assert json.loads(out)["accepted"] == 4
            assert b"Traceback" not in err
        finally:
            process.kill()
    # Without anybody at the other end it is accepted all the same, and sent later.
    path = written(tmp_path / "x.csv", ["2000000,1"], "ts,value")
    options = ("--name", "s", "--time-unit", "us", "--timeout", "300ms", "--json")
    done = send(NOWHERE, path, *options, spool=spool)
    assert done.exit_code == 3, done.stderr
    assert summary(done)["left"] >= 1
    assert "--resume" in done.stderr
    done = send(running, "--resume", "--name", "s", "--heartbeat-at", 9_000_000, "--json", spool=spool)
    assert done.exit_code == 0, done.stderr
    assert summary(done)["left"] == 0
    running.stop()
    assert [row["count"] for row in running.rows() if row["query"] == "t"] == [4, 1]


def test_a_silent_arrow_pipe_ends_by_sigterm(shared: Tree, tmp_path: Path) -> None:
    spool = tmp_path / "spools"
    command = [*COMMAND, "-", "--format", "arrow", "--name", "silent", "--json", "--to", shared.address]
    table = pa.table({"ts": [NOW, NOW + 1], "value": [1.0, 2.0], "key": ["k", "k"]})
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
        data = stream.getvalue()
    with subprocess.Popen(
        [*command, "--spool", str(spool)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        try:
            assert process.stdin is not None
            # Without its end: more may come.
            process.stdin.write(data)
            until_spooled(spool / "silent", 60)
            process.terminate()
            assert process.wait(PATIENCE) == 143
            assert process.stdout is not None
            assert json.loads(process.stdout.read())["accepted"] == 2
        finally:
            process.kill()


def until_there(directory: Path, count: int, patience: float = PATIENCE) -> None:
    """Wait until a spool holds so many times, without opening it: another process has it."""
    until = time.monotonic() + patience
    while times_in(directory) < count:
        assert time.monotonic() < until, "it does not come through"
        time.sleep(0.005)


def times_in(directory: Path) -> int:
    found = []
    for path in sorted(directory.glob("*.seg")):
        data = np.frombuffer(path.read_bytes()[: path.stat().st_size // 4 * 4], "<u4")
        found += [value for value in data.tolist() if 1_000_000 <= value < 1_000_010]
    return len(found)


def test_a_full_spool_waits(shared: Tree, tmp_path: Path) -> None:
    path = written(tmp_path / "x.csv", lines(120_000, begin=NOW))
    done = send(shared, path, "--name", "full", "--spool-mib", 1, "--json", spool=tmp_path / "spools")
    assert done.exit_code == 0, done.stderr
    assert summary(done)["counted"] == 120_000


def test_heartbeats_of_the_clock_and_a_generator(shared: Tree, tmp_path: Path) -> None:
    done = send(
        shared, "--generator", "--name", "g", "--rate", 50, "--seconds", 3, "--heartbeat", "50ms", "--json",
        spool=tmp_path / "spools",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    said = summary(done)
    assert said["accepted"] == 150
    assert 5 < said["heartbeats"] < 120
    assert said["counted"] == said["accepted"] + said["heartbeats"]


async def until_heartbeats(sending: Sending, count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while sending.summary.heartbeats < count:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("name", [None, "gateway-1"])
def test_heartbeats_open_no_source_beside_those_that_records_name(tmp_path: Path, name: str | None) -> None:
    said = Coded.of(["s0", "s1"])

    def parts() -> Iterator[Events]:
        ts = np.array([NOW, NOW])
        yield Events(ts, np.ones(2), key=Coded.of(["k", "k"]), source=said)
        until = time.monotonic() + PATIENCE
        while sending.summary.heartbeats < 4 and time.monotonic() < until:
            time.sleep(0.01)
        yield Events(ts + 1, np.ones(2), key=Coded.of(["k", "k"]), source=said)

    options = Options(NOWHERE, name=name, spool=tmp_path, heartbeat=200_000, timeout=0)
    sending = Sending(options, print)
    with pytest.raises(TimeoutError):
        asyncio.run(sending.run(parts()))
    assert sending.summary.heartbeats >= 4
    assert sorted(each.name for each in tmp_path.iterdir()) == ["s0", "s1"]


@pytest.mark.parametrize("header, is_opened", [("ts,value,key", True), ("ts,value,key,source", False)])
def test_a_silent_input_has_heartbeats_of_its_name_unless_its_header_has_sources(
    tmp_path: Path, header: str, is_opened: bool
) -> None:
    path, spools = tmp_path / "x", tmp_path / "spools"
    os.mkfifo(path)
    options = Options(NOWHERE, name="silent", spool=spools, heartbeat=50_000, timeout=0)
    sending = Sending(options, print)

    async def program() -> None:
        with open(os.open(path, os.O_RDWR), "wb", buffering=0) as pipe:
            pipe.write(f"{header}\n".encode())
            reader = open_input(str(path), "csv")
            running = asyncio.create_task(sending.run(reader))
            if is_opened:
                await until_heartbeats(sending, 2)
            else:
                await asyncio.sleep(0.5)
            pipe.write(f"{NOW},1,k{'' if is_opened else ',s'}\n".encode())
        with pytest.raises(TimeoutError):
            await running

    asyncio.run(program())
    assert [each.name for each in spools.iterdir()] == (["silent"] if is_opened else ["s"])


def test_an_input_that_is_being_parsed_is_not_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies in a pipe is older than a heartbeat of now: its events would be late."""
    path, table = tmp_path / "x", CsvReader._table

    def slowly(reader: CsvReader, data: bytes) -> Any:
        time.sleep(1)
        return table(reader, data)

    monkeypatch.setattr(CsvReader, "_table", slowly)
    os.mkfifo(path)
    options = Options(NOWHERE, name="s", spool=tmp_path / "spools", heartbeat=50_000, timeout=0)
    sending = Sending(options, print)

    async def program() -> None:
        with open(os.open(path, os.O_RDWR), "wb", buffering=0) as pipe:
            pipe.write(f"ts,value,key\n{NOW},1,k\n".encode())
            reader = open_input(str(path), "csv")
            running = asyncio.create_task(sending.run(reader))
            async with asyncio.timeout(PATIENCE):
                while not sending.summary.read:
                    await asyncio.sleep(0.01)
            assert sending.summary.heartbeats == 0
            # Then there is nothing to read any more.
            await until_heartbeats(sending, 2)
        with pytest.raises(TimeoutError):
            await running

    asyncio.run(program())


def test_a_source_that_has_nothing_to_send_is_named_and_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater_cli.sending.EMPTY_SECONDS", 0.3)
    path = written(tmp_path / "x.csv", [])
    done = send(NOWHERE, path, "--name", "s", "--json", spool=tmp_path / "spools")
    assert done.exit_code == 0, done.stderr
    said = summary(done)
    assert (said["ok"], said["connected"], said["left"]) == (True, False, 0)
    assert said["waits"]["s"].startswith("not taken in for 0 s: ")
    assert NOWHERE in said["waits"]["s"]
    assert "; nothing of it is left to send" in done.stderr


def test_late_and_rejected_events_are_settled_and_not_said_to_be_counted(
    running: Tree, tmp_path: Path
) -> None:
    path = written(
        tmp_path / "x.csv", [f"{BEGIN + 9_000_000},1,k", f"{BEGIN},2,k", f"{BEGIN + 9_000_001},3,k"]
    )
    done = send(running, path, "--name", "s", "--lateness", "1s", spool=tmp_path / "spools")
    assert done.exit_code == 0, done.stderr
    assert "3 settled by the root, 0 waiting" in done.stdout
    assert "settled are late and rejected events too, which headwater status tells apart" in done.stdout
    status = CliRunner().invoke(main, ["status", "--root", f"127.0.0.1:{running.above}", "--json"])
    totals = summary(status)["totals"]
    assert (totals["counted"], totals["late"]) == (2, 1)


def test_what_waits_is_not_guessed_before_it_is_connected(shared: Tree, tmp_path: Path) -> None:
    path = written(tmp_path / "x.csv", lines(300, begin=NOW))
    spool = tmp_path / "spools"
    done = send(shared, path, "--name", "known", spool=spool)
    assert done.exit_code == 0, done.stderr
    assert "300 settled by the root, 0 waiting" in done.stdout
    # All of it is counted, which only the root knows.
    done = send(NOWHERE, path, "--name", "known", "--timeout", "0s", spool=spool)
    assert done.exit_code == 3
    assert f"300 read, 0 accepted, not connected to {NOWHERE} yet" in done.stdout
    assert "waiting" not in done.output
    done = send(NOWHERE, path, "--name", "known", "--timeout", "0s", "--json", spool=spool)
    assert not summary(done)["connected"]
    assert "known: " in summary(done)["problem"]
    assert NOWHERE in summary(done)["problem"]
    done = send(shared, path, "--name", "known", "--json", spool=spool)
    assert (summary(done)["connected"], summary(done)["left"]) == (True, 0)
    assert (summary(done)["problem"], summary(done)["fenced"]) == (None, {})


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_sender_that_makes_no_progress_says_whom_it_has_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    monkeypatch.setattr("headwater_source.client.WAIT_SHOWN", 200_000)
    # The sources do not begin at one moment: it is said again once all of them wait.
    monkeypatch.setattr("headwater_cli.sending.WAIT_SECONDS", 0.0)
    path = written(tmp_path / "x.csv", [f"{NOW + n},1,k,s{n}" for n in range(5)], "ts,value,key,source")
    done = send(NOWHERE, path, "--timeout", "5s", *more, spool=tmp_path / "spools")
    assert done.exit_code == 3
    # On the terminal, the first of them, and how many more.
    assert f"s0: no progress for 0 s: no child can be reached (tried {NOWHERE}: " in done.stderr
    assert "2 more sources wait" in done.stderr
    if more:
        waits = summary(done)["waits"]
        assert waits.keys() == {f"s{n}" for n in range(5)}
        assert all(f"(tried {NOWHERE}: " in wait for wait in waits.values())


@pytest.mark.parametrize("content", ["", "ts,value\n"])
def test_an_input_without_events_is_said_to_be_one(shared: Tree, tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(content)
    done = send(shared, path, "--name", f"empty-{len(content)}", spool=tmp_path / "spools")
    assert done.exit_code == 0, done.stderr
    assert f"{path} holds no events: nothing was sent of it\n" in done.stderr
    again = send(shared, path, "--name", f"empty-{len(content)}", "--end", spool=tmp_path / "spools")
    assert again.exit_code == 0
    assert "not even the heartbeat of --end; give its time with --heartbeat-at" in again.stderr


def test_a_status_counts_events_without_heartbeats(running: Tree, tmp_path: Path) -> None:
    path = written(tmp_path / "x.csv", [f"{BEGIN + n},1,k" for n in range(50)])
    done = send(running, path, "--name", "s", "--end", "--json", spool=tmp_path / "spools")
    assert (summary(done)["counted"], summary(done)["heartbeats"]) == (51, 1)
    done = CliRunner().invoke(main, ["status", "--root", f"127.0.0.1:{running.above}", "--json"])
    totals = summary(done)["totals"]
    assert (totals["accepted"], totals["counted"], totals["late"], totals["rejected"]) == (50, 50, 0, 0)
    assert summary(done)["sources"][0]["position"] == 51


def test_the_command_that_is_shown_for_the_rest_sends_it(running: Tree, tmp_path: Path) -> None:
    """Typed as it stands there; only the address, where nobody listens yet, is another one."""
    path = written(tmp_path / "x.csv", lines(30))
    given = ("--name", "its name", "--spool-mib", 7, "--child", "c", "--timeout", "0s")
    done = send(NOWHERE, path, *given, spool=tmp_path / "my spools")
    assert done.exit_code == 3, done.stderr
    [shown] = re.findall(r"; `headwater (.*)` sends them", done.stderr)
    words = shlex.split(shown)
    assert words[words.index("--spool-mib") + 1] == "7"
    assert words[words.index("--child") + 1] == "c"
    words[words.index("--to") + 1] = running.address
    done = CliRunner().invoke(main, [*words, "--json"])
    assert done.exit_code == 0, done.stderr
    assert (summary(done)["left"], sorted(each.name for each in tmp_path.glob("*spools"))) == (
        0,
        ["my spools"],
    )
    status = CliRunner().invoke(main, ["status", "--root", f"127.0.0.1:{running.above}", "--json"])
    assert summary(status)["totals"]["accepted"] == 30


def test_one_command_resumes_several_sources(running: Tree, tmp_path: Path) -> None:
    rows = [f"{BEGIN + n},1,k,s {n % 3}" for n in range(90)]
    path = written(tmp_path / "x.csv", rows, "ts,value,key,source")
    done = send(NOWHERE, path, "--timeout", "0s", spool=tmp_path / "spools")
    assert done.exit_code == 3, done.stderr
    [shown] = re.findall(r"; `headwater (.*)` sends them", done.stderr)
    words = shlex.split(shown)
    words[words.index("--to") + 1] = running.address
    done = CliRunner().invoke(main, [*words, "--json"])
    assert done.exit_code == 0, done.stderr
    found = summary(done)
    assert (found["sources"], found["resumed"], found["sent"], found["counted"], found["left"]) == (
        3,
        90,
        90,
        90,
        0,
    )
    assert (found["read"], found["accepted"]) == (0, 0)
    # What is known to be settled does not wait any more.
    done = CliRunner().invoke(main, words)
    assert "0 resumed from the spool, 0 sent, 0 settled by the root, 0 waiting" in done.stdout
    assert send(NOWHERE, path, "--name", "a", "--name", "b", spool=tmp_path / "spools").exit_code == 2


def test_what_is_resumed_ends_with_a_heartbeat_behind_its_latest_event(running: Tree, tmp_path: Path) -> None:
    path = written(tmp_path / "x.csv", [f"{BEGIN + n},1,k" for n in range(90)])
    assert send(NOWHERE, path, "--name", "s", "--timeout", "0s", spool=tmp_path / "spools").exit_code == 3
    for resumed in (90, 0):
        done = send(running, "--resume", "--name", "s", "--end", "--json", spool=tmp_path / "spools")
        assert done.exit_code == 0, done.stderr
        found = summary(done)
        assert (found["resumed"], found["counted"], found["heartbeats"]) == (resumed, resumed + 1, 1)
        # Also when it is sent once more, it is the same time: an hour behind the last event.
        with Spool.open(tmp_path / "spools" / "s", limit_bytes=1 << 20) as spool:
            last = spool.read(spool.head - 1, 1)
            assert last is not None
            assert last.ts.tolist() == [BEGIN + 89 + AFTER]


def test_what_is_resumed_without_an_event_has_no_end_to_go_by(shared: Tree, tmp_path: Path) -> None:
    with Spool.open(tmp_path / "empty", limit_bytes=1 << 20):
        pass
    done = send(shared, "--resume", "--name", "empty", "--end", "--json", spool=tmp_path)
    assert done.exit_code == 0, done.stderr
    assert "the spool holds no event any more that --end could go by" in done.stderr
    assert summary(done)["heartbeats"] == 0


def test_nothing_is_resumed_where_there_is_no_spool(tmp_path: Path) -> None:
    """A wrong name or directory is a mistake, and not an empty spool."""
    done = send(NOWHERE, "--resume", "--name", "s", "--timeout", "0s", spool=tmp_path / "spools")
    assert done.exit_code == 1
    assert f"spool: there is none in {tmp_path / 'spools' / 's'}; give the --name and --spool" in done.stderr
    assert not (tmp_path / "spools").exists()


@pytest.mark.parametrize(
    "arguments, said",
    [
        ((), "give one of FILE"),
        (("--resume",), "--name"),
        (("x.csv", "--generator", "--name", "s"), "give one of FILE"),
        (("missing.csv", "--name", "s"), "cannot be opened"),
        (("-", "--name", "s"), "--format"),
        (("--resume", "--name", "a\nb", "--timeout", "1s"), "with control characters"),
        (("--resume", "--name", "s", "--heartbeat", "1s"), "comes live"),
        (("--generator", "--name", "s", "--lateness", "soon"), "no duration"),
        (("--resume", "--name", "s", "--heartbeat-at", "soon"), "2026-01-31T12:00:00.5Z"),
        (("-", "--format", "csv", "--columns", "when=x"), "when"),
    ],
)
def test_what_cannot_be_sent_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = send(NOWHERE, *arguments, spool=tmp_path)
    assert done.exit_code in (1, 2), done.output
    assert isinstance(done.exception, SystemExit)
    assert said in done.output


def test_the_spools_are_below_the_state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    given = ["--name", "a/b", "--heartbeat-at", "1", "--to", NOWHERE, "--timeout", "0s"]
    done = CliRunner().invoke(main, ["send", *given])
    assert done.exit_code == 3, done.stderr
    [directory] = (tmp_path / "headwater" / "sources").iterdir()
    assert directory.name.startswith("a_b.")


def test_a_source_in_quarantine_hears_why_and_how_it_ends(tmp_path: Path) -> None:
    path, spool = tmp_path / "day.csv", tmp_path / "spools"
    path.write_text("\n".join(["ts,key,value", *(f"{BEGIN + n},{key},1" for n, key in enumerate("abcd"))]))
    with tree(tmp_path / "tree", limits={"keysPerSource": 3}) as found:
        given = [*COMMAND, str(path), "--name", "s", "--to", found.address, "--spool", str(spool)]
        given += ["--timeout", "120s"]
        process = subprocess.Popen(given, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        try:
            assert process.stderr is not None
            told = next(line for line in process.stderr if "it is in quarantine" in line)
        finally:
            process.terminate()
            process.communicate()
        assert "it has brought 4 distinct keys, and limits.keysPerSource is 3" in told
        # The address is that of a child: it stands where nobody takes it for the root's.
        assert told.startswith(f"s: the root says through the child at {found.address}: it is in quarantine")
        remedy = re.search(
            r"release it with: headwater (source release s); what is accepted is on disk", told
        )
        assert remedy is not None
        assert told.count(found.address) == 1
        ended = asyncio.run(until_fenced(Options(found.address, name="s", spool=spool, resume=True)))
        assert (ended["ok"], ended["connected"]) == (False, False)
        assert ended["fenced"]["s"].startswith("it is in quarantine: it has brought 4 distinct keys")
        assert (
            ended["problem"]
            == f"s: the root says through the child at {found.address}: {ended['fenced']['s']}"
        )
        words = [*remedy.group(1).split(), "--root", f"127.0.0.1:{found.above}"]
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, done.output
        assert "s: released; counted up to record 3, it goes on behind that as incarnation 2" in done.output
        done = send(found, "--resume", "--name", "s", "--json", spool=spool)
        assert done.exit_code == 0, done.output
        assert summary(done)["left"] == 0


async def until_fenced(options: Options) -> dict[str, Any]:
    """What `--json` says of a resumed source that is stopped once it hears that it is fenced."""
    sending = Sending(options, lambda line: None)
    running = asyncio.create_task(sending.run(None))
    try:
        async with asyncio.timeout(PATIENCE):
            while not sending.summary.fenced:
                await asyncio.sleep(0.02)
                sending._sum_up()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    found = json.loads(as_json(sending.summary))
    assert isinstance(found, dict)
    return found


def test_what_was_settled_before_a_release_is_not_left(tmp_path: Path) -> None:
    path, spool = tmp_path / "day.csv", tmp_path / "spools"
    path.write_text(
        "\n".join(["ts,key,value", *(f"{BEGIN + n},{key},1" for n, key in enumerate("abcdefghij"))])
    )
    with tree(tmp_path / "tree", limits={"keysPerSource": 3}) as found:
        options = Options(found.address, name="s", spool=spool)

        async def left(reader: Reader | None) -> list[int]:
            """How many records are left, as often as that changes, until the source is in quarantine."""
            sending = Sending(replace(options, resume=reader is None), lambda line: None)
            running, told = asyncio.create_task(sending.run(reader)), list[int]()
            try:
                async with asyncio.timeout(PATIENCE):
                    while not (sending._open and sending._open["s"].source.fenced):
                        await asyncio.sleep(0)
                        sending._sum_up()
                        if sending.summary.connected and sending.summary.left not in told[-1:]:
                            told.append(sending.summary.left)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            return told

        asyncio.run(left(open_input(str(path), None, columns_of(""))))
        for settled in (3, 6):
            done = CliRunner().invoke(main, ["source", "release", "s", "--root", f"127.0.0.1:{found.above}"])
            assert done.exit_code == 0, done.output
            # What the root has settled it tells with the first word.
            assert asyncio.run(left(None))[0] == 10 - settled
        done = CliRunner().invoke(main, ["source", "release", "s", "--root", f"127.0.0.1:{found.above}"])
        assert done.exit_code == 0, done.output
        done = send(found, "--resume", "--name", "s", "--json", spool=spool)
        assert done.exit_code == 0, done.output
        assert summary(done)["left"] == 0


PLAIN = [{"id": "t", "aggregate": "count", "window": {"type": "tumbling", "length": "1s"}}]


def unkeyed(path: Path, count: int = 50, seed: int = 1) -> Path:
    """A file whose key is in a column of another name."""
    return written(path, lines(count, seed), "ts,value,device")


def test_an_input_without_keys_is_refused_where_queries_compute_by_key(running: Tree, tmp_path: Path) -> None:
    path = unkeyed(tmp_path / "x.csv")
    spool = tmp_path / "spools"
    given = (path, "--name", "s", "--lateness", "1s", "--end", "--json")
    done = send(running, *given, spool=spool)
    assert done.exit_code == 1
    said = summary(done)
    assert (said["ok"], said["accepted"], said["left"], said["heartbeats"]) == (False, 0, 0, 0)
    for each in (said["problem"], done.stderr):
        assert "keys: are missing: queries of this tree compute by key (keyBy: key)" in each
        assert "the columns are 'ts', 'value', 'device'; say which column has the key with" in each
        assert "--columns key=NAME, or give --without-keys" in each
        assert "until it is idle; to end that now: headwater source retire s" in each
    # By the remedy all of it is counted.
    done = send(running, *given, "--columns", "key=device", spool=spool)
    assert done.exit_code == 0, done.stderr
    said = summary(done)
    assert (said["accepted"], said["counted"], said["left"], said["warnings"]) == (50, 51, 0, {})
    # The source has had keys: what comes without one is meant.
    done = send(running, unkeyed(tmp_path / "y.csv", 60, seed=2), "--name", "s", "--json", spool=spool)
    assert done.exit_code == 0, done.stderr
    assert (summary(done)["read"], summary(done)["accepted"], summary(done)["warnings"]) == (60, 60, {})


def test_without_keys_they_count_under_one_empty_key(running: Tree, tmp_path: Path) -> None:
    given = ("--name", "s", "--without-keys", "--end", "--json")
    done = send(running, unkeyed(tmp_path / "x.csv"), *given, spool=tmp_path / "spools")
    assert done.exit_code == 0, done.stderr
    assert (summary(done)["accepted"], summary(done)["warnings"]) == (50, {})
    running.stop()
    assert {row["key"] for row in running.rows() if row["query"] == "k"} == {""}


@pytest.mark.parametrize("content", ['{"ts": 1700000000000000, "value": 1, "device": "a"}\n', ""])
def test_json_lines_without_keys_are_refused_with_their_fields(
    shared: Tree, tmp_path: Path, content: str
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(content)
    done = send(shared, path, "--name", f"j{len(content)}", "--json", spool=tmp_path / "spools")
    assert done.exit_code == (1 if content else 0), done.stderr
    assert ("the columns are 'ts', 'value', 'device'" in done.stderr) == bool(content)
    assert summary(done)["accepted"] == 0


def test_where_no_query_computes_by_key_none_is_needed(tmp_path: Path) -> None:
    with tree(tmp_path / "tree", queries=PLAIN) as running:
        done = send(running, unkeyed(tmp_path / "x.csv"), "--name", "s", "--json", spool=tmp_path / "spools")
    assert done.exit_code == 0, done.stderr
    assert (summary(done)["counted"], summary(done)["warnings"]) == (50, {})


def test_an_input_in_which_some_sources_have_keys_is_taken(tmp_path: Path) -> None:
    rows = [f"{BEGIN + n},1,{'k' if n % 2 else ''},s{n % 2}" for n in range(100)]
    path = written(tmp_path / "x.csv", rows, "ts,value,key,source")
    with tree(tmp_path / "tree", expected=2) as running:
        done = send(running, path, "--json", spool=tmp_path / "spools")
    assert done.exit_code == 0, done.stderr
    assert (summary(done)["counted"], summary(done)["warnings"]) == (100, {})


def test_a_sender_that_hears_of_keys_late_says_so_and_refuses_what_follows(
    running: Tree, tmp_path: Path
) -> None:
    """What was accepted while no child could be reached is sent."""
    running.running[-1].kill()
    running.running[-1].wait()
    command = [*COMMAND, "-", "--format", "csv", "--name", "s", "--json", "--to", running.address]
    with subprocess.Popen(
        [*command, "--spool", str(tmp_path / "spools")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        try:
            process.stdin.write(f"ts,value\n{BEGIN},1\n")
            process.stdin.flush()
            until_spooled(tmp_path / "spools" / "s", 100)
            running.child(running.address)
            told = next(line for line in process.stderr if line.startswith("warning: "))
            process.stdin.write(f"{BEGIN + 1},2\n")
            process.stdin.flush()
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert (
        "s: queries of this tree compute by key (keyBy: key), but no event of this source has had a" in told
    )
    assert "what follows without a key is refused" in told
    assert process.returncode == 1, err
    said = json.loads(out)
    assert (said["accepted"], said["ok"]) == (1, False)
    assert said["warnings"]["s"] in told
    assert "keys: are missing" in said["problem"]


def many_unkeyed(path: Path, sources: int) -> Path:
    return written(path, [f"{BEGIN + n},1,s{n}" for n in range(sources)], "ts,value,source")


def test_many_sources_without_keys_wait_for_the_root_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater_source.answers.ANSWER_SECONDS", 1.0)
    path = many_unkeyed(tmp_path / "x.csv", 12)
    begin = time.monotonic()
    done = send(NOWHERE, path, "--timeout", "100ms", "--json", spool=tmp_path / "spools")
    assert 1 <= time.monotonic() - begin < 6
    assert done.exit_code == 3, done.stderr
    assert (summary(done)["accepted"], summary(done)["left"]) == (12, 12)


def test_all_sources_of_a_part_are_started_before_the_first_has_to_wait(
    running: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They connect at the same time; what the first of them hears holds for all."""
    started: list[str] = []
    appended: list[int] = []
    start, append = Source.start, Source.append

    def starting(source: Source) -> SourceClient:
        started.append(source.name)
        return start(source)

    async def appending(source: Source, events: Events) -> range:
        appended.append(len(started))
        return await append(source, events)

    monkeypatch.setattr(Source, "start", starting)
    monkeypatch.setattr(Source, "append", appending)
    path = many_unkeyed(tmp_path / "x.csv", 12)
    done = send(running, path, "--json", spool=tmp_path / "spools")
    assert appended == [12]
    assert done.exit_code == 1
    assert (summary(done)["accepted"], summary(done)["left"]) == (0, 0)
    assert "keys: are missing" in summary(done)["problem"]


def test_a_file_that_is_repeated_with_keys_says_what_was_accepted_without(
    running: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sender whose root was away has accepted the first records; nothing of them is sent twice."""
    monkeypatch.setattr("headwater_source.answers.ANSWER_SECONDS", 0.2)
    path, spool = tmp_path / "x.csv", tmp_path / "spools"
    unkeyed(path)
    done = send(NOWHERE, path, "--name", "s", "--timeout", "100ms", "--json", spool=spool)
    assert (done.exit_code, summary(done)["accepted"], summary(done)["warnings"]) == (3, 50, {})
    unkeyed(path, 60)
    given = (path, "--name", "s", "--columns", "key=device", "--end", "--json")
    done = send(running, *given, spool=spool)
    assert done.exit_code == 0, done.stderr
    said = summary(done)
    assert (said["before"], said["accepted"], said["left"]) == (50, 10, 0)
    warning = "events of this source were accepted without a key before the root had answered"
    assert warning in said["warnings"]["s"]
    assert "warning: s: queries of this tree compute by key (keyBy: key), but" in done.stderr
    # Everything is counted, and that was said once.
    done = send(running, *given, spool=spool)
    assert (done.exit_code, summary(done)["warnings"]) == (0, {}), done.stderr
