"""What a first run shows: windows for people, bytes of every hop, what is forwarded, where it is kept."""

from __future__ import annotations

import asyncio
import csv
import html
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from rich.console import Console

from headwater import aggregate
from headwater.queries import Query
from headwater.topology import topology_of
from headwater.windows import Session, Tumbling
from headwater_cli import baseline, launch, logfiles, manifests, resultfiles, runs
from headwater_cli.app import main
from headwater_cli.baseline import central_document
from headwater_cli.forwarding import forwarding
from headwater_cli.resultfiles import NoResultFiles
from headwater_cli.run import Run
from headwater_cli.summary import Central, Layer, Summary, told
from headwater_cli.times import duration, interval
from headwater_cli.windowlines import WindowLines
from headwater_root.resultlines import decode, encode
from tests.patience import PATIENCE

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples"
FIRST = FOLDER / "plant.yaml"
START = 1_700_000_000_000_000


def row(**changed: Any) -> dict[str, Any]:
    found = {"query": "trend", "incarnation": 1, "site": "", "key": "boiler", "start": START}
    found |= {"end": START + 10_000_000, "count": 1_234, "values": {"avg": 54.0625}, "ordinal": None}
    return found | changed


def test_a_window_is_a_line_for_people() -> None:
    lines = WindowLines.of([Query("trend", Tumbling("10s"), "avg", key_by="machine")])
    assert lines.format(row()) == (
        "trend  machine=boiler  2023-11-14 22:13:20.000 to 22:13:30.000 (10 s)  1,234 events  avg=54.0625"
    )
    # A name must not send commands to the terminal.
    assert "\x1b" not in lines.format(row(key="\x1b[2J"))


def test_a_count_window_has_ranks_not_times() -> None:
    lines = WindowLines.of([Query("lots", Tumbling(count=1_000), "avg")])
    shown = lines.format(row(query="lots", key=None, start=2_000, end=3_000))
    assert shown == "lots  events 2,001 to 3,000  1,234 events  avg=54.0625"


@pytest.mark.parametrize(
    "length, shown",
    [
        *[
            (7, "7 µs"),
            (250_000, "250 ms"),
            (1_500_000, "1.5 s"),
            (120_000_000, "2 min"),
            (7_200_000_000, "2 h"),
        ],
        *[(999, "999 µs"), (1_234_567, "1.235 s"), (999_999, "1 s"), (999_949, "999.9 ms")],
        *[
            (59_999_999, "1 min"),
            (59_990_000, "59.99 s"),
            (61_234_567, "1 min 1.2 s"),
            (90_000_000, "1 min 30 s"),
        ],
        *[(3_599_960_000, "1 h"), (5_400_000_000, "1 h 30 min"), (3_600_000_000 * 1_200, "1,200 h")],
    ],
)
def test_durations_are_durations(length: int, shown: str) -> None:
    assert duration(length) == shown


def test_an_interval_over_midnight_has_both_dates() -> None:
    begin = int(datetime(2026, 1, 1, 23, 59, 59, tzinfo=UTC).timestamp()) * 1_000_000
    assert interval(begin, begin + 2_000_000) == "2026-01-01 23:59:59.000 to 2026-01-02 00:00:01.000 (2 s)"


def test_queries_that_forward_are_named() -> None:
    found = forwarding(
        [
            Query("load", Tumbling("1s"), ["count", "avg"]),
            Query("p99", Tumbling("1s"), ["max", "quantile(0.99)"]),
            Query("lots", Tumbling(count=10), "avg"),
            Query("spells", Session(gap="1s"), ["first", "last"]),
        ]
    )
    assert list(found) == ["p99", "lots"]
    assert found["p99"].startswith("every value: quantile(0.99)")
    assert found["lots"].startswith("every event to the root: a count window")


def test_every_query_of_the_baseline_is_central() -> None:
    for example in FOLDER.glob("*.yaml"):
        if example.stem == "user-defined":
            continue
        document, left_out = central_document(manifests.read(example))
        if document["spec"]["queries"]:
            assert all(query.central for query in topology_of(document).queries), example
        assert (left_out != []) == ("type: punctuation" in example.read_text()), example


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(NoResultFiles, match=r"holds other files \(thesis.txt\); name an empty"):
        resultfiles.prepare(tmp_path)
    assert (tmp_path / "thesis.txt").exists()


def test_results_of_the_run_before_stay_until_there_are_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query("trend", Tumbling("10s"), "avg", key_by="machine")
    first, second = (
        encode(aggregate({"ts": [START], "value": [value], "machine": ["boiler"]}, query))
        for value in (1.0, 2.0)
    )
    resultfiles.prepare(tmp_path)
    resultfiles.write(tmp_path, [first], [query])
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(kept) == {"results.jsonl", "results.csv", "results.parquet", "queries.json"}
    # A run that was killed while it wrote leaves a file that is no result.
    (tmp_path / "results.csv.new").write_text("half")
    resultfiles.prepare(tmp_path)

    def fail(path: Path, rows: list[dict[str, Any]], functions: list[str]) -> None:
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(resultfiles, "_write_parquet", fail)
        with pytest.raises(OSError, match="No space left"):
            resultfiles.write(tmp_path, [second], [query])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == kept
    resultfiles.write(tmp_path, [second], [query])
    assert (tmp_path / "results.jsonl").read_bytes() == second
    assert {path.name for path in tmp_path.iterdir()} == set(kept)
    # Without pyarrow there is no table of the run before beside the new lines.
    monkeypatch.setattr(resultfiles, "find_spec", lambda name: None)
    resultfiles.write(tmp_path, [first], [query])
    assert {path.name for path in tmp_path.iterdir()} == set(kept) - {"results.parquet"}


@pytest.fixture
def short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A run of a second with a baseline, whose results are kept; not in the user's directories."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    tree = ["--engine", "embedded", "--children", "1", "--layers", "", "--seconds", "1"]
    return ["run", str(FIRST), *tree, "--baseline", "--output", str(tmp_path / "kept")]


def test_a_baseline_that_fails_is_a_problem_of_the_summary(
    tmp_path: Path, short: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*given: object) -> Central:
        # The results are there before it begins.
        assert (tmp_path / "kept" / "results.jsonl").stat().st_size
        raise RuntimeError("child-0 ended with code 9")

    monkeypatch.setattr(launch, "run_centrally", fail)
    done = CliRunner().invoke(main, short)
    assert done.exit_code == 1, done.output
    assert "the baseline gives no figures: child-0 ended with code 9; its log is" in done.output
    assert "events sent: " in done.output
    assert f"results: {tmp_path}/kept  (" in done.output
    assert "(executed)" not in done.output


def test_a_baseline_that_loses_events_is_not_called_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lossy:
        interrupted = False

        def __init__(self, *given: object, **options: object) -> None: ...

        async def run(self, *, verify: bool) -> Summary:
            found = Summary("plant", 1, sent=10, counted=9, layers=[Layer("children", 1, 5, 0.5)])
            found.judge()
            return found

        def clean(self) -> None: ...

    monkeypatch.setattr(baseline, "Run", Lossy)
    document = manifests.read(FIRST)
    central = asyncio.run(baseline.run_centrally(document, [1, 1], 1, None, None))
    summary = Summary("plant", 1, layers=[Layer("children", 1, 5, 0.5)], central=central)
    summary.judge()
    problem = "the baseline gives no figures: 10 events were sent, but 9 are counted, late or rejected"
    assert (summary.ok, summary.problems) == (False, [problem])
    screen = Console(record=True, file=io.StringIO(), width=200)
    told(summary, screen)
    assert "executed" not in screen.export_text()


@pytest.mark.parametrize("by_hand, raised", [(True, KeyboardInterrupt), (False, asyncio.CancelledError)])
def test_a_baseline_that_runs_tells_ctrl_c_from_sigterm(
    monkeypatch: pytest.MonkeyPatch, by_hand: bool, raised: type[BaseException]
) -> None:
    class Stopped:
        interrupted = by_hand

        def __init__(self, *given: object, **options: object) -> None: ...

        async def run(self, *, verify: bool) -> Summary:
            # Its own handler of the signal has cancelled it.
            raise asyncio.CancelledError

        def clean(self) -> None: ...

    monkeypatch.setattr(baseline, "Run", Stopped)
    with pytest.raises(raised):
        asyncio.run(baseline.run_centrally(manifests.read(FIRST), [1, 1], 1, None, None))


def test_a_tree_of_punctuation_windows_alone_has_no_baseline() -> None:
    summary = Summary("press", 1, layers=[Layer("children", 1, 5, 0.5)], central=Central(left_out=["batch"]))
    summary.judge()
    screen = Console(record=True, file=io.StringIO(), width=200)
    told(summary, screen)
    assert summary.ok
    assert "no baseline: batch cannot be computed from forwarded events" in screen.export_text()


def stopped(command: list[str], line: str, how: signal.Signals) -> tuple[int, str]:
    """The code and the output of a command that gets a signal once it has printed a line with a text."""
    whole = [sys.executable, "-m", "headwater_cli", *command]
    shown: list[str] = []
    with subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        assert running.stdout is not None
        try:
            for each in running.stdout:
                shown.append(each)
                if line in each:
                    running.send_signal(how)
                    line = "\0"
            code = running.wait(PATIENCE)
        finally:
            running.kill()
    return code, "".join(shown)


@pytest.mark.parametrize("how, expected", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_baseline_that_is_stopped_leaves_the_run(
    tmp_path: Path, short: list[str], how: signal.Signals, expected: int
) -> None:
    code, shown = stopped([*short, "--verify"], "the same events once more", how)
    assert code == expected, shown
    assert "every window equals the oracle" in shown
    assert "the baseline gives no figures: it was ended before it was over" in shown
    rows = list(decode((tmp_path / "kept" / "results.jsonl").read_bytes()))
    assert f"{len(rows):,} windows in" in shown
    assert f"results: {tmp_path}/kept  (" in shown


def test_whole_results_stay_whole_when_their_writing_is_interrupted(
    tmp_path: Path, short: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write, calls = resultfiles.write, []

    def interrupt_first(*given: Any) -> list[str]:
        calls.append(given)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return write(*given)

    monkeypatch.setattr(resultfiles, "write", interrupt_first)
    command = [each for each in short if each != "--baseline"]
    done = CliRunner().invoke(main, [*command, "--json"])
    assert done.exit_code == 130, done.output
    summary = json.loads(done.stdout)
    assert (summary["output"], summary["output_is_partial"]) == (str(tmp_path / "kept"), False)
    assert len(list(decode((tmp_path / "kept" / "results.jsonl").read_bytes()))) == summary["windows"]


def test_sigterm_after_the_baseline_ends_the_run_in_order(
    tmp_path: Path, short: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def finish(*given: object) -> Central:
        # As Run.run does: the handler goes with the loop.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: None)
        return Central(windows=1)

    def terminate(*given: object) -> None:
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL, "SIGTERM would kill this process"
        os.kill(os.getpid(), signal.SIGTERM)

    directories: list[Path] = []
    clean = Run.clean

    def clean_and_note(run: Run) -> None:
        clean(run)
        directories.append(run.directory)

    monkeypatch.setattr(launch, "run_centrally", finish)
    monkeypatch.setattr(launch, "_save", terminate)
    monkeypatch.setattr(Run, "clean", clean_and_note)
    done = CliRunner().invoke(main, [*short, "--json", "--svg", str(tmp_path / "run.svg")])
    assert done.exit_code == 143, done.output
    summary = json.loads(done.stdout)
    assert (summary["output"], summary["output_is_partial"]) == (str(tmp_path / "kept"), False)
    assert directories
    assert not any(directory.exists() for directory in directories)


def test_a_run_that_is_stopped_keeps_the_results_that_came_out(tmp_path: Path, short: list[str]) -> None:
    endless = [each for each in short if each != "--baseline"]
    endless[endless.index("--seconds") + 1] = "600"
    code, shown = stopped(endless, " events  ", signal.SIGINT)
    assert code == 130, shown
    assert f"results: {tmp_path}/kept, of what came out before the run ended  (" in shown
    assert list(decode((tmp_path / "kept" / "results.jsonl").read_bytes()))
    assert CliRunner().invoke(main, ["results", str(tmp_path / "kept")]).exit_code == 0


def test_a_run_that_fails_keeps_the_results_that_came_out(
    tmp_path: Path, short: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(run: Run, *given: object) -> None:
        raise RuntimeError("not everything was counted in time")

    monkeypatch.setattr(Run, "_until_delivered", fail)
    done = CliRunner().invoke(main, [*short, "--json"])
    assert done.exit_code == 1
    summary = json.loads(done.stdout)
    assert (summary["output"], summary["output_is_partial"]) == (str(tmp_path / "kept"), True)
    assert f"not everything was counted in time; its log is {tmp_path}/kept/log.jsonl" in done.stderr
    assert f"what came out before is in {tmp_path}/kept" in done.stderr
    assert list(decode((tmp_path / "kept" / "results.jsonl").read_bytes()))


def test_logs_of_old_runs_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for number in range(logfiles.LOGS + 5):
        logfiles.begin(f"plant-{number}", None)
    assert len(list(tmp_path.rglob("*.jsonl"))) == logfiles.LOGS


def test_a_log_in_the_directory_of_results_is_of_one_run(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text("of the run before\n")
    assert logfiles.begin("plant", tmp_path).read_bytes() == b""


def test_an_error_names_the_log_and_what_it_says(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"level":"error","message":"disk full"}\n{"level":"info","message":"ended"}\nnoise\n')
    assert logfiles.last_problem(log) == f": disk full; its log is {log}"


def test_an_error_of_a_process_that_died_with_a_traceback_is_its_exception(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    trace = 'Traceback (most recent call last):\n  File "x.py", line 7, in <module>\n    main()\n'
    # Other processes write into the same file meanwhile.
    other = '{"level":"info","message":"ended"}\n'
    log.write_text(
        f'{{"level":"error","message":"disk full"}}\n{other}{trace}{other}OSError: gone\nmore of it\n{other}'
    )
    assert logfiles.last_problem(log) == f": OSError: gone; its log is {log}"
    log.write_text(f"{other}setpriv: out of processes\n\n{other}5\n")
    assert logfiles.last_problem(log) == f": setpriv: out of processes; its log is {log}"
    # A line that is cut by the end that is looked at says nothing.
    log.write_text(f'{{"level":"info","message":"{"x" * logfiles.TAIL}"}}\n')
    assert logfiles.last_problem(log) == f"; its log is {log}"


def test_without_a_home_that_can_be_written_logs_are_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").write_text("no directory")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    environment |= {"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path)}
    tree = ["--engine", "embedded", "--children", "1", "--layers", "", "--seconds", "1"]
    command = [sys.executable, "-m", "headwater_cli", "run", str(FIRST), *tree]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stderr + done.stdout
    (log,) = tmp_path.glob("headwater-user-*/headwater/logs/*.jsonl")
    assert f"logs: {log}" in done.stdout
    assert log.parents[2].stat().st_mode & 0o077 == 0


def test_without_any_home_logs_and_notes_are_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", fail)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own = tmp_path / f"headwater-user-{os.getuid()}"
    assert logfiles.begin("plant", None).is_relative_to(own)
    assert runs.directory().is_relative_to(own)
    # Nothing is written where somebody else has put a link before.
    own.rename(tmp_path / "elsewhere")
    own.symlink_to(tmp_path / "elsewhere")
    assert not logfiles.begin("plant", None).is_relative_to(own)


def test_the_first_run_keeps_its_results_and_shows_the_point(tmp_path: Path) -> None:
    output = tmp_path / "kept"
    command = [sys.executable, "-m", "headwater_cli", "run", str(FIRST), "--engine", "embedded"]
    asked = ["--seconds", "4", "--verify", "--baseline", "--output", str(output)]
    done = subprocess.run([*command, *asked], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    for line in (
        "every window equals the oracle",
        "every event to the root (executed)",
        "peak-p99 forwards every value that it selects",
        f"logs: {output}/log.jsonl",
        f"results: {output}",
    ):
        assert line in done.stdout
    # No log line between the results, no times as numbers.
    assert '{"time"' not in done.stdout + done.stderr
    assert "1700000" not in done.stdout
    (hop,) = [line for line in done.stdout.splitlines() if line.startswith("children to root")]
    here, there = (float(part.rpartition("(")[2]) for part in hop.split("% of raw)")[:2])
    assert here < 50 < there
    # The picture in the README shows what a run shows today.
    shown = {_shape(line) for line in _lines_of_picture(ROOT / "docs" / "run.svg")}
    closing = done.stdout[done.stdout.index(" events sent: ") :].splitlines()[1:]
    missing = [line for line in closing if not line.startswith(("results: ", "logs: "))]
    missing = [line for line in missing if _shape(line) not in shown]
    assert not missing, f"docs/run.svg shows something else; make picture writes it anew: {missing}"
    # The three files hold the same windows.
    rows = list(decode((output / "results.jsonl").read_bytes()))
    assert f"{len(rows):,} windows in" in done.stdout
    with (output / "results.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [each["query"] for each in table] == [each["query"] for each in rows]
    columns = pq.read_table(output / "results.parquet").to_pylist()
    for kept, known, cells in zip(columns, rows, table, strict=True):
        assert kept["start"].timestamp() * 1e6 == pytest.approx(known["start"], abs=1)
        assert datetime.fromisoformat(cells["end"]) == kept["end"]
        for name, value in known["values"].items():
            found = kept[name]
            assert (json.loads(found) if isinstance(found, str) else found) == value


def _lines_of_picture(path: Path) -> list[str]:
    """The lines of a recorded terminal, from top to bottom."""
    lines: dict[float, list[tuple[float, str]]] = {}
    pattern = r'<text[^>]*? x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>'
    for x, y, text in re.findall(pattern, path.read_text().replace("&#160;", " ")):
        lines.setdefault(float(y), []).append((float(x), html.unescape(text)))
    return ["".join(text for _, text in sorted(lines[y])) for y in sorted(lines)]


def _shape(line: str) -> str:
    """A line without its figures and units, which differ from run to run."""
    return " ".join(re.sub(r"[\d.,]+( [kMG]?B\b)?", "#", line).split())


def test_the_picture_in_the_readme_is_of_the_first_example() -> None:
    lines = _lines_of_picture(ROOT / "docs" / "run.svg")
    queries = {each["id"] for each in manifests.read(FIRST)["spec"]["queries"]}
    windows = {line.split()[0] for line in lines if re.search(r" to \S+ \(.*\)", line)}
    assert windows, "make picture writes docs/run.svg anew"
    assert windows <= queries, "make picture writes docs/run.svg anew"


def test_a_baseline_of_an_input_is_refused() -> None:
    command = [sys.executable, "-m", "headwater_cli", "run", str(FIRST), "--baseline", "--input", "-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "--baseline sends generated events twice; drop --input" in done.stderr
