"""`headwater query` and `headwater status` beside a run: what comes and goes is verified with the rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headwater.changes import Change
from headwater.queries import Query
from headwater.windows import Session, Tumbling
from headwater_cli.app import main
from headwater_cli.query import first_result
from headwater_root import control
from headwater_wire.v1 import control_pb2 as pb

EXAMPLE = Path(__file__).parents[2] / "examples" / "factory.yaml"
COMMAND = [sys.executable, "-m", "headwater_cli"]


class Machine:
    """This machine for a user of their own: notes of other runs are not seen."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(directory), "TMPDIR": str(directory)}
        self.environment.pop("HEADWATER_ROOT", None)

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def say(self, *arguments: object, given: str = "") -> Result:
        """A short command; it takes no process of its own."""
        return CliRunner(env=self.environment).invoke(main, list(map(str, arguments)), input=given)

    def said(self, *arguments: object, given: str = "") -> Any:
        """The answer as JSON."""
        done = self.say(*arguments, "--json", given=given)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    def until_watermark(self) -> dict[str, Any]:
        """The status, once something is final."""
        until = time.monotonic() + 120
        while time.monotonic() < until:
            done = self.say("status", "--json")
            if done.exit_code == 0 and json.loads(done.stdout)["watermark"] is not None:
                found: dict[str, Any] = json.loads(done.stdout)
                return found
            time.sleep(0.1)
        raise AssertionError(f"nothing became final: {done.stderr}")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_queries_come_and_go_in_a_run_that_is_exact(machine: Machine) -> None:
    tree = ("--children", 2, "--layers", 1)
    running = machine.start("run", EXAMPLE, *tree, "--seconds", 20, "--verify", "--json")
    try:
        status = machine.until_watermark()
        assert status["topology"] == "factory"
        assert status["totals"]["sources"] == len(status["sources"]) == 12
        assert status["started"]
        children = [node for node in status["nodes"] if node["role"] == "child"]
        assert [node["state"] for node in status["nodes"]] == ["member"] * 3
        assert sum(node["sources"] for node in children) == 12
        assert {source["child"] for source in status["sources"]} == {node["name"] for node in children}
        manifest = machine.directory / "load.yaml"
        manifest.write_text(
            "apiVersion: headwater.dev/v1alpha1\nkind: AggregationQuery\nmetadata: {name: load}\n"
            "spec: {topologyRef: factory, aggregate: [sum, median], "
            "window: {type: sliding, length: 2s, slide: 1s}}"
        )
        added = machine.said("query", "add", manifest)
        start, end = added["first_window"]
        assert (added["id"], added["version"], end - start) == ("load", 1, 2_000_000)
        assert added["since"] == start > status["watermark"]
        marks = (
            "{id: jobs, aggregate: max, window: {type: punctuation, start: begin, end: end, merge: order}}"
        )
        assert machine.said("query", "add", "-", given=marks)["first_window"] is None
        assert machine.said("query", "remove", "hot")["version"] == 3
        # One in the midst of its windows, one that is added again: it is another one.
        assert machine.said("query", "remove", "temp-avg", "--at-once")["version"] == 4
        again = "{id: hot, aggregate: count, window: {type: tumbling, length: 500ms}}"
        assert machine.said("query", "add", "-", given=again)["version"] == 5
        twice = machine.say("query", "add", "-", given=again)
        assert twice.exit_code == 1
        assert "id: is there already; give each query its own id" in twice.stderr
        done = machine.say("query", "list", "--json")
        listed = {(q["id"], q["incarnation"]): q for q in map(json.loads, done.stdout.splitlines())}
        assert len(listed) == 7 + 3
        assert listed["hot", 1]["until"] is not None
        assert listed["hot", 2]["state"] == listed["load", 1]["state"] == "active"
        assert listed["temp-avg", 1]["state"] == "ended"
        assert listed["batch-quality", 1]["central"]
        assert listed["per-second", 1]["central"] is None
        assert "at the root" in machine.say("query", "list").stdout
        shown = machine.say("status", "--sources", 5)
        assert "7 more sources" in shown.stdout
        assert "machine-hall-" in shown.stdout
        assert "intermediate" in shown.stdout
        output, errors = running.communicate(timeout=60)
    finally:
        running.kill()
        running.communicate()
    assert running.returncode == 0, errors
    summary = json.loads(output)
    assert summary["ok"]
    assert summary["differing"] == 0
    assert not summary["problems"]
    assert summary["sent"] == summary["counted"] + summary["late"] + summary["rejected"] == 20 * 2_000
    assert [layer["layer"] for layer in summary["layers"]] == ["children", "layer 2"]
    assert summary["raw_bytes"] > 20 * summary["sent"] // 2
    assert 0 < summary["latency_p50_ms"] <= summary["latency_p99_ms"] < 10_000
    # It has taken its note away: nobody finds it any more.
    assert "no run of yours" in machine.say("status").stderr


@pytest.mark.parametrize("arguments", [["status"], ["query", "list"], ["query", "remove", "x"]])
def test_who_is_not_there_is_told_in_a_sentence(machine: Machine, arguments: list[str]) -> None:
    nobody = machine.say(*arguments)
    assert nobody.exit_code == 1
    assert "--root ADDRESS" in nobody.output
    refused = machine.say(*arguments, "--root", "127.0.0.1:1")
    assert refused.exit_code == 1
    assert refused.output.count("\n") == 1
    assert "no root answers at 127.0.0.1:1" in refused.output


@pytest.mark.parametrize("content, words", [(None, "No such file"), ("{a: [", "is no YAML")])
def test_a_file_that_holds_no_query_is_told(machine: Machine, content: str | None, words: str) -> None:
    file = machine.directory / "query.yaml"
    if content is not None:
        file.write_text(content)
    done = machine.say("query", "add", file)
    assert done.exit_code == 1
    assert words in done.output


def test_the_key_of_a_query_that_was_added_has_its_name(machine: Machine) -> None:
    output = machine.directory / "kept"
    tree = ("--engine", "embedded", "--children", 1, "--layers", "")
    plant = EXAMPLE.with_name("plant.yaml")
    running = machine.start("run", plant, *tree, "--seconds", 10, "--output", output)
    try:
        machine.until_watermark()
        window = "window: {type: tumbling, length: 1s}"
        machine.said("query", "add", "-", given=f"{{id: peak, aggregate: max, {window}, keyBy: machine}}")
        machine.said(
            "query", "add", "-", given="{id: ranks, aggregate: max, window: {type: tumbling, count: 9}}"
        )
        shown, errors = running.communicate(timeout=120)
    finally:
        running.kill()
        running.communicate()
    assert running.returncode == 0, errors
    assert "peak  machine=" in shown
    assert "peak  key=" not in shown
    known = json.loads((output / "queries.json").read_text())
    assert (known["peak"], known["ranks"]) == (
        {"keyBy": "machine", "counts": False},
        {"keyBy": None, "counts": True},
    )
    assert "machine" in machine.say("results", output, "--query", "peak").stdout.splitlines()[2]


def test_so_many_events_and_no_more_are_sent(machine: Machine) -> None:
    picture = machine.directory / "run.svg"
    running = machine.start("run", EXAMPLE, "--events", 3_001, "--verify", "--json", "--svg", picture)
    try:
        output, errors = running.communicate(timeout=60)
    finally:
        running.kill()
        running.communicate()
    assert running.returncode == 0, errors
    summary = json.loads(output)
    assert summary["sent"] == 3_001
    assert summary["differing"] == 0
    drawn = picture.read_text()
    assert drawn.startswith("<svg")
    assert "every" in drawn
    assert str(machine.directory) not in drawn
    both = machine.say("run", EXAMPLE, "--events", 1, "--seconds", 1)
    assert both.exit_code == 2
    assert "give one of them" in both.output


def test_a_node_that_ends_ends_the_run_with_a_sentence(machine: Machine) -> None:
    running = machine.start("run", EXAMPLE, "--seconds", 60, "--json")
    try:
        machine.until_watermark()
        for entry in Path("/proc").iterdir():
            command = _command(entry)
            if "headwater_node" in command and str(machine.directory) in command and "l1-0" in command:
                os.kill(int(entry.name), 9)
        _, errors = running.communicate(timeout=60)
    finally:
        running.kill()
        running.communicate()
    assert running.returncode == 1
    assert "l1-0 ended with code -9" in errors
    assert "Traceback" not in errors


def _command(entry: Path) -> str:
    try:
        return (entry / "cmdline").read_text() if entry.name.isdigit() else ""
    except OSError:
        return ""


@pytest.mark.parametrize(
    "query, said",
    [
        (
            Query("q", Tumbling(1_000_000)),
            "the first whole window is 2023-11-14 22:13:24.000 to 22:13:25.000 (1 s)",
        ),
        (
            Query("q", Session(5)),
            "the first session is that of the first event at or behind 2023-11-14 22:13:24.000",
        ),
        (
            Query("q", Tumbling(count=7)),
            "the first window is of the first 7 events at or behind 2023-11-14 22:13:24.000",
        ),
    ],
)
def test_the_first_result_is_told_with_times(query: Query, said: str) -> None:
    change = Change("add", query, 1_700_000_004_000_000, 1)
    reply = pb.AddQueryReply(edge=change.edge, first_result=control.first_result(change))
    if bounds := control.first_window(change):
        reply.first_window.start, reply.first_window.end = bounds
    assert first_result(reply) == said


def test_a_first_result_without_a_time_stays_as_the_root_says_it() -> None:
    said = "the first window is that of the first event"
    assert first_result(pb.AddQueryReply(first_result=said)) == said
