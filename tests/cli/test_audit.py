"""`headwater audit` and `headwater rates` over what a real tree has archived and emitted."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from headwater_cli import times
from headwater_cli.app import main
from headwater_source.source import Source
from tests.tree.processes import Tree, tree

SECOND = 1_000_000
BEGIN = 1_700_000_000 * SECOND
EVENTS = 3_000
PATIENCE = 300.0
QUERIES: list[dict[str, Any]] = [
    {"id": "t", "aggregate": ["sum", "count", "median"], "window": {"type": "tumbling", "length": "1s"}},
    {
        "id": "s",
        "aggregate": ["count", "last"],
        "window": {"type": "session", "gap": "200ms"},
        "keyBy": "key",
    },
    {"id": "n", "aggregate": ["avg"], "window": {"type": "sliding", "count": 100, "every": 40}},
]


async def sent(found: Tree, directory: Path) -> None:
    """Two sources, one of them out of order and partly late."""
    draw = np.random.default_rng(5)
    for number, name in enumerate(("one", "two")):
        ts = BEGIN + np.arange(EVENTS) * 5_000
        if number:
            ts = ts - draw.choice([0, 0, 0, 300_000, 1_500_000], EVENTS)
        source = Source(name, found.address, spool=directory / name, site="here", lateness="1s", child="leaf")
        async with source:
            for begin in range(0, EVENTS, 500):
                part = slice(begin, begin + 500)
                value = draw.normal(size=500)
                await source.send(ts[part], value, keys=draw.choice(["x", "y"], 500).tolist())
            await source.heartbeat(BEGIN + 60 * SECOND)
            async with asyncio.timeout(PATIENCE):
                await source.flush()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree that has ended: `raw` is the archive, `root/sinks/lines` has the results."""
    directory = tmp_path_factory.mktemp("run")
    sinks = [{"type": "jsonlines", "path": "lines"}]
    with tree(directory, 2, QUERIES, sinks=sinks, archive=directory / "raw") as found:
        asyncio.run(sent(found, directory))
        found.stop()
        assert len(found.rows()) > 100
    return directory


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headwater_cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def test_what_a_tree_has_emitted_is_what_the_raw_events_say(run: Path) -> None:
    done = command(
        "audit",
        run / "topology.json",
        "--archive",
        run / "raw",
        "--results",
        run / "root/sinks/lines",
        "--json",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.splitlines()[0] == "starting Spark"
    assert "WARN" not in done.stderr
    report = json.loads(done.stdout)
    assert (report["differing"], report["complete"], report["extent"]["gaps"]) == (0, True, [])
    assert report["extent"]["records"] == 2 * EVENTS + 2
    assert report["extent"]["late"] > 100
    lines = [json.loads(line) for line in (run / "root/sinks/lines/results.jsonl").read_text().splitlines()]
    for audited in report["queries"]:
        assert audited["equal"] == sum(line["query"] == audited["query"] for line in lines)


def test_a_line_that_was_changed_one_that_is_gone_and_one_more_are_each_found(
    run: Path, tmp_path: Path
) -> None:
    lines = (run / "root/sinks/lines/results.jsonl").read_text().splitlines()
    own = [n for n, line in enumerate(lines) if json.loads(line)["query"] == "t"]
    wrong = json.loads(lines[own[2]])
    wrong["values"]["sum"] += 0.001
    lines[own[2]] = json.dumps(wrong)
    more = json.loads(lines[own[3]])
    more["start"], more["end"] = more["start"] - 60 * SECOND, more["end"] - 60 * SECOND
    lines.append(json.dumps(more))
    gone = json.loads(lines.pop(own[4]))
    (tmp_path / "results.jsonl").write_text("\n".join(lines) + "\n")
    done = command(
        "audit", run / "topology.json", "--archive", run / "raw", "--results", tmp_path, "--query", "t"
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert (
        f"t: different: window {wrong['start']} to {wrong['end']}; sum is {wrong['values']['sum']}"
        in done.stdout
    )
    assert f"t: missing: window {gone['start']} to {gone['end']}" in done.stdout
    assert f"t: extra: window {more['start']} to {more['end']}" in done.stdout
    assert "3 windows differ" in done.stdout


def test_rates(run: Path) -> None:
    done = command("rates", "--archive", run / "raw", "--json")
    assert done.returncode == 0, done.stderr
    one, two = json.loads(done.stdout)
    assert (one["source"], one["site"], one["events"], round(one["mean"])) == ("one", "here", EVENTS, 200)
    assert (two["source"], two["events"]) == ("two", EVENTS)


def test_what_cannot_be_used_is_told_before_spark_is_started(run: Path, tmp_path: Path) -> None:
    given = ["audit", str(run / "topology.json"), "--archive", str(run / "raw"), "--results", str(tmp_path)]
    done = CliRunner().invoke(main, [*given, "--query", "nobody"])
    assert (done.exit_code, "it has t, s, n" in done.output) == (2, True)
    done = CliRunner().invoke(main, [*given, "--from", "yesterday"])
    assert (done.exit_code, "is no time" in done.output) == (2, True)
    done = CliRunner().invoke(main, ["rates", "--archive", str(tmp_path / "none")])
    assert (done.exit_code, "does not exist" in done.output) == (2, True)


@pytest.mark.parametrize(
    "text, found",
    [
        ("1700000000000000", BEGIN),
        ("-5", -5),
        ("2023-11-14T22:13:20", BEGIN),
        ("2023-11-14T22:13:20Z", BEGIN),
        ("2023-11-14T23:13:20.5+01:00", BEGIN + SECOND // 2),
        ("2023-11-14", BEGIN - 80_000 * SECOND),
    ],
)
def test_times_as_people_write_them(text: str, found: int) -> None:
    assert times.read(text) == found
