"""`headwater plan`."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from click.testing import CliRunner, Result

from headwater_cli.app import main

EXAMPLES = Path(__file__).parents[2] / "examples"
PAPER = ("--sources", 500, "--rate", 0.5, "--limit", 20, "--margin", 0)


def say(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["plan", *map(str, arguments)])


def test_the_example_of_the_paper_as_json() -> None:
    done = say(*PAPER, "--price", 12, "--json")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith('{"layers": [13, 7, 4, 2, 1], ')
    told = json.loads(done.stdout)
    assert (told["nodes"], told["sources"], told["rate"], told["csa"]) == (27, 500, 250.0, [13, 7, 4, 2, 1])
    assert told["cost"] == {"node": 12.0, "month": 324.0}
    assert told["one_layer_less"]["layers"] == [13, 7, 4, 1]
    assert told["one_layer_less"]["lost"] > 0.3
    for layer, above in zip(told["tree"], told["tree"][1:], strict=False):
        assert len(layer["rates"]) == len(layer["headroom"]) == len(layer["parents"]) == layer["nodes"]
        assert set(layer["parents"]) == set(range(above["nodes"]))
    assert all(rate <= 20 for layer in told["tree"] for rate in layer["rates"])


def test_the_example_of_the_paper_for_people() -> None:
    done = say(*PAPER, "--price", 12)
    assert done.exit_code == 0, done.output
    assert "plan: 500 sources send 250 items/s" in done.stdout
    assert "27 nodes in 5 layers: 13 7 4 2 1" in done.stdout
    assert (
        "with one layer less (13 7 4 1), the root would get 39 items/s but takes at most 20: " in done.stdout
    )
    assert "of the items would have to wait at the sources" in done.stdout
    assert "27 nodes at 12 a month: 324.00 a month" in done.stdout
    assert "● ● ● ● ● ● ● ● ● ● ● ● ●" in done.stdout


def test_why_there_is_no_layer_less_is_said_without_two_numbers_in_a_row() -> None:
    given = ("--sources", 8, "--rate", 1_000)
    said = say(*given, "--limit", 6_000).stdout
    assert (
        "with one child alone, it would get 8,000 items/s but takes at most 6,000: 25% of the items" in said
    )
    said = say(*given, "--limit", 8_400, "--margin", 0.1).stdout
    end = "it would get 8,000 items/s: more than 7,560, its limit of 8,400 less the margin"
    assert f"with one child alone, {end}" in said


def test_a_manifest_and_what_else_is_asked() -> None:
    factory = EXAMPLES / "factory.yaml"
    assert "4 nodes in 2 layers: 3 1" in say(factory).stdout
    assert "for batch-quality every event is forwarded to the root, 2,000 items/s" in say(factory).stdout
    assert list(json.loads(say(factory, "--json").stdout)["central"]) == ["batch-quality"]
    assert "24 sources send" in say(factory, "--sources", 24).stdout
    assert json.loads(say(factory, "--rate", 10, "--json").stdout)["rate"] == 120.0
    assert json.loads(say(factory, "--limit", 5_000, "--json").stdout)["layers"] == [1]
    assert "one child takes it all" in say(factory, "--limit", 5_000).stdout


def test_what_if() -> None:
    done = say("--sources", "200..2000", "--rate", 0.5, "--limit", 20, "--price", 12)
    assert done.exit_code == 0, done.output
    assert "2,000" in done.stdout
    assert "56 28 14 7 4 2 1" in done.stdout
    assert "1,344.00" in done.stdout
    several = json.loads(say("--sources", "200..1000..400", "--rate", 0.5, "--limit", 20, "--json").stdout)
    assert [each["sources"] for each in several] == [200, 600, 1_000]


@pytest.mark.parametrize("sources,nodes", [(950, 48), (1, 1), (100_000, 5_006)])
def test_a_picture(sources: int, nodes: int, tmp_path: Path) -> None:
    path = tmp_path / "tree.svg"
    done = say("--sources", sources, "--rate", 0.5, "--limit", 20, "--margin", 0, "--svg", path)
    assert done.exit_code == 0, done.output
    drawing = ElementTree.parse(path)
    circles = drawing.findall(".//{http://www.w3.org/2000/svg}circle")
    assert f"{nodes:,} nodes" in path.read_text()
    assert len(circles) == nodes if nodes < 100 else len(circles) < nodes
    if nodes == 48:
        assert "[24 12 6 3 2 1]" in path.read_text()
        assert len(drawing.findall(".//{http://www.w3.org/2000/svg}line")) == 47 + 24
    # A legend says what colours mean; a plan that holds has no node in the colour of an alarm.
    words = [text.text for text in drawing.findall(".//{http://www.w3.org/2000/svg}text")]
    assert {"half or more free", "full, as planned", "overrun"} <= set(words)
    assert "#d9534f" not in {circle.get("fill") for circle in circles}


def test_nodes_that_there_are() -> None:
    told = json.loads(say("--sources", 100, "--rate", 0.5, "--nodes", "8x12,4x30", "--json").stdout)
    assert told["tree"][0]["kinds"] == {"30/s": 2}
    assert told["csa"] is None


@pytest.mark.parametrize(
    "given,said",
    [
        (("--rate", "nan"), "--rate: is nan; give items a second, above 0"),
        (("--rate", 0), "--rate: is 0; give items a second, above 0"),
        (("--rate", -1), "--rate: is -1; give items a second, above 0"),
        (("--rate", 30), "--rate: one source of 'source' sends 30 items a second"),
        (("--limit", 0), "--limit: is 0; give items a second, above 0"),
        (("--limit", "inf"), "--limit: is inf; give items a second, above 0"),
        (("--margin", 1), "--margin: is 1; give a share from 0 to below 1"),
        (("--margin", "nan"), "--margin: is nan; give a share"),
        (("--sources", 0), "--sources: is 0; expect 1 source or more"),
        (("--max-nodes", 10), "--max-nodes: is 10, but 250 items a second need 27 nodes, [13 7 4 2 1]"),
        (("--nodes", "3x20"), "--nodes: stands beside --limit; drop one of them"),
    ],
)
def test_what_cannot_be_planned(given: tuple[str, object], said: str) -> None:
    done = say(*PAPER, *given)
    assert done.exit_code == 1
    assert said in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "given",
    [
        ("--sources", "many"),
        ("--sources", "9..3"),
        ("--sources", "1..1000000..1"),
        ("--nodes", "8"),
        ("--nodes", "0x5"),
        ("--nodes", "8x12,3x12"),
        ("--price", "nan"),
        ("--price", -1),
    ],
)
def test_options_that_are_none(given: tuple[str, object]) -> None:
    done = say(*PAPER, *given)
    assert done.exit_code == 2
    assert given[0] in done.stderr


def test_what_is_missing_is_named() -> None:
    assert "--sources: is missing" in say("--rate", 1, "--limit", 2).stderr
    assert "--rate: is missing" in say("--sources", 1, "--limit", 2).stderr
    assert "--limit: is missing; give items a second; headwater bench node" in (
        say("--sources", 1, "--rate", 2).stderr
    )
    assert "spec.node.ingestLimit: is missing" in say(EXAMPLES / "session.yaml").stderr


def test_too_few_nodes_of_a_class(tmp_path: Path) -> None:
    document = yaml.safe_load((EXAMPLES / "factory.yaml").read_text())
    pi = {"selector": {"device": "pi4"}, "ingestLimit": 400, "count": 2}
    document["spec"]["node"]["classes"].insert(0, pi)
    document["spec"]["placement"] |= {"child": {"nodeSelector": {"device": "pi4"}}}
    path = tmp_path / "factory.yaml"
    path.write_text(yaml.safe_dump(document))
    done = say(path)
    assert done.exit_code == 1
    assert (
        "spec.node.classes[0].count: the children must take 2000 items a second, but 2 nodes take "
        "2 x 360 = 720, 1280 too little; add 6 more of device=pi4" in done.stderr
    )
    pi["count"] = 8
    path.write_text(yaml.safe_dump(document))
    assert say(path).exit_code == 0


def test_what_options_replace_is_not_judged(tmp_path: Path) -> None:
    document = yaml.safe_load((EXAMPLES / "factory.yaml").read_text())
    document["spec"]["node"] = {"ingestLimit": 100, "margin": 0.1}
    path = tmp_path / "factory.yaml"
    path.write_text(yaml.safe_dump(document))
    refused = say(path)
    assert refused.exit_code == 1
    assert "spec.node.ingestLimit: leaves 90 events a second with its margin" in refused.stderr
    assert say(path, "--limit", 9_000).exit_code == say(path, "--nodes", "2x9000").exit_code == 0
    assert say(path, "--rate", 1).exit_code == 0
    for field, value, option in (("margin", 2, "--margin"), ("expected", None, "--sources")):
        broken = yaml.safe_load((EXAMPLES / "factory.yaml").read_text())
        where = broken["spec"]["node"] if field == "margin" else broken["spec"]["sources"][0]
        where[field] = value
        (tmp_path / "broken.yaml").write_text(yaml.safe_dump(broken))
        assert field in say(tmp_path / "broken.yaml").stderr
        assert say(tmp_path / "broken.yaml", option, 0 if field == "margin" else 3).exit_code == 0
    # What they do not replace is.
    assert "spec.node.ingestLimit: leaves" in say(path, "--sources", 3).stderr
    document["spec"]["node"]["margin"] = 2
    path.write_text(yaml.safe_dump(document))
    assert "spec.node.margin: " in say(path, "--limit", 9_000).stderr


def test_a_range_says_which_numbers_cannot_be_planned() -> None:
    given = ("--sources", "80..100..10", "--rate", 1, "--limit", 20, "--max-nodes", 11, "--json")
    done = say(*given)
    assert done.exit_code == 1
    first, second, third = json.loads(done.stdout)
    assert first["layers"][-1] == second["layers"][-1] == 1
    assert third == {"sources": 100, "refused": third["refused"]}
    assert third["refused"].startswith("--max-nodes: is 11, but 100 items a second need 12 nodes")


@pytest.mark.parametrize(
    "given, said",
    [
        ("10..5", "goes down; give the lower number first"),
        ("0..10", "has a number below 1"),
        ("1..10..0", "has a number below 1"),
        ("1..20000000", "give at most 10,000,000 sources"),
        ("1..9000000..1", "are more than 1,000 plans; give a larger step"),
        ("1..2..3..4", "is no number of sources"),
    ],
)
def test_ranges_that_are_none(given: str, said: str) -> None:
    done = say("--sources", given, "--rate", 1, "--limit", 20)
    assert done.exit_code == 2
    assert said in done.stderr


def test_events_that_are_forwarded_are_planned_for() -> None:
    factory = EXAMPLES / "factory.yaml"
    done = say(factory, "--limit", 1_000)
    assert done.exit_code == 1
    assert "--limit: is 1000 for the root, but 2000 items a second reach it behind any number" in done.stderr
    assert "raise it to 2230" in done.stderr
    assert say(factory, "--limit", 2_230).exit_code == 0


def test_rows_that_cannot_be_planned_are_told_beside_the_others() -> None:
    done = say("--sources", "100..900..400", "--rate", 0.5, "--limit", 20, "--max-nodes", 30)
    assert done.exit_code == 1
    assert "14 7 4 2 1" in done.stdout
    assert "900 sources cannot be planned: --max-nodes: is 30" in done.stderr


def test_nodes_of_any_kind_may_be_the_root() -> None:
    # With the largest as the root the others would be too few.
    given = ("--sources", 150, "--rate", 1, "--nodes", "1x100,1x60,1x80", "--margin", 0)
    told = json.loads(say(*given, "--json").stdout)
    assert told["layers"] == [2, 1]
    assert [list(layer["kinds"]) for layer in told["tree"]] == [["100/s", "60/s"], ["80/s"]]


@pytest.mark.parametrize(
    "given,said",
    [
        (("--sources", -5), "--sources: is -5; expect 1 source or more"),
        (("--svg", "/nonexistent/x.svg"), "/nonexistent/x.svg"),
    ],
)
def test_more_that_is_refused_without_a_trace(given: tuple[str, object], said: str) -> None:
    done = say(*PAPER, *given)
    assert done.exit_code in (1, 2)
    assert said in done.stderr
    assert isinstance(done.exception, SystemExit)


def test_one_node_is_enough_for_one() -> None:
    told = json.loads(say("--sources", 1, "--rate", 1, "--limit", 100, "--max-nodes", 1, "--json").stdout)
    assert told["layers"] == [1]
    assert say("--sources", 1, "--rate", 1, "--nodes", "1x20").exit_code == 0
    done = say("--sources", 9, "--rate", 1, "--limit", 5, "--max-nodes", 1)
    assert done.exit_code == 1
    assert isinstance(done.exception, SystemExit)
