"""What a first run shows: windows for people, bytes of every hop, what is forwarded, where it is kept."""

from __future__ import annotations

import csv
import html
import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from headwater.queries import Query
from headwater.topology import topology_of
from headwater.windows import Session, Tumbling
from headwater_cli import logfiles, manifests, resultfiles
from headwater_cli.baseline import central_document
from headwater_cli.forwarding import forwarding
from headwater_cli.resultfiles import NoResultFiles
from headwater_cli.times import duration, interval
from headwater_cli.windowlines import WindowLines
from headwater_root.resultlines import decode

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
    [(7, "7 µs"), (250_000, "250 ms"), (1_500_000, "1.5 s"), (120_000_000, "2 min"), (7_200_000_000, "2 h")],
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


def test_logs_of_old_runs_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for number in range(logfiles.LOGS + 5):
        logfiles.begin(f"plant-{number}", None)
    assert len(list(tmp_path.rglob("*.jsonl"))) == logfiles.LOGS


def test_an_error_names_the_log_and_what_it_says(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"level":"error","message":"disk full"}\n{"level":"info","message":"ended"}\nnoise\n')
    assert logfiles.last_problem(log) == f": disk full; its log is {log}"


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
    for x, y, text in re.findall(pattern, path.read_text()):
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
