"""Who asks is told: the status of a topology and of its queries, and events about what has changed."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from headwater.errors import HeadwaterError
from headwater_operator import kinds, queryreports
from headwater_operator.asking import Asked
from headwater_operator.cluster import Cluster, Document
from headwater_operator.lookout import Lookout
from headwater_operator.reporting import Report, is_due, status_of
from headwater_wire.v1 import control_pb2 as pb

log = logging.getLogger(__name__)
# What is no reason to warn: a tree that starts is not ready, and one that rests is not either.
_USUAL = ("RootNotReady", "NodesNotReady", "NotApplied", "Suspended", "NotYet")
# Of what progresses, only this is news.
_NEWS = ("Paused", "Suspended", "Draining")


@dataclass(slots=True)
class Told:
    """What was told of one topology last: when, by the clock that never goes back, and the widths; and when
    of its queries."""

    at: float = float("-inf")
    widths: str = ""
    # What was last written, and what it was of; None: nothing yet.
    status: Mapping[str, Any] | None = None
    report: Report | None = None
    queries: queryreports.Written = field(default_factory=queryreports.Written)


class Telling:
    """Called from any thread."""

    def __init__(self, cluster: Cluster, lookout: Lookout) -> None:
        self._cluster, self._lookout = cluster, lookout

    def tell(self, document: Document, report: Report, told: Told, now: float) -> None:
        """The status, if it is another or it is time; and events."""
        before = document.get("status") or {}
        after = status_of(report, before, _stamp())
        widths = after.get("widths", "")
        if widths and told.widths not in ("", widths):
            self._cluster.event(document, "Replanned", f"{told.widths} -> {widths}")
        told.widths = widths or told.widths
        if is_due(before, after, now - told.at):
            self._cluster.set_status(kinds.TOPOLOGY, report.namespace, report.topology, after)
            told.at = now
            self._tell_changes(document, before, after)
            before = after
        told.status, told.report = before, report

    def is_overtaken(self, told: Told, root: pb.StatusReply, now: float) -> bool:
        """Whether another status is to be written by what the root says now."""
        if told.report is None or told.status is None:
            return True
        report = replace(told.report, observed=replace(told.report.observed, root=root))
        return is_due(told.status, status_of(report, told.status, _stamp()), now - told.at)

    def _tell_changes(self, document: Document, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """In the words of the conditions."""
        was = {each["type"]: (each["status"], each["reason"]) for each in before.get("conditions") or ()}
        for each in after["conditions"]:
            kind, reason = each["type"], each["reason"]
            if was.get(kind) == (each["status"], reason) or (kind == "Progressing" and reason not in _NEWS):
                continue
            good = (each["status"] == "True") == (kind in ("Planned", "Ready"))
            warning = not good and reason not in _USUAL and kind != "Progressing"
            self._cluster.event(document, reason, each["message"], warning=warning)

    def tell_queries(
        self, report: Report, asked: Asked, refused: Mapping[str, str], told: Told, at: float
    ) -> None:
        """Of queries that are objects; `refused` are those that the root has not taken, by id."""
        now = _stamp()
        for document, problems in asked.refused.values():
            self._set(document, queryreports.refused(document, problems, now))
        if not asked.taken or report.observed.root is None:
            # What was told of them holds until the root answers.
            return
        try:
            with self._lookout.root(report.observed, report.namespace, report.topology) as root:
                found = root.active()
        except HeadwaterError as error:
            extra = {"namespace": report.namespace, "topology": report.topology, "problem": str(error)}
            log.warning("queries are not known", extra=extra)
            return
        statuses = {}
        for name, document in asked.taken.items():
            if name in refused:
                status = queryreports.rejected(document, refused[name], now)
            else:
                status = queryreports.taken(document, found.get(name), now)
            statuses[name] = document.get("status") or {}, status
        for name in told.queries.due(statuses, at):
            self._set(asked.taken[name], statuses[name][1])

    def orphans(self, namespace: str, topology: str) -> None:
        """Queries of a topology that is gone."""
        for each in self._cluster.list(kinds.QUERY, namespace):
            if (each.get("spec") or {}).get("topologyRef") == topology:
                self._set(each, queryreports.orphaned(each, topology, _stamp()))

    def _set(self, document: Mapping[str, Any], status: dict[str, Any]) -> None:
        """Have a query with this status, if it has another."""
        metadata = document["metadata"]
        if (document.get("status") or {}) != status:
            self._cluster.set_status(kinds.QUERY, metadata["namespace"], metadata["name"], status)


def problems_of(told: pb.Problems) -> str:
    return "; ".join(f"{each.field}: {each.message}; {each.remedy}" for each in told.problems)


def _stamp() -> str:
    return datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
