"""Manifests in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import yaml

from headwater.errors import Invalid
from headwater.topology import Topology, topology_of
from headwater_wire.functions import Functions


class _Strict(yaml.SafeLoader):
    """A key that stands twice is a mistake: one of the two would be lost."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            problem = f"the key {twice!r} stands twice; give it once"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return super().construct_mapping(node, deep)


def read(path: Path) -> dict[str, Any]:
    """The document in a YAML or JSON file."""
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), _Strict)
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise click.ClickException(f"{path} is no YAML: {error}") from error
    if not isinstance(document, dict):
        raise click.ClickException(f"{path} holds no manifest; give an AggregationTopology")
    return document


def topology(path: Path) -> Topology:
    try:
        return topology_of(read(path), Functions())
    except Invalid as error:
        raise click.ClickException(f"{path}: {error}") from error
