"""The unit of the times of one input, and the judgement of its first ones."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal
from typing import Any

import numpy as np

from headwater.errors import InvalidEvents
from headwater.rows import TS_MAX, TS_MIN, Ints
from headwater.timeunits import FIRST, TimeUnit, given_unit_problem, unit_problem

# How commands are told the unit of times.
TIME_UNIT_OPTION = "--time-unit {unit}"


class Times:
    """Numbers are in `unit`, and the first ones must not lie after 2100 while they look like another one. If
    it is None they are microseconds, and the first ones must not look like another unit; if `strict` they
    have to lie between 1990 and 2100. Text says itself what time it is and is not judged."""

    def __init__(self, name: str, unit: TimeUnit | None) -> None:
        self._name, self.unit, self.strict = name, unit, False
        # The first numbers, until they were judged.
        self._first: list[int] | None = []

    def note(self, given: Any) -> None:
        """One time as the input has it, which is known to be good."""
        if self._first is None or len(self._first) >= FIRST:
            return
        # Text that is no number is ISO 8601.
        with suppress(TypeError, ValueError, ArithmeticError):
            number = int(Decimal(given) if isinstance(given, str) else given)
            if TS_MIN <= number <= TS_MAX:
                self._first.append(number)

    def note_column(self, numbers: Ints) -> None:
        if self._first is not None:
            self._first += numbers[: FIRST - len(self._first)].tolist()

    def check(self) -> None:
        """Judge the first times as soon as there are any; InvalidEvents if another unit is meant."""
        if not self._first:
            return
        first, self._first = np.array(self._first, np.int64), None
        if self.unit is None:
            problem = unit_problem("ts", first, TIME_UNIT_OPTION, strict=self.strict)
        else:
            problem = given_unit_problem("ts", first, self.unit, TIME_UNIT_OPTION)
        if problem is not None:
            raise InvalidEvents(f"the times of {self._name} cannot be taken", [problem])
