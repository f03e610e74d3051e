"""The definitions: the fields that the command line reads, all of them bounded and explained."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from headwater.topology import query_of, topology_of
from headwater.topology.sections import Section
from headwater_operator.crds import definitions
from headwater_operator.crds.__main__ import main, written
from tests.manifests import accepted, query_object

DEFINITIONS = definitions()
CHART = Path(__file__).parents[2] / "charts" / "headwater" / "files" / "crds"


def _schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = DEFINITIONS[name]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def _parts(path: str, schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """A schema and all within it, each with its path."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from _parts(f"{path}.{name}".lstrip("."), inner)
    if "items" in schema:
        yield from _parts(f"{path}[]", schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _parts(f"{path}{{}}", schema["additionalProperties"])


EVERY = [
    pytest.param(path, part, id=f"{name}: {path or 'the object'}")
    for name in DEFINITIONS
    for path, part in _parts("", _schema(name))
    if path not in ("metadata", "apiVersion", "kind")
]


@pytest.mark.parametrize("path, part", EVERY)
def test_every_field_is_bounded_and_explained(path: str, part: dict[str, Any]) -> None:
    kind = part.get("type")
    if not path.endswith(("[]", "{}")) or kind == "object":
        assert part["description"].endswith((".", ")")), path
    assert "default" not in part
    if kind == "string" and "enum" not in part and part.get("format") != "date-time":
        assert "maxLength" in part
    if kind == "array":
        assert "maxItems" in part
        assert part["x-kubernetes-list-type"] in ("map", "atomic")
    if kind == "integer":
        assert {"minimum", "maximum"} <= set(part)
        # As an API server holds them: one that rounds up to 2**63 turns into the least int64.
        assert -(2**63) <= float(part["minimum"]) <= float(part["maximum"]) < 2**63
    if "additionalProperties" in part:
        assert "maxProperties" in part


def test_the_fields_are_those_that_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: defaultdict[str, set[str]] = defaultdict(set)
    done = Section.done

    def noted(section: Section) -> None:
        read[re.sub(r"\[[^\]]*\]", "[]", section.path)] |= set(section._known)
        done(section)

    monkeypatch.setattr(Section, "done", noted)
    for id, document in accepted():
        # An id with brackets makes a path that reads like others.
        if document["kind"] == "AggregationTopology" and "[1]" not in id:
            topology_of(document)
    topologies = dict(read)
    read.clear()
    query = query_object()
    query["spec"]["where"] = {"above": 5}
    query_of(query)
    for name, found in (("aggregationtopologies", topologies), ("aggregationqueries", dict(read))):
        known = {
            path: set(part["properties"])
            for path, part in _parts("", _schema(name))
            if "properties" in part and not path.startswith("status")
        }
        # What an API server brings along.
        found.pop("metadata")
        assert known == found


def test_the_chart_has_them(tmp_path: Path) -> None:
    assert main([str(CHART), "--check"]) == 0
    assert main([str(tmp_path)]) == 0
    for name in DEFINITIONS:
        assert yaml.safe_load((tmp_path / f"{name}.yaml").read_text()) == DEFINITIONS[name]


def test_a_chart_without_them_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(tmp_path)])
    (tmp_path / "aggregationqueries.yaml").write_text(written("aggregationqueries") + "#")
    assert main([str(tmp_path), "--check"]) == 1
    assert "aggregationqueries.yaml is not current. Remedy: make crds" in capsys.readouterr().err
