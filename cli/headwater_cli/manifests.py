"""Manifests in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import yaml

from headwater.errors import Invalid
from headwater.topology import Topology, topology_of
from headwater_wire.functions import Functions


def read(path: Path) -> dict[str, Any]:
    """The document in a YAML or JSON file."""
    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise click.ClickException(f"{path} is no YAML: {error}") from error
    if not isinstance(document, dict):
        raise click.ClickException(f"{path} holds no manifest; give an AggregationTopology")
    return document


def topology(path: Path) -> Topology:
    try:
        return topology_of(read(path), Functions())
    except Invalid as error:
        raise click.ClickException(f"{path}: {error}") from error
