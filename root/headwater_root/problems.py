"""What is wrong with a request, as the service Control tells it."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.errors import Problem
from headwater.topology.queries import written
from headwater_wire.v1 import control_pb2 as pb

# Where it stands in the trailing metadata.
PROBLEMS = "headwater-problems-bin"
PROBLEMS_BYTES, TEXT_BYTES = 4_096, 512


def problems_message(problems: Iterable[Problem]) -> pb.Problems:
    """As many problems as fit into a trailer."""
    message = pb.Problems()
    for problem in problems:
        field, said, remedy = cut(problem.field), cut(problem.message), cut(problem.remedy)
        told = pb.Problem(field=field, message=said, remedy=remedy)
        if message.left_out or message.ByteSize() + told.ByteSize() > PROBLEMS_BYTES - 16:
            message.left_out += 1
        else:
            message.problems.append(told)
    return message


def plain(problem: Problem) -> Problem:
    """A problem of the one query: its field as a manifest has it, without the list that it would stand in."""
    _, listed, field = problem.field.rpartition("].")
    path = field if listed else problem.field.removeprefix("queries.")
    return Problem(written(path), problem.message, written(problem.remedy))


def cut(text: str, limit: int = TEXT_BYTES) -> str:
    """At most so many bytes of a text."""
    data = text.encode("utf-8", "replace")
    return text if len(data) <= limit else data[: limit - 3].decode("utf-8", "ignore") + "..."
