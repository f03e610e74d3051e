"""`headwater status`: how a running tree stands."""

from __future__ import annotations

import json
import time
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headwater.machines.holds import PATIENCE
from headwater_cli import client, screen
from headwater_cli.times import moment, seconds
from headwater_wire.v1 import control_pb2 as pb

EVERY = 1.0
_STATES = {
    pb.SourceStatus.STATE_LIVE: "live",
    pb.SourceStatus.STATE_IDLE: "idle",
    pb.SourceStatus.STATE_RETIRED: "retired",
}
_REASONS = {
    pb.Hold.REASON_EXPECTED: "expected",
    pb.Hold.REASON_SILENT: "silent",
    pb.Hold.REASON_CHILD_SILENT: "child silent",
    pb.Hold.REASON_NO_CHILD: "no child",
    pb.Hold.REASON_HORIZON: "held by the horizon",
    pb.Hold.REASON_FUTURE: "timestamp in the future",
    pb.Hold.REASON_QUARANTINE: "quarantined",
    pb.Hold.REASON_BACKPRESSURE: "backpressure",
    pb.Hold.REASON_BEHIND: "behind",
    pb.Hold.REASON_REFUSED: "refused",
}
_MEMBERSHIP = {pb.NodeStatus.STATE_MEMBER: "member", pb.NodeStatus.STATE_LEFT: "left"}


@click.command()
@click.option("--json", "as_lines", is_flag=True, help="As JSON; with --watch an object a line.")
@click.option("--watch", is_flag=True, help="Again every second, until Ctrl-C.")
@click.option(
    "--sources",
    default=20,
    show_default=True,
    type=click.IntRange(1, 1_000_000),
    help="How many sources are shown at most.",
)
@client.at_root
def status(as_lines: bool, watch: bool, sources: int, root: client.At) -> None:
    """Say how a running tree stands: watermark, nodes, sources, totals, sinks.

    \b
    headwater status
    headwater status --watch
    headwater status --json --root 127.0.0.1:7600
    """
    console = screen.console()
    with client.connected(root) as reached:
        if not watch:
            told = reached.status(sources)
            _say(console, told, as_lines)
            return
        try:
            if as_lines or not console.is_terminal:
                while True:
                    _say(console, reached.status(sources), as_lines)
                    time.sleep(EVERY)
            with Live(picture(reached.status(sources)), console=console, auto_refresh=False) as live:
                while True:
                    time.sleep(EVERY)
                    live.update(picture(reached.status(sources)), refresh=True)
        except KeyboardInterrupt:
            return


def _say(console: Console, told: pb.StatusReply, as_lines: bool) -> None:
    if as_lines:
        click.echo(json.dumps(plain(told)))
    else:
        console.print(picture(told))


def plain(told: pb.StatusReply) -> dict[str, Any]:
    """A status as JSON has it; times in microseconds, null: there is none yet."""
    totals = told.totals
    return {
        "topology": told.topology,
        "expected": told.expected,
        "started": told.started,
        "position": told.position,
        "watermark": _or_none(told, "watermark"),
        "largest": _or_none(told, "largest"),
        "version": told.version,
        "queries": told.queries,
        "unmerged": _or_none(told, "unmerged"),
        "merge_stalled": _or_none(told, "merge_stalled"),
        "merge_obstacle": told.merge_obstacle,
        "totals": {field.name: getattr(totals, field.name) for field in totals.DESCRIPTOR.fields},
        "degraded": [
            {
                "query": each.query,
                "reason": each.reason,
                "waiting": each.waiting,
                "sources": [f"{source.name}/{source.incarnation}" for source in each.sources],
            }
            for each in told.degraded
        ],
        "sinks": [
            {
                "name": sink.name,
                "behind": sink.behind,
                "delivered": sink.delivered,
                "failure": sink.failure or None,
            }
            for sink in told.sinks
        ],
        "quarantined": [{"name": each.name, "reason": each.reason} for each in told.quarantined],
        "nodes": [
            {
                "name": node.name,
                "role": _role(node),
                "generation": node.generation,
                "address": node.address or None,
                "state": "silent" if _is_silent(told, node) else _MEMBERSHIP[node.state],
                "sources": node.sources,
                "silent_seconds": _silent(told, node),
                "rate": _or_none(node, "rate"),
                "planned_rate": node.load,
                "capacity": node.capacity,
            }
            for node in told.nodes
        ],
        "sources": [
            {
                "name": source.name,
                "incarnation": source.incarnation,
                "site": source.site,
                "state": _STATES[source.state],
                "position": source.position,
                "largest": _or_none(source, "largest"),
                "lateness": source.lateness,
                "counted": source.counted,
                "late": source.late,
                "rejected": source.rejected,
                "child": source.child or None,
            }
            for source in told.sources
        ],
        "more_sources": bool(told.next),
        "watermark_still": _or_none(told, "still"),
        "watermark_behind_clock": _or_none(told, "behind_clock"),
        "root_rate": _or_none(told, "rate"),
        "live_sources": _or_none(told, "live"),
        "waiting_for": [
            {
                "source": each.source.name or None,
                "child": each.child or None,
                "reason": _REASONS.get(each.reason, "unknown"),
                "message": each.message,
                "node": each.node or None,
                "since": each.since,
                "ends": _or_none(each, "ends"),
                "behind": _or_none(each, "behind"),
            }
            for each in told.holds
        ],
        "waiting_for_count": told.holding,
    }


def picture(told: pb.StatusReply) -> Group:
    """A status for the eye."""
    totals = told.totals
    parts: list[RenderableType] = [Text(_headline(told), style="bold")]
    counted = (
        f"{totals.accepted:,} events: {totals.counted:,} counted, {totals.late:,} late, "
        f"{totals.rejected:,} rejected; {totals.windows:,} windows of {told.queries} queries "
        f"(version {told.version}); log at {told.position:,}"
    )
    parts.append(Text(counted))
    if told.HasField("unmerged"):
        parts.append(_merging(told))
    if told.holds:
        parts.append(_waits(told))
    for each in told.degraded:
        parts.append(Text(f"degraded: {each.query}: {each.reason}", style="bold red"))
    for name in told.quarantined:
        parts.append(Text(f"in quarantine: {name.name}: {name.reason}", style="bold red"))
    if totals.quarantined > len(told.quarantined):
        parts.append(Text(f"{totals.quarantined - len(told.quarantined):,} more are in quarantine"))
    for sink in told.sinks:
        failing = f"; failing: {sink.failure}" if sink.failure else ""
        style = "bold red" if sink.failure else ""
        parts.append(Text(f"sink {sink.name}: {sink.behind:,} positions behind{failing}", style=style))
    if told.nodes:
        parts.append(_nodes(told))
    parts.append(_sources(told))
    if told.next:
        more = f"{totals.sources - len(told.sources):,} more sources; --sources shows more"
        parts.append(Text(more))
    return Group(*parts)


def _merging(told: pb.StatusReply) -> Text:
    """What Spark has still to do, and for how long it has done nothing."""
    waiting = f"Spark: {told.unmerged:,} records not merged yet"
    if told.merge_stalled < PATIENCE:
        return Text(waiting)
    obstacle = f" ({told.merge_obstacle})" if told.merge_obstacle else ""
    waiting += f", none for {seconds(told.merge_stalled)}: no windows come{obstacle}"
    return Text(waiting, style="bold red")


def _headline(told: pb.StatusReply) -> str:
    parts = [told.topology or "a tree without a name"]
    if not told.started:
        parts.append(f"waits for sources: {told.totals.sources} of {told.expected} are there")
    if told.HasField("watermark"):
        parts.append(f"watermark {moment(told.watermark)}")
        if told.HasField("largest") and told.largest > told.watermark:
            parts.append(f"{seconds(told.largest - told.watermark)} behind the latest event")
        if told.HasField("still") and told.still >= PATIENCE:
            parts.append(f"it has not moved for {seconds(told.still)}")
    else:
        parts.append("no watermark yet")
    return ": ".join([parts[0], ", ".join(parts[1:])])


def _waits(told: pb.StatusReply) -> Table:
    table = Table(title=_format_title(told))
    table.title_justify = "left"
    for column in ("source", "child", "since", "why", "what happens"):
        table.add_column(column, overflow="fold")
    for each in told.holds:
        reason = _REASONS.get(each.reason, "unknown")
        table.add_row(
            Text(each.source.name),
            Text(each.child),
            f"{seconds(max(told.now - each.since, 0))} ago",
            Text(f"{reason}: {each.message}"),
            _outcome(told, each),
        )
    return table


def _format_title(told: pb.StatusReply) -> str:
    parts = []
    # All that are yet to come are one line, and come first.
    is_short = any(each.reason == pb.Hold.REASON_EXPECTED for each in told.holds)
    if is_short:
        parts.append("sources that have not come yet")
    if count := told.holding - is_short:
        parts.append(f"{count:,} source{'' if count == 1 else 's'}")
    title = f"Windows wait for {' and '.join(parts)}"
    return title + (f", the worst {len(told.holds)} first" if told.holding > len(told.holds) else "")


def _outcome(told: pb.StatusReply, hold: pb.Hold) -> str:
    if not hold.HasField("ends"):
        return (
            "waits until it is skipped, or the clock is there" if hold.reason == pb.Hold.REASON_FUTURE else ""
        )
    left = seconds(max(hold.ends - told.now, 0))
    expected = hold.reason == pb.Hold.REASON_EXPECTED
    return f"starts without them in {left}" if expected else f"declared idle in {left}"


def _silent(told: pb.StatusReply, node: pb.NodeStatus) -> float | None:
    """For how many seconds nothing was heard of a member; None: the root does not say."""
    if node.state != pb.NodeStatus.STATE_MEMBER or not told.HasField("now"):
        return None
    return round(node.heard_ago / 1e6, 1) if node.HasField("heard_ago") else None


def _is_silent(told: pb.StatusReply, node: pb.NodeStatus) -> bool:
    """Whether the root has not heard of a member for too long."""
    if node.state != pb.NodeStatus.STATE_MEMBER or not told.HasField("now"):
        return False
    return not node.HasField("heard_ago") or node.heard_ago > PATIENCE


def _state(told: pb.StatusReply, node: pb.NodeStatus) -> str:
    if not _is_silent(told, node):
        return _MEMBERSHIP[node.state]
    if not node.HasField("heard_ago"):
        return "silent since the root was started"
    return f"silent for {seconds(node.heard_ago)}"


def _rates(node: pb.NodeStatus) -> tuple[str, str]:
    """Items a second as measured and as planned, and the share of its capacity that a child has left."""
    if not node.HasField("rate"):
        return f"- / {node.load:,.0f}" if node.load else "", ""
    planned = f" / {node.load:,.0f}" if node.load else ""
    left = f"{1 - node.rate / node.capacity:.0%}" if node.capacity else ""
    return f"{node.rate:,.0f}{planned}", left


def _role(node: pb.NodeStatus) -> str:
    return "child" if node.child else "intermediate"


def _nodes(told: pb.StatusReply) -> Table:
    table = Table()
    for column in ("node", "role", "state", "address"):
        table.add_column(column)
    for column in ("generation", "sources", "items/s (planned)", "headroom"):
        table.add_column(column, justify="right")
    if told.HasField("rate"):
        table.add_row("root", "root", "", "", "", "", f"{told.rate:,.0f}", "")
    for node in told.nodes:
        table.add_row(
            Text(node.name),
            _role(node),
            _state(told, node),
            Text(node.address),
            str(node.generation),
            f"{node.sources:,}" if node.child else "",
            *_rates(node),
        )
    return table


def _sources(told: pb.StatusReply) -> Table:
    table = Table()
    # On a narrow screen a name goes on in the next line; cut, it would say nothing.
    table.add_column("source", overflow="fold", min_width=12)
    for column in ("site", "child", "state", "position", "largest time", "late", "rejected"):
        table.add_column(column, justify="left" if column in ("site", "child", "state") else "right")
    for source in told.sources:
        name = source.name if source.incarnation <= 1 else f"{source.name}/{source.incarnation}"
        table.add_row(
            Text(name),
            Text(source.site),
            Text(source.child),
            _STATES[source.state],
            f"{source.position:,}",
            moment(source.largest) if source.HasField("largest") else "",
            f"{source.late:,}",
            f"{source.rejected:,}",
        )
    return table


def _or_none(message: Any, field: str) -> int | None:
    return getattr(message, field) if message.HasField(field) else None
