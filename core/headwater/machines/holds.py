"""What open windows wait for: the sources that hold the watermark back, worst first, each with the reason."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace

from headwater.machines.hellos import Refusal
from headwater.machines.members import Members
from headwater.machines.movement import Movement
from headwater.machines.stalls import WORST, Reason, Stall
from headwater.machines.vitals import Report, Vitals
from headwater.progress import Source
from headwater.rows import TS_MIN
from headwater.sources import SourceId

# For how long a source has not moved, or nothing was heard of its child, before that is reported, in
# microseconds. Nodes speak every two seconds: a child that missed two reports keeps its sources waiting, and
# what it said before is no reason any more.
PATIENCE = 5_000_000


@dataclass(frozen=True, slots=True)
class Hold:
    """One thing that windows wait for; times in microseconds of the root's clock.

    `source` is empty where it is no single source, `node` is from whom backpressure comes, `idle_at` when the
    source is declared idle if it stays silent, and `behind` how far its events lie behind the newest one.
    """

    reason: Reason
    message: str
    since: int
    source: str = ""
    child: str = ""
    node: str = ""
    idle_at: int | None = None
    behind: int | None = None


@dataclass(frozen=True, slots=True)
class Awaited:
    """Sources that are expected: nothing is final before they are there, or `until` is over."""

    there: int
    expected: int
    since: int
    until: int | None


def find_holds(
    movement: Movement,
    vitals: Vitals,
    members: Members,
    source_of: Callable[[int], Source],
    largest: int,
    began: int,
    now: int,
    awaited: Awaited | None = None,
    idle_from: int | None = 0,
    refusal_of: Callable[[str], Refusal | None] = lambda name: None,
) -> tuple[list[Hold], int]:
    """The worst of what windows wait for, at most `WORST`, and how many such things there are.

    `source_of` gives a source by its code, `largest` is the newest event time, `began` when this process
    began, and `idle_from` when the root declares a source idle at the earliest (None: not as things stand).
    `refusal_of` gives the refusal of a process that uses the name of a source, if there was one lately.
    Costs a pass over arrays, however many sources there are.
    """
    found = [] if awaited is None else [_hold_of_expected(awaited, now)]
    codes, count = movement.slowest(WORST - len(found), now - PATIENCE)
    for code in codes:
        hold = _hold_of_source(source_of(code), movement, vitals, members, largest, began, now)
        refusal = refusal_of(SourceId.of(hold.source).name) if hold.reason is Reason.SILENT else None
        if refusal is not None:
            hold = _explain_refusal(hold, refusal)
        if hold.idle_at is not None:
            hold = replace(hold, idle_at=None if idle_from is None else max(hold.idle_at, idle_from))
        found.append(hold)
    return found, count + (awaited is not None)


def _explain_refusal(hold: Hold, refusal: Refusal) -> Hold:
    """A silent source whose name a process uses that the root refuses."""
    if refusal.is_contested:
        said = f"{hold.message}; another process that uses its name is refused: {refusal.reason}"
        return replace(hold, message=said)
    said = f"the root refuses the process that uses its name: {refusal.reason}"
    return replace(hold, reason=Reason.REFUSED, message=said)


def _hold_of_expected(awaited: Awaited, now: int) -> Hold:
    said = f"{awaited.there} of {awaited.expected} sources that are expected are there"
    if awaited.until is not None:
        said += ", and the root starts without the others when spec.startTimeout is over"
    else:
        said += ": the root waits for the first one"
    return Hold(Reason.EXPECTED, said, awaited.since, idle_at=awaited.until)


def _hold_of_source(
    source: Source,
    movement: Movement,
    vitals: Vitals,
    members: Members,
    largest: int,
    began: int,
    now: int,
) -> Hold:
    name, moved = SourceId.of(source.name).name, movement.moved(source.code)
    child = members.assigned(name)
    behind = None if TS_MIN in (largest, source.largest) else max(largest - source.largest, 0)
    if child is None or not members.is_live(child):
        who = "" if child is None else f": {child} has left"
        said = f"no child that takes part reads it{who}"
        return Hold(Reason.NO_CHILD, said, moved, source.name, child or "", behind=behind)
    heard = vitals.heard(child)
    if now - (began if heard is None else heard) > PATIENCE:
        since = began if heard is None else heard
        said = "nothing is heard of the child that reads it; it is waited for until that is back or another "
        said += "child reads it"
        return Hold(Reason.CHILD_SILENT, said, since, source.name, child, behind=behind)
    if now - moved < PATIENCE:
        said = "its events are older than those of others"
        return Hold(Reason.BEHIND, said, movement.late_since(source.code), source.name, child, behind=behind)
    report = vitals.report(child, source.name, now)
    if report is None:
        return Hold(Reason.SILENT, "nothing new came of it", moved, source.name, child, behind=behind)
    return _hold_of_report(report, moved, source.name, child, behind)


def _hold_of_report(report: Report, moved: int, source: str, child: str, behind: int | None) -> Hold:
    stall = report.stall
    if stall.reason is Reason.SILENT:
        said, since, idle_at = "it sends nothing", report.since, report.idle_at
    else:
        said, since, idle_at = _format_message(stall, source), moved, None
    return Hold(stall.reason, said, since, source, child, stall.node, idle_at, behind)


def _format_message(stall: Stall, source: str) -> str:
    if stall.reason is Reason.FUTURE and stall.record:
        name = SourceId.of(source).name
        options_end = ["--"] if name.startswith("-") else []
        skip = shlex.join(["headwater", "source", "skip", *options_end, name, str(stall.record)])
        return f"record {stall.record} lies too far in the future: set the source's clock, or skip it: {skip}"
    return _MESSAGES[stall.reason].format(node=stall.node)


_MESSAGES = {
    Reason.HORIZON: "it is ahead of the others by limits.horizon, and waits for them",
    Reason.FUTURE: "its next event lies too far in the future: set the source's clock, or skip the record",
    Reason.QUARANTINE: "it brings too many keys, and is put into quarantine",
    Reason.BACKPRESSURE: "what was read of it is not acknowledged by {node}",
}
