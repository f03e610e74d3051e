"""Alerts: that they ask for figures that there are, and that somebody is told what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.manifests import DESIGN, small
from tests.operator.trees import nodes, one, rendered

ROOT = Path(__file__).parents[2]
OF_THE_OPERATOR = ROOT / "operator" / "headwater_operator" / "metrics.py"
# What each program calls its figures, and where they are.
MODULES = {
    "node": [ROOT / "node_images" / "headwater_node" / "metrics.py"],
    "root": [
        ROOT / "root" / "headwater_root" / "metrics.py",
        ROOT / "spark_jobs" / "headwater_spark" / "runtime.py",
    ],
    "operator": [OF_THE_OPERATOR],
}
_METRIC = re.compile(r"headwater_(node|root|operator)_([a-z_]+)")


def _rules(group_list: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for group in group_list:
        yield from group["rules"]


def _of_topologies() -> list[dict[str, Any]]:
    pi = (("headwater.dev/device", "pi4"),)
    trees = [
        (yaml.safe_load(DESIGN), nodes("factory", 3, 2, selectors={2: pi})),
        (small(spec__node={"ingestLimit": 900}), nodes("small", 2)),
    ]
    return [
        rule
        for document, tree in trees
        for rule in _rules(
            one(rendered(document, tree, monitored=True), "PrometheusRule", document["metadata"]["name"])[
                "spec"
            ]["groups"]
        )
    ]


def _of_the_operator() -> list[dict[str, Any]]:
    document = yaml.safe_load((ROOT / "charts" / "headwater" / "files" / "alerts.yaml").read_text())
    return list(_rules(document["groups"]))


def _exported(program: str) -> set[str]:
    """The figures of a program, as they are written in its source, and other words."""
    text = "".join(path.read_text() for path in MODULES[program])
    return set(re.findall(r'"(?:headwater_[a-z]+_)?([a-z_]+)"', text))


def _is_exported(program: str, name: str) -> bool:
    known = _exported(program)
    stem = name.removesuffix("_total")
    if program == "root" and stem.startswith("records_"):
        # Three of a kind are made in a loop.
        return stem in known or stem.removeprefix("records_") in known
    return stem in known


TREES = [pytest.param(rule, id=f"{place} {rule['alert']}") for place, rule in enumerate(_of_topologies())]
OPERATOR = [pytest.param(rule, id=rule["alert"]) for rule in _of_the_operator()]


@pytest.mark.parametrize("rule", [*TREES, *OPERATOR])
def test_an_alert_asks_for_figures_that_there_are(rule: dict[str, Any]) -> None:
    found = _METRIC.findall(rule["expr"])
    assert found
    documented = "".join((ROOT / "docs" / page).read_text() for page in ("metrics.md", "spark.md"))
    for program, name in found:
        assert _is_exported(program, name), name
        assert program == "operator" or f"`headwater_{program}_{name}`" in documented, name


@pytest.mark.parametrize("rule", [*TREES, *OPERATOR])
def test_an_alert_is_well_formed(rule: dict[str, Any]) -> None:
    expression = rule["expr"]
    for opening, closing in ("()", "[]", "{}"):
        assert expression.count(opening) == expression.count(closing)
    assert expression.count('"') % 2 == 0
    assert re.fullmatch(r"[0-9]+m", rule["for"])
    assert rule["labels"]["severity"] in ("warning", "critical")
    # What a sentence takes from the labels, the expression must have left.
    for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
        assert re.search(rf"by \([^)]*\b{label}\b", expression), label


def test_every_alert_says_what_to_do() -> None:
    found = {
        rule["alert"]: rule["annotations"]["runbook"] for rule in (*_of_topologies(), *_of_the_operator())
    }
    page = (ROOT / "docs" / "alerts.md").read_text()
    told = re.findall(r"^### (\w+)\n\n(.+)$", page, re.MULTILINE)
    assert {name for name, _ in told} == set(found)
    for name, runbook in found.items():
        assert runbook == f"docs/alerts.md#{name.lower()}"


def test_a_child_is_held_to_the_limit_of_its_class() -> None:
    found = {rule["expr"] for rule in _of_topologies() if rule["alert"] == "HeadwaterIngestNearLimit"}
    (of_pi,) = [each for each in found if each.endswith("> 11.4")]
    assert 'node=~"factory-l1-2"' in of_pi
    (others,) = [each for each in found if each.endswith("> 19")]
    assert 'node=~"factory-l1-0|factory-l1-1"' in others
    (alike,) = [each for each in found if each.endswith("> 855")]
    assert 'role="child"' in alike


def test_a_suspended_topology_is_not_missed() -> None:
    found = one(rendered(small(), [], replicas=0, monitored=True), "PrometheusRule", "small")
    said = {rule["alert"] for rule in _rules(found["spec"]["groups"])}
    assert "HeadwaterRootDown" not in said
    assert "HeadwaterRootDown" in {rule["alert"] for rule in _of_topologies()}


def test_nothing_is_monitored_where_nobody_would_understand_it() -> None:
    kinds = {each["kind"] for each in rendered(small(), nodes("small", 2))}
    assert not kinds & {"PodMonitor", "PrometheusRule"}


def _waits(rate: float) -> str:
    """The expression by which windows wait for a source of so many events a second."""
    document = yaml.safe_load(DESIGN)
    for source in document["spec"]["sources"]:
        source |= {"rate": rate, "idleAfter": "1h"}
    (rule,) = (
        rule
        for rule in _rules(
            one(rendered(document, nodes("factory", 3, 2), monitored=True), "PrometheusRule", "factory")[
                "spec"
            ]["groups"]
        )
        if rule["alert"] == "HeadwaterWindowsWait"
    )
    return str(rule["expr"])


def test_nobody_is_alarmed_by_sources_that_send_rarely() -> None:
    assert _waits(10.0).count("> 60") == 2
    # One event in five minutes: three of them may be missing, twice as long.
    assert _waits(1 / 300).count("> 1800") == 2
