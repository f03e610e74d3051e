"""`headwater results` and `headwater aggregate`, as a user calls them."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from threading import Timer
from time import sleep
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from headwater import Query, Tumbling
from headwater import aggregate as aggregate_table
from headwater_cli import logfiles, resultfiles, resultsread, rootsinks
from headwater_cli.aggregate import parse_window
from headwater_cli.app import main
from headwater_root import asked
from headwater_root.delivery import catch_up
from headwater_root.outbox import Outbox
from headwater_root.resultlines import encode
from headwater_root.sinks import Sink
from headwater_root.sinks.console import Console
from headwater_root.sinks.jsonlines import JsonLines
from headwater_root.sinks.parquet import Parquet
from tests.patience import PATIENCE
from tests.root.earlier import earlier

QUERIES = [
    Query("trend", Tumbling("10s"), ["avg", "top(2)"], key_by="machine"),
    Query("lots", Tumbling(count=2), "sum"),
]
START = 1_777_636_800_000_000
EVENTS: dict[str, list[Any]] = {
    "ts": [START + seconds * 1_000_000 for seconds in (0, 4, 11, 62)],
    "value": [71.0, 64.5, 75.0, 70.0],
    "machine": ["boiler", "filler", "boiler", "boiler"],
}


def say(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    directory = tmp_path / "kept"
    resultfiles.prepare(directory)
    resultfiles.write(directory, [encode(aggregate_table(EVENTS, QUERIES))], QUERIES)
    return directory


@pytest.fixture
def day(tmp_path: Path) -> Path:
    path = tmp_path / "day.csv"
    lines = [f"{ts},{machine},{value}" for ts, machine, value in zip(*columns(), strict=True)]
    path.write_text("\n".join(["ts,machine,value", *lines, ""]))
    return path


def columns() -> tuple[list[Any], list[Any], list[Any]]:
    return EVENTS["ts"], EVENTS["machine"], EVENTS["value"]


def test_results_are_filtered(kept: Path) -> None:
    done = say(
        "results",
        kept,
        "--query",
        "trend",
        "--key",
        "boiler",
        "--since",
        "2026-05-01T12:00:15",
        "--format",
        "json",
    )
    assert done.exit_code == 0, done.output
    found = [json.loads(line) for line in done.output.splitlines()]
    assert [(each["start"], each["values"]["avg"]) for each in found] == [
        ("2026-05-01T12:00:10+00:00", 75.0),
        ("2026-05-01T12:01:00+00:00", 70.0),
    ]


def test_a_table_has_times_and_the_name_of_the_key(kept: Path) -> None:
    done = say("results", kept)
    assert "2026-05-01 12:00:00.000 to 12:00:10.000 (10 s)" in done.output
    assert "machine" in done.output
    assert "events 1 to 2" in done.output
    assert str(START)[:8] not in done.output


def test_csv_has_every_result(kept: Path) -> None:
    done = say("results", kept, "--format", "csv")
    found = list(csv.DictReader(io.StringIO(done.output)))
    assert [each["query"] for each in found].count("trend") == 4
    lots = [each for each in found if each["query"] == "lots"]
    assert [(each["first_rank"], each["first_time"], each["last_time"]) for each in lots] == [
        ("1", "2026-05-01T12:00:00+00:00", "2026-05-01T12:00:04+00:00"),
        ("3", "2026-05-01T12:00:11+00:00", "2026-05-01T12:01:02+00:00"),
    ]
    assert {each["start"] for each in lots} == {""}
    # Columns that were there stay where they were.
    assert list(found[0])[-2:] == ["first_time", "last_time"]


def test_a_parquet_file_has_the_times_of_count_windows(kept: Path) -> None:
    found = [row for row in pq.read_table(kept / "results.parquet").to_pylist() if row["query"] == "lots"]
    assert [(row["first_rank"], row["first_time"].isoformat()) for row in found] == [
        (1, "2026-05-01T12:00:00+00:00"),
        (3, "2026-05-01T12:00:11+00:00"),
    ]


def test_since_takes_count_windows_by_their_last_event(kept: Path, tmp_path: Path) -> None:
    asked = ("results", kept, "--query", "lots", "--since")
    for since, expected in (("12:00:04", [1, 3]), ("12:00:05", [3]), ("12:01:03", [])):
        done = say(*asked, f"2026-05-01T{since}", "--format", "json")
        assert [json.loads(line)["first_rank"] for line in done.stdout.splitlines()] == expected
    # A directory that an earlier release has written.
    path = kept / resultfiles.LINES
    path.write_bytes(earlier(path.read_bytes()))
    done = say(*asked, "2026-05-01T12:01:03", "--format", "json")
    assert [json.loads(line)["first_time"] for line in done.stdout.splitlines()] == [None, None]
    assert done.stderr.count("lots has windows without times") == 1


def test_what_a_live_root_trims_does_not_end_it_and_nothing_comes_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = encode(aggregate_table(EVENTS, QUERIES[:1])).splitlines(keepends=True)
    outbox = tmp_path / "outbox"
    outbox.mkdir()
    for position, epoch in ((1, 1), (2, 1)):
        (outbox / f"{position:020}-{epoch:010}").write_bytes(lines[position])
    found = resultfiles.ResultFiles(tmp_path)
    read = Path.read_bytes

    def trimmed(path: Path) -> bytes:
        # Between the list and the look.
        if path.name.startswith(f"{1:020}"):
            path.unlink()
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", trimmed)
    assert [row["id"] for row in found.fresh()] == [json.loads(lines[2])["id"]]
    (outbox / f"{2:020}-{2:010}").write_bytes(lines[2])
    (outbox / f"{3:020}-{2:010}").write_bytes(lines[3])
    assert [row["id"] for row in found.fresh()] == [json.loads(lines[3])["id"]]
    assert list(found.fresh()) == []


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("--query", "trned"), "trned is none of its queries, which are trend, lots"),
        (("--since", "yesterday"), "'yesterday' is no time; give one such as"),
        (("--follow", "--format", "csv"), "--follow writes lines"),
    ],
)
def test_mistakes_are_named(kept: Path, arguments: tuple[str, ...], said: str) -> None:
    done = say("results", kept, *arguments)
    assert done.exit_code == 2
    assert said in done.output


def test_a_directory_without_results_is_refused(tmp_path: Path) -> None:
    done = say("results", tmp_path)
    assert done.exit_code == 1
    assert "holds no results; name the directory of headwater run --output" in done.output


@pytest.mark.parametrize("of_the_root", [{"first": [], "before": []}, [{"id": "trend"}], {"first": 1}])
def test_the_directory_of_a_root_is_read(tmp_path: Path, of_the_root: Any) -> None:
    outbox = tmp_path / "outbox"
    outbox.mkdir()
    (outbox / f"{1:020}-{1:010}").write_bytes(encode(aggregate_table(EVENTS, QUERIES)))
    asked.write(tmp_path, asked.Asked(tuple(QUERIES), tuple(QUERIES), tuple(QUERIES)))
    assert len(say("results", tmp_path, "--format", "json").output.splitlines()) == 6
    (tmp_path / "queries.json").write_text(json.dumps(of_the_root))
    done = say("results", tmp_path, "--query", "trend", "--format", "json")
    assert done.exit_code == 0, done.output
    assert len(done.output.splitlines()) == 4


def _deliver(outbox: Outbox, root: Path, sinks: Sequence[Sink]) -> None:
    """Deliver what is there to every sink, and drop it from the outbox."""
    for sink in sinks:
        catch_up(outbox, sink)
    outbox.trim(outbox.last)


@pytest.fixture
def lines() -> list[bytes]:
    return encode(aggregate_table(EVENTS, QUERIES)).splitlines(keepends=True)


def _ids(done: Result) -> list[tuple[str, str, str]]:
    return [
        (row["query"], str(row["key"]), str(row["start"]))
        for row in map(json.loads, done.stdout.splitlines())
    ]


def test_results_that_a_root_has_delivered_are_read_from_its_sinks(
    tmp_path: Path, lines: list[bytes]
) -> None:
    outbox = Outbox(tmp_path / "outbox")
    sinks = [JsonLines(tmp_path / "sinks" / "lines"), JsonLines(tmp_path / "sinks" / "more" / "lines")]
    Console(tmp_path / "sinks" / "0-console")
    outbox.write(1, 1, lines[0] + lines[1])
    _deliver(outbox, tmp_path, sinks)
    # One more that a sink has already, and one that no sink has.
    outbox.write(2, 1, lines[2])
    catch_up(outbox, sinks[0])
    outbox.write(3, 1, lines[3])
    done = say("results", tmp_path, "--format", "json")
    assert done.exit_code == 0, done.output
    assert [row["key"] for row in map(json.loads, done.stdout.splitlines())] == [
        json.loads(line)["key"] for line in lines[:4]
    ]
    one = say("results", tmp_path, "--key", "filler", "--format", "json")
    assert len(one.stdout.splitlines()) == 1
    # Also below the directory of a run.
    (tmp_path / "run").mkdir()
    for name in ("outbox", "sinks"):
        (tmp_path / "run" / "root").mkdir(exist_ok=True)
        (tmp_path / name).rename(tmp_path / "run" / "root" / name)
    assert _ids(say("results", tmp_path / "run", "--format", "json")) == _ids(done)


def test_following_a_root_shows_each_result_once(tmp_path: Path, lines: list[bytes]) -> None:
    outbox, sink = Outbox(tmp_path / "outbox"), JsonLines(tmp_path / "sinks" / "lines")
    outbox.write(1, 1, lines[0])
    files = resultfiles.ResultFiles(tmp_path)
    shown = [row["id"] for row in files.fresh()]
    _deliver(outbox, tmp_path, [sink])
    assert list(files.fresh()) == []
    outbox.write(2, 1, lines[1])
    _deliver(outbox, tmp_path, [sink])
    outbox.write(3, 1, lines[2])
    shown += [row["id"] for row in files.fresh()]
    # A crash has cut the file, and the lines come again.
    sink.path.write_bytes(lines[0])
    assert list(files.fresh()) == []
    sink.path.write_bytes(lines[0] + lines[1] + lines[2])
    assert list(files.fresh()) == []
    assert shown == [json.loads(line)["id"] for line in lines[:3]]


def test_what_is_trimmed_between_two_looks_is_read_from_the_sink(
    tmp_path: Path, lines: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox, sink = Outbox(tmp_path / "outbox"), JsonLines(tmp_path / "sinks" / "lines")
    outbox.write(1, 1, lines[0])
    files = resultfiles.ResultFiles(tmp_path)
    find = rootsinks.find_sinks

    def find_after_a_delivery(root: Path) -> list[rootsinks.RootSink]:
        _deliver(outbox, tmp_path, [sink])
        return find(root)

    monkeypatch.setattr(resultfiles, "find_sinks", find_after_a_delivery)
    outbox.write(2, 1, lines[1])
    assert [row["id"] for row in files.fresh()] == [json.loads(line)["id"] for line in lines[:2]]


def test_a_root_whose_results_are_elsewhere_says_where(tmp_path: Path, lines: list[bytes]) -> None:
    outbox, sinks = Outbox(tmp_path / "outbox"), [Parquet(tmp_path / "sinks" / "all")]
    (tmp_path / "sinks" / "postgres-0123456789ab").mkdir()
    done = say("results", tmp_path)
    assert done.exit_code == 1
    assert f"{tmp_path} holds no results yet; they go to its sinks, which are parquet (" in done.stderr
    outbox.write(1, 1, lines[0])
    _deliver(outbox, tmp_path, sinks)
    done = say("results", tmp_path)
    assert done.exit_code == 1
    assert "a root drops what all of its sinks have taken" in done.stderr
    for named in (f"parquet ({tmp_path}/sinks/all)", f"postgres ({tmp_path}/sinks/postgres-0123456789ab)"):
        assert named in done.stderr
    outbox.write(2, 1, lines[1])
    done = say("results", tmp_path, "--format", "json")
    assert (done.exit_code, len(done.stdout.splitlines())) == (0, 1)
    assert "holds only results that a sink has not taken yet; the others went to parquet (" in done.stderr


def test_a_root_without_results_says_where_they_will_come(tmp_path: Path) -> None:
    Outbox(tmp_path / "outbox")
    JsonLines(tmp_path / "sinks" / "lines")
    done = say("results", tmp_path)
    assert done.exit_code == 1
    where = tmp_path / "sinks" / "lines" / "results.jsonl"
    assert f"{tmp_path} holds no results yet: they come in {where}" in done.stderr


@pytest.mark.parametrize("content", ['{"level":"info"}\n', '{"values":{}}\n[1]\n', "x\n", "\n\nnull\n"])
def test_other_json_lines_are_no_results(tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text(content)
    for given in (tmp_path, path):
        done = say("results", given)
        assert done.exit_code == 1
        number = content.splitlines().index(content.split()[0]) + 1
        assert f"{path} holds no results of Headwater: line {number} is none; name the" in done.stderr
        assert "Error(" not in done.stderr


def test_a_damaged_line_among_results_is_named(tmp_path: Path, lines: list[bytes]) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(lines[0] + lines[1])
    files = resultfiles.ResultFiles(tmp_path)
    assert len(list(files.fresh())) == 2
    with path.open("ab") as file:
        file.write(b'{"values":\n')
    with pytest.raises(resultfiles.NoResultFiles, match=r"results.jsonl: line 3 is no result: .* restore"):
        list(files.fresh())
    assert "line 3 is no result" in say("results", tmp_path).stderr


def test_a_directory_of_a_run_that_goes_on_has_no_results_yet(tmp_path: Path) -> None:
    log = logfiles.begin("plant", tmp_path)
    # Between the moment in which it is made and the first line.
    for content in ("", '{"level": "info", "message": "listening"}\n'):
        log.write_text(content)
        done = say("results", tmp_path)
        assert done.exit_code == 1
        assert "holds no results yet: headwater run writes them when it ends" in done.output


def test_following_waits_for_the_results_of_a_run_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logfiles.begin("plant", tmp_path).write_text('{"level": "info", "message": "listening"}\n')
    looks = iter(range(4))

    def write_at_the_second_look(seconds: float) -> None:
        look = next(looks)
        if look == 1:
            resultfiles.write(tmp_path, [encode(aggregate_table(EVENTS, QUERIES))], QUERIES)
        if look == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(resultsread, "sleep", write_at_the_second_look)
    done = say("results", tmp_path, "--follow", "--format", "json")
    assert len(done.stdout.splitlines()) == 6
    assert done.stderr.count("waiting for the results") == 1


def test_a_query_that_was_added_to_a_run_is_known_by_its_windows(kept: Path) -> None:
    resultfiles.write(kept, [encode(aggregate_table(EVENTS, QUERIES))], QUERIES[:1])
    done = say("results", kept, "--query", "lots", "--format", "json")
    assert done.exit_code == 0, done.output
    assert len(done.output.splitlines()) == 2
    done = say("results", kept, "--query", "losts")
    assert "losts is none of its queries, which are trend, lots" in done.output


def test_following_reads_what_comes(tmp_path: Path) -> None:
    outbox = tmp_path / "outbox"
    outbox.mkdir()
    lines = encode(aggregate_table(EVENTS, QUERIES[:1])).splitlines(keepends=True)
    (outbox / f"{1:020}-{1:010}").write_bytes(lines[0])
    command = [
        sys.executable,
        "-m",
        "headwater_cli",
        "results",
        str(tmp_path),
        "--follow",
        "--format",
        "json",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reading:
        # It ends also if nothing is ever read.
        limit = Timer(PATIENCE, reading.kill)
        limit.start()
        try:
            assert reading.stdout is not None
            assert json.loads(reading.stdout.readline())["key"] == "boiler"
            # A later epoch of one position is not read again; the next position is.
            _put(outbox, 1, 2, lines[0])
            (outbox / f"{1:020}-{1:010}").unlink()
            sleep(2 * resultsread.LOOK)
            _put(outbox, 2, 1, lines[1])
            assert json.loads(reading.stdout.readline())["key"] == "filler"
        finally:
            limit.cancel()
            reading.kill()


def _put(outbox: Path, position: int, epoch: int, rows: bytes) -> None:
    """Write a file as a root does: it has its name when all of it is there."""
    name = f"{position:020}-{epoch:010}"
    (outbox / f"{name}.new").write_bytes(rows)
    (outbox / f"{name}.new").rename(outbox / name)


def test_following_reads_what_another_run_writes_in_place_of_the_results(kept: Path) -> None:
    files = resultfiles.ResultFiles(kept)
    assert len(list(files.fresh())) == 6
    # Fewer lines, as many, and more: a byte offset alone says nothing of any of them.
    for size in (1, 6, 9):
        queries = [Query(f"levels-{size}", Tumbling("10s"), "sum", key_by="tank")]
        events = {"ts": [START + n * 10_000_000 for n in range(size)], "value": [1.0] * size}
        found = encode(aggregate_table({**events, "tank": ["north"] * size}, queries))
        resultfiles.write(kept, [found], queries)
        assert [row["query"] for row in files.fresh()] == [f"levels-{size}"] * size
        assert (files.keys, files.counts) == ({f"levels-{size}": "tank"}, set())
        assert list(files.fresh()) == []


def test_following_begins_again_in_a_file_that_was_cut(tmp_path: Path) -> None:
    lines = encode(aggregate_table(EVENTS, QUERIES[:1])).splitlines(keepends=True)
    path = tmp_path / "windows.jsonl"
    path.write_bytes(lines[0] + lines[1])
    files = resultfiles.ResultFiles(tmp_path)
    assert len(list(files.fresh())) == 2
    path.write_bytes(lines[2])
    assert [row["id"] for row in files.fresh()] == [json.loads(lines[2])["id"]]


def test_following_names_keys_and_ranks_as_the_later_run_does(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = [Query("levels", Tumbling("10s"), "sum", key_by="tank"), Query("pairs", Tumbling(count=2))]
    events = {"ts": [START, START + 1], "value": [1.0, 2.0], "tank": ["north", "north"]}
    lines = earlier(encode(aggregate_table(events, queries)))
    looks = iter((1, 2))

    def write_between_looks(seconds: float) -> None:
        if next(looks) == 2:
            raise KeyboardInterrupt
        resultfiles.write(kept, [lines], queries)

    monkeypatch.setattr(resultsread, "sleep", write_between_looks)
    done = say("results", kept, "--follow", "--since", "2026-05-01T00:00")
    assert "levels  tank=north  2026-05-01 12:00:00.000 to 12:00:10.000 (10 s)  2 events" in done.output
    assert "pairs  events 1 to 2  2 events" in done.output


def test_a_file_is_aggregated_without_a_tree(day: Path) -> None:
    done = say(
        "aggregate",
        day,
        "--window",
        "10s",
        "--aggregate",
        "avg,quantile(0.5)",
        "--key",
        "machine",
        "--format",
        "json",
    )
    assert done.exit_code == 0, done.output
    found = {
        (each["key"], int(datetime.fromisoformat(each["start"]).timestamp()) * 1_000_000): each["values"]
        for each in map(json.loads, done.output.splitlines())
    }
    # Each window has one event here, so both functions are its value.
    assert found == {
        (machine, ts // 10_000_000 * 10_000_000): {"avg": value, "quantile(0.5)": value}
        for ts, machine, value in zip(*columns(), strict=True)
    }
    assert len(found) == 4


@pytest.mark.parametrize(
    "text", ["", "bogus:1", "10", "session:", "count:0", "count:1.5", "10s/", "session:1s/2s"]
)
def test_what_is_no_window_is_refused(day: Path, text: str) -> None:
    done = say("aggregate", day, "--window", text, "--aggregate", "avg")
    assert done.exit_code == 2
    assert "is no window; give 10s (tumbling)" in done.output


@pytest.mark.parametrize("text", ["10s", "10s/1s", "session:30s", "count:2", "count:4/2"])
def test_windows_have_a_short_form(day: Path, text: str) -> None:
    assert Query("q", parse_window(text)).window is not None
    assert say("aggregate", day, "--window", text, "--aggregate", "count").exit_code == 0


def aggregated(path: Path, text: str, *more: str) -> Result:
    path.write_text(text)
    return say("aggregate", path, "--window", "10s", "--aggregate", "count", "--format", "json", *more)


def test_times_of_a_file_have_a_unit(tmp_path: Path) -> None:
    path, text = tmp_path / "x.csv", "ts,value\n1700000000,1\n"
    refused = aggregated(path, text)
    assert refused.exit_code == 1
    assert "these look like seconds: --time-unit s" in refused.output
    done = aggregated(path, text, "--time-unit", "s")
    assert json.loads(done.output)["start"] == "2023-11-14T22:13:20+00:00"
    # As headwater send does: whatever lies before 1990 needs a unit.
    small = aggregated(path, "ts,value\n5,1\n")
    assert small.exit_code == 1
    assert "--time-unit us" in small.output
    done = aggregated(path, "ts,value\n1700000000,1\n", "--time-unit", "us")
    assert json.loads(done.output)["start"] == "1970-01-01T00:28:20+00:00"


def test_errors_name_options_that_there_are(tmp_path: Path) -> None:
    lines = f"ts,value,machine\n{START},1,boiler\n"
    path = tmp_path / "x.txt"
    assert "give --input-format csv|jsonl" in aggregated(path, lines).output
    csv_ = tmp_path / "x.csv"
    assert "say which it is with --key NAME" in aggregated(csv_, lines, "--key", "device").output
    refused = aggregated(csv_, lines, "--columns", "key=machine")
    assert refused.exit_code == 2
    assert "give --key machine and take key out of --columns" in refused.output
    # JSON lines have no header that could lack the column.
    refused = aggregated(tmp_path / "x.jsonl", f'{{"ts": {START}, "value": 1}}\n', "--key", "device")
    assert refused.exit_code == 1
    assert "no record has a key in 'device'; name its column with --key" in refused.output


def test_sites_are_read_only_if_asked_for(tmp_path: Path) -> None:
    lines = f"ts,value,site\n{START},1,north\n{START},2,south\n"
    done = aggregated(tmp_path / "x.csv", lines)
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["count"] == 2
    refused = aggregated(tmp_path / "x.csv", lines, "--columns", "site=site")
    assert refused.exit_code == 1
    assert "has two sites" in refused.output


def test_a_key_that_is_no_column_is_refused(day: Path) -> None:
    done = say("aggregate", day, "--window", "10s", "--aggregate", "avg", "--key", "device")
    assert done.exit_code == 1
    assert "'device'" in done.output
