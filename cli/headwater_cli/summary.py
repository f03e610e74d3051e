"""What a run came to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import pairwise

from rich.console import Console
from rich.text import Text

# What is well, what somebody has to see to, and what somebody has to know.
GOOD, ALARM, WARNING = "bold green", "bold red", "bold yellow"
# How many nodes that were overrun are told of, and how many sources that were moved.
OVERRUN, MOVED = 8, 100
# From how many seconds of events on it is told that sources were held back.
HELD = 4.0
# With the run its tree has ended: there is nobody left who could release the source.
_REMEDY = "mend its events, or raise that bound in the topology where the keys are meant, and run it again"


@dataclass(slots=True)
class Layer:
    """What the nodes of a layer have sent up, and which share of the raw bytes that is."""

    layer: str
    nodes: int
    bytes_up: int
    of_raw: float


@dataclass(slots=True)
class Central:
    """What a run that forwards every event to the root has measured, hop by hop."""

    raw_bytes: int = 0
    layers: list[Layer] = field(default_factory=list)
    windows: int = 0
    seconds: float = 0.0
    # Queries that cannot be computed centrally: punctuation windows follow the source they came from.
    left_out: list[str] = field(default_factory=list)
    # Why its figures are not comparable, if so.
    problems: list[str] = field(default_factory=list)

    @property
    def is_comparable(self) -> bool:
        """Whether it was executed, and every one of its events is accounted for."""
        return bool(self.layers) and not self.problems


@dataclass(slots=True)
class Summary:
    """Of one run; `ok` only if everything adds up, else `problems` say what does not.

    Events are without the heartbeats with which sources end. Raw are the bytes that sources have sent to
    children. `seconds` are those from the first event until everything was counted; latencies are in
    milliseconds.
    """

    topology: str
    sources: int
    nodes: int = 0
    sent: int = 0
    counted: int = 0
    late: int = 0
    rejected: int = 0
    # Of sources of which the root took nothing more: what they have sent, and nobody has read.
    unread: int = 0
    # Of the input, those that were passed over: they are not among those that were sent.
    bad: int = 0
    windows: int = 0
    # How many of these were printed, where windows are printed as they close.
    printed: int | None = None
    # By query: what of its events is forwarded as it is, where that is so.
    forwarding: dict[str, str] = field(default_factory=dict)
    # The same events and queries with every event forwarded to the root, as executed.
    central: Central | None = None
    # Where results are kept, if they are, and what the processes logged.
    output: str | None = None
    # Whether these are the results of a run that was stopped or failed, as far as it came.
    output_is_partial: bool = False
    # Why results could not be written, if so.
    unwritten: str | None = None
    log: str | None = None
    differing: int | None = None
    seconds: float = 0.0
    events_per_second: float = 0.0
    raw_bytes: int = 0
    layers: list[Layer] = field(default_factory=list)
    # The widths that the tree has had, one after the other, and the sources that were moved meanwhile.
    widths: list[list[int]] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    # By node: the least share of its limit that it had left; of those that had more to take than that, the
    # most items a second, the limit, and how many messages had to wait at once.
    headroom: dict[str, float] = field(default_factory=dict)
    overrun: dict[str, list[float]] = field(default_factory=dict)
    # The most events that sources held because the root had not counted them.
    held_back: int = 0
    # Why no tree can be planned for what nodes do send, if so.
    beyond: str = ""
    latency_p50_ms: float | None = None
    latency_p99_ms: float | None = None
    # By source: why it is in quarantine; of others of which the root took nothing more, what it told them.
    quarantined: dict[str, str] = field(default_factory=dict)
    fenced: dict[str, str] = field(default_factory=dict)
    # Why nothing was compared though it was asked for.
    unverified: str | None = None
    # By sink: how many positions of the log it lacks results of, which are gone with the run.
    undelivered: dict[str, int] = field(default_factory=dict)
    # By process: the code it ended with, where that is not 0.
    failed: dict[str, int | None] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    # What somebody has to know, though everything adds up.
    warnings: list[str] = field(default_factory=list)
    ok: bool = False

    def judge(self) -> None:
        """Whether everything adds up."""
        self.problems = list(self._problems())
        self.ok = not self.problems

    def _problems(self) -> Iterator[str]:
        found = self.counted + self.late + self.rejected
        if self.sent != found + self.unread:
            unread = f" and {self.unread:,} not read" if self.unread else ""
            yield f"{self.sent:,} events were sent, but {found:,} are counted, late or rejected{unread}"
        for name, reason in self.quarantined.items():
            yield f"{name} is in quarantine: {reason}; {_REMEDY}"
        for name, said in self.fenced.items():
            yield f"the root took nothing more of {name}, and told it: {said}"
        if self.differing:
            yield f"{self.differing:,} windows differ from the oracle"
        if self.unverified is not None:
            yield self.unverified
        for name, behind in self.undelivered.items():
            yield f"the sink {name} did not take the results of {behind:,} positions, and they are gone"
        for name, code in self.failed.items():
            yield f"{name} ended with code {code}"
        if self.unwritten is not None:
            yield f"the results could not be written: {self.unwritten}"
        if self.central is not None:
            for problem in self.central.problems:
                yield f"the baseline gives no figures: {problem}"


def told(summary: Summary, console: Console) -> None:
    """The closing lines; whoever reads them in a pipe gets them unbroken."""
    for line in _lines(summary):
        console.print(line, highlight=False, soft_wrap=True)
    if summary.differing == 0:
        console.print("every window equals the oracle", style=GOOD, soft_wrap=True)
    for warning in summary.warnings:
        console.print(Text(f"warning: {warning}"), style=WARNING, soft_wrap=True)
    for problem in summary.problems:
        console.print(Text(problem), style=ALARM, soft_wrap=True)
    if summary.output is not None:
        until = ", of what came out before the run ended" if summary.output_is_partial else ""
        printed = f"; {_printed(summary)} were printed" if _is_cut(summary) else ""
        console.print(
            Text(f"results: {summary.output}{until}  (headwater results {summary.output}){printed}"),
            soft_wrap=True,
        )
    elif _is_cut(summary) and summary.unwritten is None:
        console.print(Text(f"{_printed(summary)} were printed; --output DIR keeps all"), soft_wrap=True)
    if summary.log is not None:
        console.print(Text(f"logs: {summary.log}"), soft_wrap=True)


def _is_cut(summary: Summary) -> bool:
    return summary.printed is not None and summary.printed < summary.windows


def _printed(summary: Summary) -> str:
    return f"{summary.printed:,} of {summary.windows:,} windows"


def _lines(summary: Summary) -> Iterator[str]:
    # What a figure of 0 would mean, nobody has to know.
    late = " (older than lateness allows)" if summary.late else ""
    rejected = " (bad value or time)" if summary.rejected else ""
    yield (
        f"{summary.sent:,} events sent: {summary.counted:,} counted, {summary.late:,} late{late}, "
        f"{summary.rejected:,} rejected{rejected}"
        + (f", {summary.unread:,} not read" if summary.unread else "")
    )
    if summary.bad:
        yield f"{summary.bad:,} bad records of the input passed over"
    yield (
        f"{summary.windows:,} windows in {summary.seconds:.1f} s ({summary.events_per_second:,.0f} events/s) "
        f"through {summary.nodes} processes"
    )
    yield from _hops(summary)
    if len(summary.widths) > 1:
        shown = " -> ".join(" ".join(map(str, widths)) for widths in summary.widths)
        names = list(dict.fromkeys(summary.moved))
        more = ", ..." if len(names) > MOVED else ""
        moved = f": {', '.join(names[:MOVED])}{more}" if names else ""
        times = f" {len(summary.moved):,} times" if len(summary.moved) > len(names) else ""
        yield f"the tree: {shown}; {len(names):,} sources were moved{times}{moved}"
    if summary.headroom:
        name, least = min(summary.headroom.items(), key=lambda found: found[1])
        yield f"headroom: at least {least:.0%}, at {name}"
    for name, (rate, limit, waiting) in list(summary.overrun.items())[:OVERRUN]:
        wait = f"; {waiting:,.0f} messages had to wait at once" if waiting else ""
        yield f"{name} was overrun: it took {rate:,.0f} items/s, for a limit of {limit:,g}{wait}"
    # More than some seconds of events do not wait where nobody is held back.
    long = summary.headroom and summary.held_back > HELD * summary.events_per_second
    if long or any(waiting for _, _, waiting in summary.overrun.values()):
        yield f"sources were held back: up to {summary.held_back:,} events waited with them to be counted"
    if summary.latency_p50_ms is not None:
        yield f"latency: p50 {summary.latency_p50_ms:,.0f} ms, p99 {summary.latency_p99_ms:,.0f} ms"


def _hops(summary: Summary) -> Iterator[str]:
    """The bytes of every hop, with the central baseline beside them where it was executed."""
    names = ["sources", *(each.layer for each in summary.layers), "root"]
    hops = [f"{below} to {above}" for below, above in pairwise(names)]
    here = [f"{size(summary.raw_bytes)} raw", *(_of_raw(each) for each in summary.layers)]
    rows = [["bytes sent", "this tree"], *([hop, each] for hop, each in zip(hops, here, strict=True))]
    central = summary.central
    if central is not None and not central.is_comparable:
        if central.left_out and not central.problems:
            yield f"no baseline: {', '.join(central.left_out)} cannot be computed from forwarded events"
        central = None
    if central is not None:
        rows[0].append("every event to the root (executed)")
        there = [f"{size(central.raw_bytes)} raw", *(_of_raw(each) for each in central.layers)]
        for row, each in zip(rows[1:], there, strict=True):
            row.append(each)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
    if central is not None:
        missing = f", without {', '.join(central.left_out)}" if central.left_out else ""
        yield (
            f"the central run had {central.windows:,} windows{missing}; "
            "its sources sent as fast as they could, in larger batches"
        )
    for name, what in summary.forwarding.items():
        yield f"{name} forwards {what}"


def _of_raw(layer: Layer) -> str:
    return f"{size(layer.bytes_up)} ({layer.of_raw:.1%} of raw)"


def as_json(summary: Summary) -> str:
    return json.dumps(asdict(summary))


def size(count: float) -> str:
    """Bytes as people read them: `1.2 MB`."""
    for unit in ("B", "kB", "MB"):
        if count < 1_000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1_000
    return f"{count:,.1f} GB"
