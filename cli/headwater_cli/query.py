"""`headwater query`: the queries of a running tree come and go."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from headwater_cli import client, manifests
from headwater_cli.screen import console
from headwater_cli.times import interval, moment
from headwater_wire.v1 import control_pb2 as pb

_STATES = {
    pb.ListedQuery.STATE_ACTIVE: "active",
    pb.ListedQuery.STATE_ENDING: "ending",
    pb.ListedQuery.STATE_ENDED: "ended",
}


@click.group()
def query() -> None:
    """Add, remove and list the queries of a running tree.

    \b
    headwater query add load.yaml
    headwater query list
    headwater query remove load

    Nothing is restarted: a query sees the events from a moment on that no event has reached yet, and its
    first result is the first whole window.
    """


@query.command()
@click.argument("file", metavar="FILE|-", type=click.Path(allow_dash=True))
@click.option("--json", "as_lines", is_flag=True, help="The answer as JSON.")
@client.at_root
def add(file: str, as_lines: bool, root: client.At) -> None:
    """Add the query in FILE, an AggregationQuery or an entry of a topology's list, as YAML or JSON.

    \b
    headwater query add load.yaml
    echo '{id: load, aggregate: sum, window: {type: tumbling, length: 1s}}' | headwater query add -
    """
    document = manifests.query(file)
    with client.connected(root) as reached:
        reply = reached.add(document)
    if as_lines:
        found = {"id": reply.id, "version": reply.version, "since": _or_none(reply, "edge")}
        bounds = reply.first_window
        first = [bounds.start, bounds.end] if reply.HasField("first_window") else None
        click.echo(json.dumps({**found, "first_window": first, "first_result": reply.first_result}))
        return
    since = moment(reply.edge) if reply.HasField("edge") else "the first event"
    click.echo(f"{reply.id}: version {reply.version}, from {since} on; {first_result(reply)}")


def first_result(reply: pb.AddQueryReply) -> str:
    """What the first result will be, with times as people read them."""
    if reply.HasField("first_window"):
        return f"the first whole window is {interval(reply.first_window.start, reply.first_window.end)}"
    sentence, behind, edge = reply.first_result.rpartition(" at or behind ")
    # The root writes the time as a number.
    return sentence + behind + (moment(reply.edge) if edge == str(reply.edge) else edge)


@query.command()
@click.argument("id")
@click.option("--at-once", is_flag=True, help="Drop the windows that it has begun.")
@click.option("--json", "as_lines", is_flag=True, help="The answer as JSON.")
@client.at_root
def remove(id: str, at_once: bool, as_lines: bool, root: client.At) -> None:
    """Remove the query ID, after the last window that it has begun.

    \b
    headwater query remove load
    headwater query remove load --at-once
    """
    with client.connected(root) as reached:
        reply = reached.remove(id, at_once=at_once)
    if as_lines:
        click.echo(json.dumps({"id": id, "version": reply.version, "until": _or_none(reply, "edge")}))
        return
    until = moment(reply.edge) if reply.HasField("edge") else "the first event"
    then = "open windows are dropped" if at_once else "windows begun before are put out when they are final"
    click.echo(f"{id}: version {reply.version}, up to {until}; {then}")


@query.command(name="list")
@click.option("--json", "as_lines", is_flag=True, help="One JSON object a line.")
@client.at_root
def listed(as_lines: bool, root: client.At) -> None:
    """List the queries, those that were removed too.

    \b
    headwater query list
    headwater query list --json --root 127.0.0.1:7600
    """
    with client.connected(root) as reached:
        queries = reached.queries()
    if as_lines:
        for each in queries:
            click.echo(json.dumps(plain(each)))
    else:
        shown = console()
        shown.print(_table(queries))
        for each in queries:
            if each.central and each.state != pb.ListedQuery.STATE_ENDED:
                shown.print(Text(f"{each.id} is computed at the root: {each.central}"))


def plain(told: pb.ListedQuery) -> dict[str, Any]:
    """A query as JSON has it; times in microseconds, null: no bound."""
    return {
        "id": told.id,
        "incarnation": told.incarnation,
        "state": _STATES[told.state],
        "version": told.version,
        "since": _or_none(told, "since"),
        "until": _or_none(told, "until"),
        "central": told.central or None,
        "windows": told.windows,
        "group": _or_none(told, "group"),
        "lane": told.lane,
        "lag": _or_none(told, "lag"),
        "query": json.loads(told.document),
    }


def _table(queries: list[pb.ListedQuery]) -> Table:
    table = Table()
    # On a narrow screen an id goes on in the next line; cut, it would say nothing.
    table.add_column("query", overflow="fold", min_width=12)
    for column in ("state", "version", "from", "until", "computed", "windows"):
        table.add_column(column, justify="right" if column in ("version", "windows") else "left")
    for each in queries:
        id = each.id if each.incarnation == 1 else f"{each.id}/{each.incarnation}"
        table.add_row(
            # A name is no markup.
            Text(id),
            _STATES[each.state],
            str(each.version),
            moment(each.since) if each.HasField("since") else "the beginning",
            moment(each.until) if each.HasField("until") else "",
            "at the root" if each.central else "in the tree",
            f"{each.windows:,}",
        )
    return table


def _or_none(message: Any, field: str) -> int | None:
    return getattr(message, field) if message.HasField(field) else None
