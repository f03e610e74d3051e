"""`headwater run --input`: events of a file or a pipe through a whole tree, exact or not done."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any
from unittest.mock import patch

import numpy as np
import pytest
from click.testing import CliRunner

from headwater.errors import Invalid
from headwater_cli import manifests, piped
from headwater_cli.app import main
from headwater_cli.client import At, connected
from headwater_cli.manifests import topology
from headwater_cli.piped import Piped
from headwater_cli.run import Run
from headwater_cli.summary import Summary
from headwater_source.columns import Events
from tests.patience import PATIENCE

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headwater_cli", "run", *map(str, arguments), "--json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False, **options)


def rows(count: int, sources: int) -> str:
    rng = random.Random(count)
    lines = ["time,temp,device,mark,source"]
    for n in range(count):
        mark = rng.choice(["begin", "end"]) if n % 40 == 0 else ""
        source = f"press-{n % sources}" if sources else ""
        ts = 1_700_000_000_000_000 + n * 5_000 - rng.randrange(50_000)
        lines.append(f"{ts},{rng.randrange(100)},k{rng.randrange(3)},{mark},{source}")
    return "\n".join(lines) + "\n"


def test_a_file_of_several_sources_is_exact(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(rows(2_000, 3))
    done = run(
        EXAMPLES / "factory.yaml",
        "--input",
        path,
        "--columns",
        "ts=time,value=temp,key=device",
        "--verify",
    )
    assert done.returncode == 0, done.stderr + done.stdout
    summary = json.loads(done.stdout)
    assert summary["differing"] == 0
    assert summary["sources"] == 3
    assert summary["windows"] > 0
    assert summary["warnings"] == []
    assert summary["sent"] == 2_000 == summary["counted"] + summary["late"] + summary["rejected"]


def manifest(folder: Path, query: str) -> Path:
    """Of one query without a key, named load."""
    path = folder / "topology.yaml"
    path.write_text(
        "apiVersion: headwater.dev/v1alpha1\nkind: AggregationTopology\nmetadata: {name: plant}\nspec:\n"
        "  sources: [{class: meter, site: hall, expected: 1, rate: 10, lateness: 2s}]\n"
        f"  queries: [{{id: load, aggregate: count, {query}}}]\n  root: {{engine: embedded}}\n"
    )
    return path


def events(times: list[int]) -> str:
    return "ts,value\n" + "".join(f"{ts},1\n" for ts in times)


@pytest.mark.parametrize("case", ["shuffled", "unit"])
def test_a_run_warns_of_an_input_that_is_not_in_order(tmp_path: Path, case: str) -> None:
    times = [1_700_000_000_000_000 + n * 500_000 for n in range(6_000)]
    if case == "shuffled":
        random.Random(7).shuffle(times)
    elif case == "unit":
        times[3_000:3_003] = [ts // 1_000 for ts in times[3_000:3_003]]
    path = tmp_path / "x.csv"
    path.write_text(events(times))
    tree = ("--children", 1, "--layers", "")
    done = run(
        manifest(tmp_path, "window: {type: tumbling, length: 60s}"), "--input", path, *tree, "--verify"
    )
    summary = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert summary["ok"]
    (warning,) = summary["warnings"]
    assert f"warning: {warning}" in done.stderr
    behind = "behind an earlier event of their source"
    if case == "shuffled":
        assert warning.startswith(f"{summary['late']:,} of 6,000 events are late and in no window, up to ")
        assert warning.endswith(f"{behind}: sort the input by time, or raise lateness")
    else:
        lag = f"are late and in no window, up to 19,656 days {behind}"
        assert warning == f"3 of 6,000 events {lag}: see that all times have the same unit"


def test_a_run_warns_of_empty_windows_that_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    begin = 1_700_000_000_000_000
    path.write_text(events([begin, begin + 150_000 * 10_000]))
    asked = manifest(tmp_path, "window: {type: tumbling, length: 10ms}, emitEmpty: true")
    done = run(asked, "--input", path, "--children", 1, "--layers", "")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["warnings"] == [
        "load has no result for 49,999 more empty windows: of emitEmpty at most 100,000 in a row are reported"
    ]


def test_a_pipe_is_exact() -> None:
    text = "".join(
        json.dumps({"ts": 1_700_000_000_000_000 + n * 10_000, "value": n % 7, "key": "k"}) + "\n"
        for n in range(1_000)
    )
    done = run(
        EXAMPLES / "tumbling.yaml",
        "--input",
        "-",
        "--format",
        "jsonl",
        "--children",
        1,
        "--layers",
        "",
        "--verify",
        input=text,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    summary = json.loads(done.stdout)
    assert (summary["differing"], summary["sources"], summary["sent"]) == (0, 1, 1_000)
    assert summary["windows"] > 0


def test_a_run_ends_though_a_source_is_in_quarantine(tmp_path: Path) -> None:
    path, bounded = tmp_path / "x.csv", tmp_path / "bounded.yaml"
    bounded.write_text(
        (EXAMPLES / "tumbling.yaml").read_text().replace("  root:", "  limits: {keysPerSource: 3}\n  root:")
    )
    lines = ["ts,value,key,source"]
    for n in range(1_500):
        key = f"made-up-{n}" if n % 3 == 1 and n >= 600 else f"k{n % 3}"
        lines.append(f"{1_700_000_000_000_000 + n * 5_000},{n % 7},{key},s{n % 3}")
    # Heartbeats of the input are records of it, unlike those with which the run itself ends its sources.
    lines += [f"{1_700_000_008_000_000 + n},,,s0" for n in range(5)]
    path.write_text("\n".join(lines))
    done = run(bounded, "--input", path, "--verify")
    assert done.returncode == 1, done.stderr + done.stdout
    summary = json.loads(done.stdout)
    # Every third is of s1, whose only key up to there is k1: two more are read, the next one is too many.
    assert (summary["sent"], summary["counted"], summary["unread"]) == (1_505, 1_505 - 298, 298)
    assert (summary["ok"], summary["differing"], summary["failed"]) == (False, 0, {})
    reason = "it has brought 301 distinct keys, and limits.keysPerSource is 3"
    assert summary["quarantined"] == {"s1": reason}
    problem = (
        f"s1 is in quarantine: {reason}; mend its events, or raise that bound in the topology where the keys "
        "are meant, and run it again"
    )
    assert summary["problems"] == [problem]
    assert problem in done.stderr.splitlines()


async def reached(asked: Callable[[], object], running: asyncio.Task[Summary]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not asked():
            if running.done():
                pytest.fail(f"the run has ended: {running.result()}")
            await asyncio.sleep(0.02)


@pytest.fixture
def crowded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Run, Piped, IO[bytes]]]:
    """A run whose input does not end, and of whose two sources one brings too many keys."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    bounded, fifo = tmp_path / "bounded.yaml", tmp_path / "x"
    bounded.write_text(
        (EXAMPLES / "tumbling.yaml").read_text().replace("  root:", "  limits: {keysPerSource: 3}\n  root:")
    )
    os.mkfifo(fifo)
    # To write and to read: nobody waits for the other side.
    with open(os.open(fifo, os.O_RDWR), "wb", buffering=0) as pipe:
        pipe.write(b"ts,value,key,source\n1,1,k,s0\n")
        pipe.write(b"".join(b"2,1,k%d,s1\n" % n for n in range(10)))
        found = topology(bounded)
        input = Piped(str(fifo), "csv", "", found, keep=True, time_unit="us")
        work = Run(found, manifests.read(bounded), 1, [], 10, piped=input, engine="embedded")
        try:
            yield work, input, pipe
        finally:
            work.clean()


def _is_fenced(work: Run) -> bool:
    return any(each.name == "s1" and each.machine.fenced is not None for each in work.senders.clients)


def test_a_run_that_is_stopped_tells_of_a_quarantine(crowded: tuple[Run, Piped, IO[bytes]]) -> None:
    work, _, pipe = crowded

    async def stopped() -> None:
        running = asyncio.create_task(work.run(verify=True))
        try:
            await reached(lambda: _is_fenced(work), running)
            pipe.write(b"3,1,k,s1\n")
            await reached(lambda: "s1" in work.senders.fenced, running)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(stopped())
    reason = "it has brought 10 distinct keys, and limits.keysPerSource is 3"
    assert work.summary.quarantined == {"s1": reason}
    assert work.summary.unread == 7


def test_a_name_that_was_released_since_is_told_as_it_was_and_only_what_was_accepted_is_sent(
    crowded: tuple[Run, Piped, IO[bytes]],
) -> None:
    work, input, pipe = crowded

    async def told() -> Summary:
        running = asyncio.create_task(work.run(verify=True))
        try:
            await reached(lambda: _is_fenced(work), running)
            pipe.write(b"".join(b"3,1,k,s%d\n" % (n % 2) for n in range(200)))
            await reached(lambda: "s1" in work.senders.fenced, running)
            with connected(At(f"127.0.0.1:{work.root.port}")) as root:
                assert (await asyncio.to_thread(root.release, "s1")).released
            pipe.close()
            return await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    summary = asyncio.run(told())
    # One and a hundred of s0, ten of s1; of s1 three keys were read, and nothing was accepted any more.
    assert (summary.sent, summary.counted, summary.unread) == (111, 101 + 3, 7)
    # And the heartbeat with which s0 ends.
    assert input.events == 112
    assert (summary.quarantined, list(summary.fenced), summary.differing) == ({}, ["s1"], 0)
    (problem,) = summary.problems
    said = "it is in quarantine: it has brought 10 distinct keys, and limits.keysPerSource is 3; mend "
    assert problem.startswith(f"the root took nothing more of s1, and told it: {said}")


def test_a_fence_that_is_no_quarantine_is_not_called_one() -> None:
    said = "another spool has its name; end this process, or that one"
    summary = Summary("x", 1, sent=3, counted=1, unread=2, fenced={"s": said})
    summary.judge()
    assert summary.problems == [f"the root took nothing more of s, and told it: {said}"]
    assert not summary.ok


def test_a_bad_input_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("ts,value\n1700000000000000,1\nx,2\n")
    done = CliRunner().invoke(main, ["run", str(EXAMPLES / "tumbling.yaml"), "--input", str(path)])
    assert done.exit_code == 1
    assert f"{path}, line 3: ts: is 'x'" in done.output


@pytest.mark.parametrize(
    "format, content",
    [
        ("csv", "ts,value\n1700000000000000,1\n"),
        ("jsonl", '{"ts": 1700000000000000, "value": 1, "device": "a"}\n'),
    ],
)
def test_a_query_by_key_needs_an_input_with_keys(tmp_path: Path, format: str, content: str) -> None:
    path = tmp_path / f"x.{format}"
    path.write_text(content)
    done = CliRunner().invoke(main, ["run", str(EXAMPLES / "tumbling.yaml"), "--input", str(path), "--json"])
    assert done.exit_code == 1
    (problem,) = json.loads(done.stdout)["problems"]
    assert "spec.queries[by-key].keyBy: is key, but no record has a key" in problem
    listed = "'ts', 'value'" + (", 'device'" if format == "jsonl" else "")
    said = f"the columns are {listed}; say which column has the key with --columns key=NAME, or drop keyBy"
    assert said in problem


HEARTBEAT = '{"ts": 1700000000000000}\n'
KEYLESS = '{"ts": 1700000000000000, "value": 1, "device": "a"}\n'


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[tuple[Path, IO[bytes]]]:
    """A pipe, and its other end, that nobody closes meanwhile."""
    path = tmp_path / "x"
    os.mkfifo(path)
    with open(os.open(path, os.O_RDWR), "wb", buffering=0) as pipe:
        yield path, pipe


@pytest.mark.parametrize("format, content", [("csv", "ts,value\n1700000000000000,1\n"), ("jsonl", KEYLESS)])
def test_a_query_by_key_needs_a_pipe_with_keys(
    fifo: tuple[Path, IO[bytes]], format: str, content: str
) -> None:
    fifo[1].write(content.encode())
    with pytest.raises(Invalid, match=r"keyBy: is key, but no record has a key; .* --columns key="):
        Piped(str(fifo[0]), format, "", topology(EXAMPLES / "tumbling.yaml"), keep=False)


def test_a_pipe_may_begin_with_heartbeats_which_have_no_key(fifo: tuple[Path, IO[bytes]]) -> None:
    fifo[1].write(HEARTBEAT.encode())
    input = Piped(str(fifo[0]), "jsonl", "", topology(EXAMPLES / "tumbling.yaml"), keep=False)
    parts = iter(input)
    assert len(next(parts)) == 1
    fifo[1].write(KEYLESS.encode())
    with pytest.raises(Invalid, match="no record has a key"):
        next(parts)


def test_a_column_for_keys_may_be_empty_at_the_beginning_of_a_pipe(fifo: tuple[Path, IO[bytes]]) -> None:
    fifo[1].write(b"ts,value,key\n1700000000000000,1,\n")
    input = Piped(str(fifo[0]), "csv", "", topology(EXAMPLES / "tumbling.yaml"), keep=False)
    assert len(next(iter(input))) == 1


def test_a_key_may_be_missing_among_others(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("ts,value,key\n1700000000000000,1,\n1700000000000001,1,a\n")
    assert Piped(str(path), None, "", topology(EXAMPLES / "tumbling.yaml"), keep=False).expected == 1


@pytest.mark.parametrize("command", [["run"], ["send", "--to", "127.0.0.1:1", "--name", "s"]])
def test_milliseconds_are_refused_with_the_option_that_reads_them(tmp_path: Path, command: list[str]) -> None:
    path = tmp_path / "x.csv"
    path.write_text("ts,value\n1700000000000,1\n")
    rest = ["--input", str(path)] if command == ["run"] else [str(path), "--spool", str(tmp_path / "spool")]
    done = CliRunner().invoke(main, [*command, *rest, "--json"])
    assert done.exit_code == 1
    assert "these look like milliseconds: --time-unit ms" in done.output
    assert "Traceback" not in done.output


def test_events_far_ahead_are_refused_with_the_unit_that_they_look_like(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    for unit, number, meant in (("ms", 1_767_225_659_990_297, "us"), ("us", 1_767_225_659_990_297_123, "ns")):
        path.write_text(f"ts,value\n{number},1\n")
        done = CliRunner().invoke(main, ["run", "--input", str(path), "--time-unit", unit, "--json"])
        assert done.exit_code == 1
        (problem,) = json.loads(done.stdout)["problems"]
        assert f"seconds: --time-unit {meant}" in problem


@pytest.mark.parametrize("pipe", [False, True])
def test_an_event_years_ahead_is_refused_before_anything_is_started(tmp_path: Path, pipe: bool) -> None:
    ahead = (time.time_ns() // 1_000) + 3_652 * 86_400 * 1_000_000
    content = f"ts,value\n1700000000000000,1\n{ahead},1\n1700000000000001,1\n"
    path = tmp_path / "x.csv"
    path.write_text(content)
    given = ["--input", "-", "--format", "csv"] if pipe else ["--input", str(path)]
    done = CliRunner().invoke(main, ["run", *given, "--json"]) if not pipe else run(*given, input=content)
    (problem,) = json.loads(done.stdout)["problems"]
    assert "ts: an event is of " in problem
    assert "days ahead of the clock; correct its time or take it out" in problem


def hours_ahead(hours: float) -> int:
    return time.time_ns() // 1_000 + round(hours * 3_600_000_000)


def test_an_event_whose_closing_heartbeat_would_have_to_wait_is_refused(tmp_path: Path) -> None:
    # Children read up to a day ahead, and a source ends with a heartbeat an hour behind its last event.
    path = tmp_path / "x.csv"
    path.write_text(f"ts,value\n1700000000000000,1\n{hours_ahead(23.5)},1\n")
    done = CliRunner().invoke(main, ["run", "--input", str(path), "--json"])
    assert done.exit_code == 1
    (problem,) = json.loads(done.stdout)["problems"]
    assert "which is 23.5 hours ahead of the clock" in problem
    assert "correct its time or take it out: a run takes events at most 23 hours ahead" in problem


def test_an_event_less_than_that_ahead_does_not_hold_the_run(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f"ts,value,key\n1700000000000000,1,a\n{hours_ahead(22.9)},1,a\n")
    small = ["--children", 1, "--layers", "", "--engine", "embedded"]
    done = run(EXAMPLES / "tumbling.yaml", "--input", path, *small, "--verify")
    assert done.returncode == 0, done.stderr + done.stdout
    assert json.loads(done.stdout)["counted"] == 2


def test_an_event_far_ahead_in_the_midst_of_a_pipe_is_refused() -> None:
    good = "1700000000000000,1,a\n" * 60_000
    done = run(
        EXAMPLES / "tumbling.yaml",
        *["--input", "-", "--format", "csv", "--children", 1, "--layers", "", "--engine", "embedded"],
        input=f"ts,value,key\n{good}{hours_ahead(30)},2,a\n",
    )
    assert done.returncode == 1
    assert "which is 30 hours ahead of the clock" in json.loads(done.stdout)["problems"][0]


def test_a_bad_input_is_told_as_json(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("ts,value\n1700000000000000,1\nx,2\n")
    for given, said in ((path, f"{path}, line 3: ts: is 'x'"), (tmp_path / "y.csv", "cannot be opened")):
        done = CliRunner().invoke(main, ["run", "--json", "--input", str(given)])
        assert done.exit_code == 1
        summary = json.loads(done.stdout)
        assert (summary["topology"], summary["ok"]) == ("demo", False)
        assert said in summary["problems"][0]
        assert said in done.stderr


def test_a_pipe_that_goes_bad_is_told_as_json(tmp_path: Path) -> None:
    # The first megabyte is read before the tree is started, the rest beside it.
    good = "1700000000000000,1,a\n" * 60_000
    done = run(
        EXAMPLES / "tumbling.yaml", "--input", "-", "--format", "csv", input=f"ts,value,key\n{good}x,2,a\n"
    )
    assert done.returncode == 1
    assert "line 60002: ts: is 'x'" in json.loads(done.stdout)["problems"][0]
    assert "Traceback" not in done.stderr


def test_bad_records_are_passed_over_and_the_rest_is_exact(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    lines = rows(500, 2).splitlines()
    path.write_text("\n".join([*lines[:100], "nonsense", *lines[100:], "x,1,k,,press-9"]) + "\n")
    columns = "ts=time,value=temp,key=device"
    done = run(EXAMPLES / "factory.yaml", "--input", path, "--columns", columns, "--skip-bad", "--verify")
    assert done.returncode == 0, done.stderr + done.stdout
    summary = json.loads(done.stdout)
    assert (summary["sent"], summary["bad"], summary["sources"], summary["differing"]) == (500, 2, 2, 0)
    assert f"passed over {path}, line 101: record: has 1 fields" in done.stderr
    assert f"passed over {path}, line 503: ts: is 'x'" in done.stderr


@pytest.mark.parametrize("content", ["", "ts,value\n", "\n\n"])
def test_an_input_without_events_is_no_success(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(content)
    asked = ["run", "--input", str(path), "--verify", "--json"]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 1
    assert "input: holds no events" in json.loads(done.stdout)["problems"][0]
    done_pipe = run("--input", "-", "--format", "csv", "--verify", input=content)
    assert done_pipe.returncode == 1
    assert "input: holds no events" in json.loads(done_pipe.stdout)["problems"][0]


def test_an_input_of_bad_records_alone_is_no_success(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("ts,value\nx,1\ny,2\n")
    done = CliRunner().invoke(main, ["run", "--input", str(path), "--skip-bad"])
    assert done.exit_code == 1
    assert "holds no events, but 2 bad records" in done.output
    done = CliRunner().invoke(main, ["run", "--skip-bad"])
    assert done.exit_code == 2
    assert "say how to read an --input" in done.output


def test_too_much_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("ts,value,key\n1700000000000000,1,a\n")
    found = Piped(str(path), None, "", topology(EXAMPLES / "factory.yaml"), keep=True)
    feed = found.feed("press-7", None)
    assert feed.lateness >= 0
    with patch.object(piped, "VERIFIABLE", 5):
        found.sent(feed, Events(np.arange(5), np.arange(5.0)))
        assert found.verifiable
        assert len(feed.kept) == 1
        found.sent(feed, Events(np.arange(1), np.arange(1.0)))
        assert not found.verifiable
        assert feed.kept == []
