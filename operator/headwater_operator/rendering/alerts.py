"""What somebody should be told about a tree; docs/alerts.md says for each what to do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from headwater.durations import SECOND, human
from headwater.machines.movement import FEW
from headwater.topology.tree import NodeSpec, Topology
from headwater_operator.layout import TreeNode
from headwater_operator.rendering.objects import Owner
from headwater_operator.standstill import stall_after

# Of the records that come, the share that may be late.
LATE_SHARE = 0.01
# How far the watermark may be behind, beside what the sources ask for.
LAG = 300 * SECOND
# How many seconds windows may wait for a source while the watermark stands still, at least.
WAIT = 60.0
# How often a second a node may make batches again.
CORRECTIONS = 0.1


@dataclass(frozen=True, slots=True)
class Alert:
    """A condition in PromQL that has held for a time."""

    name: str
    expression: str
    lasting: str
    severity: Literal["warning", "critical"]
    summary: str


def alerts(owner: Owner, topology: Topology, nodes: Sequence[TreeNode], *, running: bool) -> list[Alert]:
    """Those of a topology; whether its root is there is told only if it should be."""
    tree = f'namespace="{owner.namespace}",topology="{owner.name}"'
    who = f"{owner.namespace}/{owner.name}"
    active = f'max(headwater_root_sources{{{tree},state="active"}}) > 0'
    slowest = max((source.lateness for source in topology.sources), default=0)
    lag = slowest + LAG
    # Sources that send rarely are waited for as a matter of course.
    wait = max(WAIT, 2 * stall_after(topology))
    found = [
        *_near_the_limit(topology, nodes, tree, who),
        Alert(
            "HeadwaterRecordsLate",
            f"sum(rate(headwater_root_records_late_total{{{tree}}}[10m])) "
            f"/ sum(rate(headwater_root_records_accepted_total{{{tree}}}[10m])) > {LATE_SHARE}",
            "10m",
            "warning",
            f"{who}: more than {LATE_SHARE:.0%} of the records come too late to count",
        ),
        Alert(
            "HeadwaterRecordsRejected",
            f"sum by (reason) (rate(headwater_root_records_rejected_total{{{tree}}}[10m])) > 0",
            "10m",
            "warning",
            f"{who}: records are rejected ({{{{ $labels.reason }}}})",
        ),
        Alert(
            "HeadwaterCorrections",
            f"sum by (node) (rate(headwater_node_resyncs_total{{{tree}}}[10m])) > {CORRECTIONS}",
            "10m",
            "warning",
            f"{who}: {{{{ $labels.node }}}} has to make its batches again and again",
        ),
        Alert(
            "HeadwaterWatermarkLag",
            f"(time() - max(headwater_root_watermark_seconds{{{tree}}})) > {lag / SECOND:g} and {active}",
            "5m",
            "warning",
            f"{who}: results are more than {human(lag)} behind",
        ),
        Alert(
            "HeadwaterWindowsWait",
            "max by (held_by, child, reason) "
            f"(headwater_root_windows_wait_seconds{{{tree}}}) > {wait:g} "
            f"and on () max(headwater_root_watermark_still_seconds{{{tree}}}) > {wait:g}",
            "1m",
            "warning",
            f"{who}: windows wait for source {{{{ $labels.held_by }}}} of child {{{{ $labels.child }}}}: "
            "{{ $labels.reason }}, for {{ $value | humanizeDuration }}",
        ),
        Alert(
            "HeadwaterNoSources",
            f"max(headwater_root_sources_live{{{tree}}}) < "
            f"{FEW:g} * max(headwater_root_sources_expected{{{tree}}})",
            "5m",
            "warning",
            f"{who}: only {{{{ $value }}}} sources are live, of {topology.expected} that are expected",
        ),
        Alert(
            "HeadwaterRootNotCommitting",
            f"(max(changes(headwater_root_log_position{{{tree}}}[5m])) == 0 and {active}) "
            f"or (max(changes(headwater_root_merged_position{{{tree}}}[10m])) == 0 "
            f"and max(headwater_root_unmerged_records{{{tree}}}) > 0)",
            "5m",
            "critical",
            f"{who}: the root commits nothing, though sources are there",
        ),
        Alert(
            "HeadwaterTopologyNotReady",
            # Nothing is counted where none is ready.
            f"(count(headwater_node_ready{{{tree}}} == 1) or vector(0)) < {len(nodes)}",
            "10m",
            "warning",
            f"{who}: of {len(nodes)} nodes only {{{{ $value }}}} are ready",
        ),
        Alert(
            "HeadwaterNodeNotReady",
            f"min by (node) (headwater_node_ready{{{tree}}}) == 0",
            "5m",
            "warning",
            f"{who}: {{{{ $labels.node }}}} takes no records",
        ),
        Alert(
            "HeadwaterSinkFailing",
            f"max by (sink) (headwater_root_sink_failing_seconds{{{tree}}}) > 300",
            "1m",
            "warning",
            f"{who}: the sink {{{{ $labels.sink }}}} does not deliver",
        ),
        Alert(
            "HeadwaterSourcesHeldUp",
            f"max(headwater_root_sources_quarantined{{{tree}}}) > 0 "
            f"or sum(headwater_node_sources_in_the_future{{{tree}}}) > 0",
            "5m",
            "warning",
            f"{who}: nothing is taken of some sources until somebody sees to it",
        ),
    ]
    if running:
        down = Alert(
            "HeadwaterRootDown",
            f"absent(headwater_root_ready{{{tree}}} == 1)",
            "5m",
            "critical",
            f"{who}: there is no root that is ready",
        )
        found.append(down)
    return found


def _near_the_limit(topology: Topology, nodes: Sequence[TreeNode], tree: str, who: str) -> Iterator[Alert]:
    """From half of the margin on: the plan itself stays below all of it."""
    if topology.node is None:
        return
    by_limit: defaultdict[float, list[str]] = defaultdict(list)
    for node in nodes:
        if node.role == "child":
            by_limit[ingest_limit(topology.node, node)].append(node.id)
    for limit, ids in sorted(by_limit.items()):
        which = 'role="child"' if len(by_limit) == 1 else f'node=~"{"|".join(sorted(ids))}"'
        most = limit * (1 - topology.node.margin / 2)
        yield Alert(
            "HeadwaterIngestNearLimit",
            f"sum by (node) (rate(headwater_node_records_read_total{{{tree},{which}}}[5m])) > {most:g}",
            "5m",
            "warning",
            f"{who}: {{{{ $labels.node }}}} reads nearly as much as it can, {limit:g} records a second",
        )


def ingest_limit(spec: NodeSpec, node: TreeNode) -> float:
    """Items a second that a node can take."""
    classes = {each.selector: each.ingest_limit for each in spec.classes}
    return classes.get(node.selector, spec.ingest_limit)
