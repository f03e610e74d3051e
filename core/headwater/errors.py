"""One tree of errors: permanent ones need other input, retryable ones another moment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where, what, and what to do about it."""

    field: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}; {self.remedy}"


class HeadwaterError(Exception):
    """Everything that this package raises on purpose."""

    # What a program ends with that can go no further because of it.
    exit_code = 4


class PermanentError(HeadwaterError):
    """The same call fails again until its input changes."""


class RetryableError(HeadwaterError):
    """The same data may be taken later, or from another position."""


class Invalid(PermanentError):
    """Input that was refused whole; it lists every problem, and nothing has changed."""

    def __init__(self, what: str, problems: Iterable[Problem]) -> None:
        self.what = what
        self.problems = tuple(problems)
        super().__init__(what, self.problems)

    def __str__(self) -> str:
        return "\n  - ".join([f"{self.what}:", *map(str, self.problems)])


class InvalidQuery(Invalid):
    """A query or a set of queries that cannot be computed."""


class InvalidPlan(Invalid):
    """A tree that cannot be planned onto the nodes that there are."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        super().__init__("no tree can be planned", problems)


class InvalidEvents(Invalid):
    """Columns that are no events."""


class InvalidSource(Invalid):
    """A source that is unknown, admitted twice, or declared wrongly."""


class InvalidPartial(Invalid):
    """A partial that no sound node makes: its columns do not fit each other, or the queries."""

    def __init__(self, field: str, message: str, remedy: str) -> None:
        super().__init__("the partial cannot be merged", [Problem(field, message, remedy)])


class FunctionFailed(PermanentError):
    """A user-defined aggregate raised in the midst of a batch: the node that called it cannot go on.

    What was final before can still be taken; the records of the batch are counted at another node or
    after a restart without the function.
    """

    def __init__(self, function: str, step: str) -> None:
        self.function, self.step = function, step
        super().__init__(f"the {step} of {function!r} raised; mend or remove the function and start anew")


class OutOfSequence(RetryableError):
    """A batch that does not begin where its source stands: a gap or a repeat."""

    def __init__(self, source: str, expected: int, found: int) -> None:
        self.source, self.expected, self.found = source, expected, found
        kind = "a gap" if found > expected else "a repeat"
        super().__init__(
            f"source {source!r}: {kind} in the numbering, record {expected} is next but the batch "
            f"begins with {found}; send again from record {expected}"
        )


class DoesNotFit(RetryableError):
    """A partial whose intervals do not begin where the receiver stands (protocol rule 6)."""

    def __init__(self, sources: Iterable[str]) -> None:
        self.sources = tuple(sources)
        super().__init__(
            "the partial does not begin at the receiver's position for "
            + ", ".join(map(repr, self.sources))
            + "; make it again from the positions of the receiver"
        )


class StaleVersion(RetryableError):
    """A partial or a change of another version of the queries than holds here (protocol, rule 18)."""

    def __init__(self, found: int, current: int) -> None:
        self.found, self.current = found, current
        super().__init__(
            f"it was made with version {found} of the queries, but version {current} holds here for some "
            "of its events; take the changes in their order and make it again"
        )


class OtherQueries(PermanentError):
    """A partial of a node that computes something else."""

    def __init__(self) -> None:
        super().__init__(
            "the partial was made with other queries than are here, or with the same in another order; "
            "give every node the same list"
        )


class NotFlushed(RetryableError):
    """A change that comes while a node holds what it has gathered with the queries before."""

    def __init__(self) -> None:
        super().__init__("flush the node before it takes a change: a partial has one version")


class TooFarAhead(RetryableError):
    """A partial with events beyond the horizon: they must not move the watermark (protocol, rule 15)."""

    def __init__(self, largest: int, limit: int) -> None:
        self.largest, self.limit = largest, limit
        super().__init__(
            f"the partial has an event at {largest}, beyond the horizon at {limit}; "
            "tell the nodes below until when to read (read_until) and make it again later"
        )


class NoPartials(PermanentError):
    """A root that was asked for a partial."""

    def __init__(self) -> None:
        super().__init__("a root gives results, not partials; use take")
