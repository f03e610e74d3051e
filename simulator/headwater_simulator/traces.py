"""A run as lines that a person reads: who said what to whom, what befell them, and what the root logged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from headwater.events import Batch
from headwater.machines.messages import Barrier, Send, Standing, Stream
from headwater.partials import Partial
from headwater.prefix import Prefix
from headwater.rows import TS_MIN
from headwater_simulator.plans import Fault, Plan
from headwater_simulator.runs import Outcome, run


class Trace:
    """The lines of a run, as they come."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, time: int, who: str, what: object) -> None:
        self.lines.append(f"{time:5} {who:5} {_told(what)}")


def trace(plan: Plan | int) -> tuple[list[str], Outcome]:
    """The lines of a run, and how it went."""
    kept = Trace()
    outcome = run(plan, kept)
    return kept.lines, outcome


def _told(what: object) -> str:
    if isinstance(what, Send):
        return f"-> {what.to}: {_plain(what.message)}"
    if isinstance(what, tuple):
        sender, message = what
        return f"<- {sender}: {_plain(message)}"
    if isinstance(what, Fault):
        given = [what.other, f"for {what.span}" if what.span else "", f"({what.number})"]
        return f"## {what.kind} {' '.join(part for part in given if part)}"
    return f"## {what}"


def _plain(given: object) -> str:
    """A value without what goes without saying."""
    if isinstance(given, Stream):
        return f"{given.opener}.{given.generation}.{given.number}"
    if isinstance(given, Prefix):
        largest = "" if given.largest == TS_MIN else f" M={given.largest}"
        skips = f" skips={sorted(given.skips)}" if given.skips else ""
        marks = f" marks={_plain(given.marks)}" if given.marks else ""
        return f"{given.position}{largest}{skips}{marks} {given.opening}"
    if isinstance(given, Standing):
        return _plain(given.prefix) + (f" until {_plain(given.barrier)}" if given.barrier else "")
    if isinstance(given, Barrier):
        return f"{given.number} {given.opening}"
    if isinstance(given, Batch):
        low = given.first - 1
        return f"{_plain(given.source)} ({low}, {low + len(given)}] ts {given.ts.tolist()}"
    if isinstance(given, Partial):
        spans = (
            f"{_plain(name)} ({_plain(span.low)}, {_plain(span.high)}]" for name, span in given.vector.items()
        )
        return f"v{given.version} " + ", ".join(spans)
    if isinstance(given, Mapping):
        return "{" + ", ".join(f"{_plain(key)}: {_plain(value)}" for key, value in given.items()) + "}"
    if isinstance(given, tuple | frozenset):
        return "(" + ", ".join(map(_plain, given)) + ")"
    if hasattr(given, "__dataclass_fields__"):
        told = ((field.name, getattr(given, field.name)) for field in fields(given))  # type: ignore[arg-type]  # it is one
        parts = [
            f"{name}={_plain(value)}" for name, value in told if value not in (None, "", (), {}, 0, False)
        ]
        return f"{type(given).__name__}({', '.join(parts)})"
    return str(given).replace("\0", "#")
