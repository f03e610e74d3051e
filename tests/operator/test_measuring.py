"""A tree is planned for what sources send: for more at once, for less after a while."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from headwater.errors import InvalidPlan, Problem
from headwater_operator.measuring import SPAN, Measured, largest


def fed(measured: Measured, begin: float, seconds: float, rate: float, total: int = 0) -> int:
    """So many events a second, looked at every second; gives how many there were in all."""
    at = begin
    while at <= begin + seconds:
        measured.take(at, total)
        at += 1
        total += int(rate)
    return total


def by_spans(rates: Iterable[int]) -> Iterator[tuple[float, Measured]]:
    """One rate for each span, with the time and what is measured behind it."""
    measured, at, total = Measured(), 0.0, 0
    measured.take(at, total)
    for rate in rates:
        at, total = at + SPAN, total + int(rate * SPAN)
        measured.take(at, total)
        yield at, measured


def test_a_rate_is_measured_over_a_while() -> None:
    measured = Measured()
    fed(measured, 0, SPAN - 1, 50)
    assert measured.rate is None
    fed(measured, 0, 3 * SPAN, 50)
    assert measured.rate == pytest.approx(50)


def test_more_than_is_planned_for_is_looked_at_again_soon() -> None:
    measured = Measured()
    assert not measured.exceeds(50)
    fed(measured, 0, SPAN, 60)
    assert measured.exceeds(50)
    assert not measured.exceeds(60)


def test_what_fits_into_the_margin_plans_nothing_anew() -> None:
    measured = Measured()
    fed(measured, 0, 30, 108)
    assert measured.factor(30, 100, 0.1, 300) == 1.0
    assert measured.factor(30, 100, 0.0, 300) == 1.0, "a rate trembles"


def test_more_is_planned_for_at_once_and_less_after_a_while() -> None:
    measured = Measured()
    assert measured.factor(0, 100, 0.1, 60) == 1.0
    total = fed(measured, 0, 20, 250)
    assert measured.factor(20, 100, 0.1, 60) == 1.0, "it may pass"
    total = fed(measured, 21, 10, 250, total)
    assert measured.factor(30, 100, 0.1, 60) == pytest.approx(2.5)
    fed(measured, 31, 40, 100, total)
    assert measured.rate == pytest.approx(100)
    assert measured.factor(71, 100, 0.1, 60) == pytest.approx(2.5)
    assert measured.factor(80, 100, 0.1, 60) == pytest.approx(2.5)
    assert measured.factor(140, 100, 0.1, 60) == 1.0


@pytest.mark.parametrize(
    "rates", [(60, 30, 90, 60), (60, 10, 110, 60), (60, 60, 0, 120), (0, 120, 0, 120, 60)]
)
def test_what_is_held_up_for_a_moment_is_sent_all_the_same(rates: tuple[int, ...]) -> None:
    """On a machine with too much to do."""
    *_, (at, measured) = by_spans(rates)
    assert measured.factor(at, 40, 0.0, 300) == pytest.approx(1.5)


@pytest.mark.parametrize("rates", [(400, 400), (40, 400, 400, 40, 40), (400, 40, 40, 40, 400), (900, 40, 40)])
def test_what_has_piled_up_passes(rates: tuple[int, ...]) -> None:
    for at, measured in by_spans(rates):
        assert measured.factor(at, 40, 0.0, 300) == 1.0


def test_a_root_that_was_silent_for_a_moment_is_no_reason_to_begin_anew() -> None:
    measured = Measured()
    total = fed(measured, 0, 2 * SPAN, 60)
    measured.take(2 * SPAN + 1, None)
    # What comes first has piled up meanwhile.
    total = fed(measured, 3 * SPAN, SPAN, 200, total)
    assert measured.factor(4 * SPAN, 40, 0.0, 300) == 1.0
    fed(measured, 4 * SPAN + 1, SPAN, 60, total)
    assert measured.factor(5 * SPAN + 1, 40, 0.0, 300) == pytest.approx(1.5)


def test_while_the_root_is_silent_nothing_is_known() -> None:
    measured = Measured()
    total = fed(measured, 0, 30, 250)
    measured.factor(30, 100, 0.1, 60)
    measured.take(31, None)
    assert measured.rate is None
    # What has piled up comes at once: it is not a rate yet.
    measured.take(60, total + 100_000)
    assert measured.rate is None
    assert measured.factor(60, 100, 0.1, 60) == pytest.approx(2.5)
    # A root with another log counts from the beginning.
    measured.take(80, 5)
    assert measured.rate is None


def test_factors_have_one_digit_behind_the_point() -> None:
    """As they are kept: what is read again is the same."""
    for rate in range(111, 300, 7):
        measured = Measured()
        fed(measured, 0, 31, rate)
        found = measured.factor(31, 100, 0.0, 60)
        assert float(f"{found:g}") == found


@pytest.mark.parametrize("most", [1.0, 1.1, 1.7, 2.4, 2.5, 9.9])
def test_where_there_is_no_plan_for_so_much_it_is_as_much_as_can_be(most: float) -> None:
    asked = []

    def plan(factor: float) -> float:
        asked.append(factor)
        if factor > most:
            raise InvalidPlan([Problem("spec.limits.maxNodes", "is too small", "make it larger")])
        return factor

    assert largest(plan, 2.5) == (min(most, 2.5), min(most, 2.5))
    assert len(asked) <= 7
    with pytest.raises(InvalidPlan):
        largest(lambda factor: plan(10 * factor), 2.5)
