"""`headwater run` with a plan: trees that follow their sources, and nodes that are held to a limit."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from rich.console import Console

from headwater.errors import InvalidPlan
from headwater.planning.asked import plan_of
from headwater.planning.planner import Planner
from headwater.topology import NodeSpec, topology_of
from headwater_cli import headroom, scales
from headwater_cli.app import main
from headwater_cli.headroom import Headroom
from headwater_cli.nodes import Nodes
from headwater_cli.picture import Picture, Row
from headwater_cli.processes import Process
from headwater_cli.scales import Phase
from headwater_cli.summary import Summary, told
from tests.cli.test_plan import EXAMPLES

DOCUMENT: dict[str, Any] = {
    "apiVersion": "headwater.dev/v1alpha1",
    "kind": "AggregationTopology",
    "metadata": {"name": "plant"},
    "spec": {
        "sources": [
            {"class": "meter", "site": "north", "expected": 12, "rate": 5, "lateness": "1s"},
            {"class": "meter", "site": "south", "expected": 4, "rate": 5, "lateness": "1s"},
        ],
        "startTimeout": "20s",
        "node": {"ingestLimit": 100, "margin": 0.1},
        "limits": {"scaleDownAfter": "3s"},
        "queries": [
            {"id": "load", "aggregate": ["count", "sum"], "window": {"type": "tumbling", "length": "1s"}},
            {"id": "calm", "aggregate": "max", "window": {"type": "session", "gap": "400ms"}, "keyBy": "key"},
        ],
        "root": {"engine": "embedded"},
    },
}


def _run(path: Path, *arguments: object) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "headwater_cli",
        "run",
        str(path),
        *map(str, arguments),
        "--verify",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _manifest(directory: Path, **changes: Any) -> Path:
    path = directory / "plant.yaml"
    path.write_text(yaml.safe_dump({**DOCUMENT, "spec": {**DOCUMENT["spec"], **changes}}))
    return path


def test_a_tree_follows_its_sources_and_every_window_is_right(tmp_path: Path) -> None:
    told = _run(_manifest(tmp_path), "--scale", "16:4s,56:7s,20:14s")
    assert told["differing"] == 0
    assert told["sources"] == 56
    widths = told["widths"]
    assert widths[0] == [1, 1]
    # 280 events a second are four children; of the others it is measured how many it takes.
    assert max(each[0] for each in widths) == 4
    assert widths[-1][0] == 2
    # Those that were read by children that are gone: none of the first, of whom no child has gone.
    moved = told["moved"]
    assert len(moved) == len(set(moved)) <= 20
    assert told["failed"] == {}


def test_sources_come_back_and_change_their_rates(tmp_path: Path) -> None:
    told = _run(_manifest(tmp_path), "--scale", "8:3s,4@30:5s,8:3s")
    assert told["differing"] == 0
    # Who comes back is another one, with a spool of its own.
    assert told["sources"] == 12
    # 4 x 30 events a second are two children, 8 x 5 one.
    assert told["widths"][:2] == [[1, 1], [2, 1]]


def test_a_run_without_widths_is_planned(tmp_path: Path) -> None:
    told = _run(_manifest(tmp_path), "--seconds", 2)
    # 80 events a second are what one child takes, and the root too.
    assert (told["widths"], told["nodes"], told["differing"]) == ([[1, 1]], 2, 0)
    told = _run(_manifest(tmp_path, node={"ingestLimit": 50}), "--seconds", 2)
    assert told["widths"][0] == [2, 1]


def test_an_overrun_holds_sources_back_and_the_report_says_so(tmp_path: Path) -> None:
    queries = [
        {"id": "fine", "aggregate": "count", "window": {"type": "tumbling", "length": "50ms"}, "keyBy": "key"}
    ]
    path = _manifest(tmp_path, node={"ingestLimit": 40}, queries=queries)
    told = _run(path, "--seconds", 14, "--children", 2, "--layers", "", "--limit-nodes")
    assert told["differing"] == 0
    assert "root" in told["overrun"]
    rate, limit, waiting = told["overrun"]["root"]
    assert limit == 40
    assert rate < 80
    assert waiting > 0
    # Ten seconds of what it does not take.
    assert told["held_back"] > 80
    assert told["seconds"] > 15


@pytest.mark.parametrize(
    "given,said",
    [
        (("--scale", "200"), "'200' is no phase; give sources and how long, such as 200:10s"),
        (("--scale", "0:3s"), "is out of reach"),
        (("--scale", "5:1ms"), "is out of reach"),
        (("--scale", "5@fast:3s"), "is no phase"),
        (("--scale", "5:soon"), "soon"),
        (("--scale", "5:3s", "--seconds", "3"), "drop --seconds"),
        (("--scale", "5:3s", "--children", "3"), "drop --children"),
    ],
)
def test_scripts_that_are_none(given: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(main, ["run", *given])
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())


def test_what_is_needed_for_a_plan_is_named(tmp_path: Path) -> None:
    session = str(EXAMPLES / "session.yaml")
    for option in ("--limit-nodes", "--scale=5:3s"):
        done = CliRunner().invoke(main, ["run", session, option])
        assert done.exit_code == 1
        assert "spec.node.ingestLimit: is missing" in done.stderr
    huge = _manifest(tmp_path, node={"ingestLimit": 6, "margin": 0})
    many = [{"class": "meter", "site": "north", "expected": 200, "rate": 5, "lateness": "1s"}]
    huge = _manifest(tmp_path, node={"ingestLimit": 6, "margin": 0}, sources=many, limits={"maxNodes": 999})
    done = CliRunner().invoke(main, ["run", str(huge)])
    assert done.exit_code == 1
    assert "too much for processes of one machine" in done.stderr


def test_phases() -> None:
    assert scales.read("200:10s, 1000@2.5:1m") == [Phase(200, 10), Phase(1_000, 60, 2.5)]
    topology, document = scales.expecting(topology_of(DOCUMENT), DOCUMENT, 8)
    assert [each.expected for each in topology.sources] == [6, 2]
    assert [each["expected"] for each in document["spec"]["sources"]] == [6, 2]
    assert topology_of(document) == topology
    assert scales.expecting(topology_of(DOCUMENT), DOCUMENT, 1)[0].expected == 1


# The planner


def _planner() -> Planner:
    return Planner(topology_of(DOCUMENT), NodeSpec(100, 0.1))


def test_a_planner_widens_at_once_and_narrows_later() -> None:
    planner = _planner()
    few, many = {f"s{n}": 5.0 for n in range(16)}, {f"s{n}": 5.0 for n in range(200)}
    assert planner.replan(0, few).tree.widths == [1, 1]
    wide = planner.replan(1_000_000, many)
    assert wide.tree.widths == [12, 6, 3, 2, 1]
    assert not [move for move in wide.sources if move.before is not None]
    assert not planner.replan(2_000_000, many)
    assert planner.replan(2_500_000, few).tree.widths == [12, 6, 3, 2, 1]
    assert planner.replan(5_000_000, few).tree.widths == [12, 6, 3, 2, 1]
    narrow = planner.replan(6_000_000, few)
    assert narrow.tree.widths == [1, 1]
    assert "replanned to 1 1, 22 end (" in headroom.told(narrow, narrow.tree.widths)


def test_what_is_measured_replaces_the_bound_and_is_remembered() -> None:
    planner = _planner()
    many = {f"s{n}": 5.0 for n in range(200)}
    assert planner.replan(0, many, {}, {1: 0.05}).tree.widths == [12, 1]
    assert planner.replan(9_000_000, many).tree.widths == [12, 1]
    # For what no tree takes, it stays as the bound says.
    planner = _planner()
    assert planner.replan(0, many, {}, {1: 3.0}).tree.widths == [12, 6, 3, 2, 1]
    assert planner.beyond is not None
    with pytest.raises(InvalidPlan):
        planner.replan(0, {"s": 500.0})


def test_a_tree_never_has_more_nodes_than_it_may() -> None:
    document = {**DOCUMENT, "spec": {**DOCUMENT["spec"], "limits": {"maxNodes": 24, "scaleDownAfter": "3s"}}}
    planner = Planner(topology_of(document), NodeSpec(100, 0.1))
    assert planner.replan(0, {f"s{n}": 5.0 for n in range(200)}).tree.widths == [12, 6, 3, 2, 1]
    # All of them wider at once would be 43 nodes.
    many = {f"s{n}": 5.0 for n in range(380)}
    step = planner.replan(1_000_000, many, {}, {1: 0.04})
    assert step.tree.widths == [22, 1]
    assert step.tree.sources.keys() == many.keys()
    with pytest.raises(InvalidPlan, match="maxNodes"):
        planner.replan(2_000_000, {f"s{n}": 5.0 for n in range(1_000)})
    # What cannot be planned leaves it as it was.
    assert planner.tree == step.tree


# Headroom


def _process(name: str, items: float, sent: float = 0.0, waiting: int = 0) -> Process:
    process = Process(name, [])
    for at in range(8):
        process.last = {"items": items * at, "items_up": sent * at, "waiting": waiting}
        process.steady.take(float(at), process.last)
    return process


def test_headroom_is_by_the_limit_of_each() -> None:
    found = Headroom(100, 1_000)
    busy, root = _process("l1-0", 90), _process("root", 500)
    found.look([busy, root, Process("l1-1", [])], 0)
    assert found.least == {"l1-0": pytest.approx(0.1), "root": pytest.approx(0.5)}
    assert found.overrun == {}
    found.look([_process("l1-0", 120)], 1)
    assert found.overrun["l1-0"].rate == pytest.approx(120)
    assert found.overrun["l1-0"].limit == 100


def test_what_waits_for_a_moment_is_no_overrun() -> None:
    found, held, free = Headroom(100, 100), _process("root", 100, waiting=9), _process("root", 90)
    for now, process in ((0.0, held), (3.0, held), (4.0, free), (5.0, held), (9.0, held)):
        found.look([process], now)
        assert found.overrun == {}
    found.look([held], 12.0)
    assert found.overrun["root"].waiting == 9


def test_reductions_are_told_where_enough_comes_to_say() -> None:
    def layers(*taken: tuple[float, float]) -> list[Nodes]:
        return [Nodes(f"layer {n}", [_process(f"l{n}-0", *each)]) for n, each in enumerate(taken, 1)]

    assert headroom.reductions(layers((100, 10), (50, 5))) == {
        1: pytest.approx(0.1),
        2: pytest.approx(0.1),
    }
    assert headroom.reductions(layers((10, 1), (50, 0))) == {}


def test_more_than_the_bound_is_believed_of_children_and_beyond_the_margin() -> None:
    planner, many = _planner(), {f"s{n}": 5.0 for n in range(200)}
    assert planner.replan(0, many, {}, {1: 0.05, 2: 0.1}).tree.widths == [12, 1]
    # What is no longer so is not remembered.
    assert planner.replan(1_000_000, many, {}, {1: 0.54, 2: 0.9}).tree.widths == [12, 6, 3, 2, 1]
    assert planner.beyond is None
    planner.replan(2_000_000, many, {}, {1: 0.8})
    assert planner.beyond is not None


def test_nodes_are_expected_to_send_as_their_layer_does() -> None:
    planner = _planner()
    sources = {f"s{n}": 5.0 for n in range(400)}
    first = planner.replan(0, sources, {}, {1: 0.2, 2: 0.2})
    more = planner.replan(1_000_000, {**sources, **{f"t{n}": 5.0 for n in range(5)}})
    assert more.tree.widths[1:] == first.tree.widths[1:]
    assert not more.nodes


def test_the_picture_shows_who_has_the_least() -> None:
    rows = [Row("children", 20, 1.0, 1.0, 1.0, None, -0.2), Row("root", 1, 1.0, None, None, None, 0.5)]
    left = {f"l1-{n}": n / 20 for n in range(20)}
    out = Console(file=io.StringIO(), width=200)
    out.print(Picture("plant", rows, None, None, 0, 0.0, headroom=left))
    shown = out.file.getvalue()  # type: ignore[attr-defined]  # it is a StringIO
    assert "-20%" in shown
    assert "headroom: l1-0 0%, l1-1 5%," in shown
    assert "8 nodes with more" in shown


def test_what_cannot_be_planned_is_not_run(tmp_path: Path) -> None:
    counted = {"id": "lots", "aggregate": "sum", "window": {"type": "tumbling", "count": 10}}
    path = _manifest(tmp_path, queries=[counted], node={"ingestLimit": 20, "margin": 0.1})
    done = CliRunner().invoke(main, ["run", str(path), "--seconds", "3"])
    assert done.exit_code == 1
    assert "is 20 for the root, but 80 items a second reach it behind any number of layers" in done.stderr
    planned = CliRunner().invoke(main, ["plan", str(path)])
    assert planned.exit_code == 1
    assert "for lots every event is forwarded to the root, and no layer makes them fewer" in planned.stderr


def test_ctrl_c_twice_ends_it_at_once_and_in_order(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headwater_cli", "run", str(_manifest(tmp_path)), "--seconds", "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if line.startswith("load"):
                break
        running.send_signal(signal.SIGINT)
        time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        left = running.stdout.read()
        assert running.wait(60) == 130
    assert "Traceback" not in left
    assert left.rstrip().endswith("stopped")
    assert " events sent: " in left


def test_a_source_that_was_moved_twice_is_one_source() -> None:
    summary = Summary("plant", 3, widths=[[1, 1], [2, 1], [1, 1]], moved=["a", "b", "a"])
    out = Console(file=io.StringIO(), width=200)
    told(summary, out)
    shown = out.file.getvalue()  # type: ignore[attr-defined]  # it is a StringIO
    assert "1 1 -> 2 1 -> 1 1; 2 sources were moved 3 times: a, b" in shown


def test_sources_that_wait_are_told_of_though_nobody_is_overrun() -> None:
    summary = Summary("plant", 3, headroom={"l1-0": 0.1}, events_per_second=100.0, held_back=401)
    for held, is_told in ((401, True), (399, False)):
        summary.held_back = held
        out = Console(file=io.StringIO(), width=200)
        told(summary, out)
        assert ("sources were held back" in out.file.getvalue()) is is_told  # type: ignore[attr-defined]


# The limit of a node


def test_the_limit_of_a_node_is_measured_with_the_queries_of_a_manifest(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headwater_cli", "bench", "node", str(_manifest(tmp_path))]
    done = subprocess.run(
        [*command, "--seconds", "3", "--json"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [each["role"] for each in found["measured"]] == ["child", "intermediate", "root"]
    assert all(each["items"] > 0 and each["cores"] > 0 for each in found["measured"])
    decides = min(found["measured"], key=lambda each: each["limit"])
    least = decides["limit"]
    assert (found["decides"], found["estimate"]) == (decides["role"], decides["cores"] < 0.5)
    assert 0.9 * least <= found["ingestLimit"] <= least
    # It is a line of a manifest.
    node = yaml.safe_load(found["line"])["node"]
    assert plan_of(topology_of({**DOCUMENT, "spec": {**DOCUMENT["spec"], "node": node}})).widths == [1]
