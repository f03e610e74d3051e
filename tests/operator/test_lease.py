"""A lease as one who waits for it sees it, by a clock of its own."""

from __future__ import annotations

from typing import Any

import pytest

from headwater_operator.connection import CONNECT_SECONDS, READ_SECONDS
from headwater_operator.lease import Sight, Timing


def lease(version: int, holder: str = "a", seconds: int = 15, renewed: str = "") -> dict[str, Any]:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": renewed}
    return {"metadata": {"resourceVersion": str(version)}, "spec": spec}


def test_a_lease_is_held_for_as_long_as_it_changes() -> None:
    sight = Sight()
    for n in range(10):
        assert sight.look(lease(n), 10.0 * n) == "a"


def test_one_that_no_longer_changes_may_be_taken_at_its_end() -> None:
    sight = Sight()
    assert sight.look(lease(1), 100.0) == "a"
    assert sight.look(lease(1), 114.9) == "a"
    assert sight.look(lease(1), 115.0) == ""


@pytest.mark.parametrize("renewed", ["1970-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"])
def test_the_clock_of_the_holder_does_not_matter(renewed: str) -> None:
    sight = Sight()
    assert sight.look(lease(1, renewed=renewed), 0.0) == "a"
    assert sight.look(lease(1, renewed=renewed), 14.0) == "a"
    assert sight.look(lease(1, renewed=renewed), 15.0) == ""


def test_one_that_was_released_is_free_at_once() -> None:
    sight = Sight()
    assert sight.look(lease(1), 0.0) == "a"
    assert sight.look(lease(2, holder="", seconds=1), 0.1) == ""


def test_the_holder_says_for_how_long() -> None:
    sight = Sight()
    assert sight.look(lease(1, seconds=60), 0.0) == "a"
    assert sight.look(lease(1, seconds=60), 59.0) == "a"


def test_an_empty_lease_is_free() -> None:
    assert Sight().look({"metadata": {"resourceVersion": "1"}}, 5.0) == ""


def test_the_holder_gives_up_before_others_take_it_and_calls_end_before_that() -> None:
    usual = Timing()
    assert usual.deadline < usual.duration
    assert usual.deadline > CONNECT_SECONDS + READ_SECONDS
    with pytest.raises(ValueError, match="before its end"):
        Timing(duration=10, deadline=10.0)
