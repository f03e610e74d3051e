"""Manifests in files: a topology, or a query for one that runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import yaml

from headwater.errors import Invalid
from headwater.queries import Query
from headwater.topology import QUERY_KIND, TOPOLOGY_KIND, Topology, query_of, topology_of
from headwater_wire.functions import Functions

# Mappings and lists within each other; a manifest has a handful.
DEPTH = 64
STDIN = "-"
_A_TOPOLOGY = f"give an {TOPOLOGY_KIND}"
_A_QUERY = f"give one query: an {QUERY_KIND}, or an entry of a topology's list, such as {{id: load, ...}}"


class BadManifest(click.ClickException):
    """A file that cannot be used, and why."""


class _Unusable(yaml.MarkedYAMLError):
    """YAML that no manifest is."""


class _Strict(yaml.SafeLoader):
    """A key that stands twice is a mistake: one of the two would be lost."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._depth += 1
        if self._depth > DEPTH:
            problem = f"lists or mappings stand more than {DEPTH} deep in each other; close those before"
            raise _Unusable(None, None, problem, self.peek_event().start_mark)  # type: ignore[no-untyped-call]  # stubs
        found = super().compose_node(parent, index)
        self._depth -= 1
        return found

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            problem = f"the key {twice!r} stands twice; give it once"
            raise _Unusable(None, None, problem, node.start_mark)
        return super().construct_mapping(node, deep)


def document(file: str | Path) -> Any:
    """What stands in a YAML or JSON file, or in the standard input (`-`)."""
    name = "standard input" if file == STDIN else str(file)
    try:
        text = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
        return yaml.load(text.decode(), _Strict)
    except OSError as error:
        raise BadManifest(f"{name}: {error.strerror}; name a file that can be read") from error
    except UnicodeDecodeError as error:
        raise BadManifest(f"{name} is no YAML: byte {error.start} is no UTF-8; save it as UTF-8") from error
    except yaml.YAMLError as error:
        said = "cannot be used" if isinstance(error, _Unusable) else "is no YAML"
        raise BadManifest(f"{name} {said}: {_told(error)}") from error


def read(path: Path) -> dict[str, Any]:
    """The document of a topology."""
    found = document(path)
    if not isinstance(found, dict):
        raise BadManifest(f"{path} {_what(found)}; {_A_TOPOLOGY}")
    return found


def topology(path: Path) -> Topology:
    return topology_in(read(path), path)


def judged(path: Path) -> Topology | tuple[str, Query]:
    """A manifest of either kind; a query comes with the topology that it is for."""
    found = read(path)
    if found.get("kind") != QUERY_KIND:
        return topology_in(found, path)
    try:
        return query_of(found, Functions())
    except Invalid as error:
        raise BadManifest(f"{path}: {error}") from error


def topology_in(found: Mapping[str, Any], path: Path) -> Topology:
    """The topology of a document that was read from a file."""
    try:
        return topology_of(found, Functions())
    except Invalid as error:
        raise BadManifest(f"{path}: {error}") from error


def query(file: str) -> str:
    """The document of a query, as JSON; whether it can be computed the root says."""
    name = "standard input" if file == STDIN else file
    found = document(file)
    if not isinstance(found, dict):
        raise BadManifest(f"{name} {_what(found)}; {_A_QUERY}")
    if found.get("kind") == TOPOLOGY_KIND:
        raise BadManifest(f"{name} holds a whole {TOPOLOGY_KIND}; {_A_QUERY}")
    try:
        # What JSON does not know, such as a date, is told by the root where it stands.
        return json.dumps(found, default=str)
    except (TypeError, ValueError) as error:
        raise BadManifest(f"{name} is more than JSON can say ({error}); {_A_QUERY}") from error


def _what(found: Any) -> str:
    """What a document is that is no mapping."""
    if found is None:
        return "is empty"
    if isinstance(found, list):
        return f"holds a list of {len(found)}"
    shown = repr(found)
    return f"holds only {shown if len(shown) <= 80 else shown[:77] + '...'}"


def _told(error: yaml.YAMLError) -> str:
    """What a reader of YAML says, in a line."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return " ".join(str(error).split())
    said = ", ".join(filter(None, (error.context, error.problem)))
    mark = error.problem_mark or error.context_mark
    return said if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: {said}"
