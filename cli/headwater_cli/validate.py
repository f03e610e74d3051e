"""`headwater validate`: what is wrong with manifests."""

from __future__ import annotations

from pathlib import Path

import click

from headwater.queries import Query
from headwater.topology import Topology
from headwater_cli import manifests
from headwater_cli.manifests import BadManifest


@click.command()
@click.argument("manifest", type=click.Path(path_type=Path), nargs=-1, required=True)
def validate(manifest: tuple[Path, ...]) -> None:
    """Say whether manifests can be used, and everything that is wrong with them.

    An AggregationTopology or an AggregationQuery each. Ends with code 1 if one of them cannot be used.

    \b
    headwater validate examples/factory.yaml
    headwater validate examples/*.yaml
    """
    bad = 0
    for path in manifest:
        try:
            found = manifests.judged(path)
        except BadManifest as error:
            click.echo(f"Error: {error}", err=True)
            bad += 1
        else:
            click.echo(f"{path}: {_told(found)}")
    if bad:
        raise SystemExit(1)


def _told(found: Topology | tuple[str, Query]) -> str:
    if isinstance(found, Topology):
        return f"{found.name}, {found.expected} sources, {len(found.queries)} queries"
    topology, query = found
    return f"{query.id}, a query for {topology}: {query.window}"
