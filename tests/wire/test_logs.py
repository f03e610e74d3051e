"""Lines of a log: always one object of JSON, whatever was given."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from headwater.errors import Invalid, Problem
from headwater_wire.logs import JsonLines, level_of, told


def line(message: str, **fields: Any) -> dict[str, Any]:
    record = logging.makeLogRecord({"name": "n", "levelname": "WARNING", "msg": message, **fields})
    said = JsonLines({"program": "p"}).format(record)
    assert "\n" not in said
    found: dict[str, Any] = json.loads(said)
    return found


def test_extra_fields_stand_beside_the_message() -> None:
    found = line('with "quotes"\nand a second line', source="s\0é", count=3, path=object)
    assert found["message"] == 'with "quotes"\nand a second line'
    assert (found["level"], found["program"], found["source"], found["count"]) == ("warning", "p", "s\0é", 3)
    assert found["path"] == str(object)
    assert found["time"].endswith("+00:00")


def test_an_exception_has_its_trace() -> None:
    try:
        raise ValueError("why")
    except ValueError:
        found = line("failed", exc_info=sys.exc_info())
    assert "ValueError: why" in found["exception"]


def test_levels_are_names() -> None:
    assert level_of({}) == logging.INFO
    assert level_of({"HEADWATER_LOG_LEVEL": "Debug"}) == logging.DEBUG
    with pytest.raises(Invalid, match="HEADWATER_LOG_LEVEL: is 'loud'; give one of debug, info"):
        level_of({"HEADWATER_LOG_LEVEL": "loud"})


def test_an_error_is_told_in_one_line() -> None:
    error = Invalid("it cannot be", [Problem("a", "is 1", "give 2"), Problem("b", "is 3", "give 4")])
    assert told("x", error) == "it cannot be: a: is 1; give 2 | b: is 3; give 4"
    assert told("x", ValueError("y")) == "x: y"
