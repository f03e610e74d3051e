"""A spec that cannot be had, or does not come to be, leaves the one before it; and that is not forgotten."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headwater.errors import Invalid, Problem
from headwater_operator.choosing import NOTHING, Chosen, Planned, Way, after, choose, given_up
from headwater_operator.keeping import Kept, kept_of, manifest_of
from headwater_operator.observation import Observed
from headwater_operator.rendering import Owner
from tests.operator.test_layout import topology

OWNER = Owner("plant", "factory", "uid-1")


def document(name: str) -> dict[str, Any]:
    return {"metadata": {"name": "factory"}, "spec": {"called": name}}


# What of a spec can be had, by what it is called.
WAYS = {"bad": (), "lost": (Way.HELD,), "heavy": (Way.COMPUTED, Way.HELD)}


def plan(given: Any, way: Way) -> Planned:
    if way not in WAYS.get(given["spec"]["called"], Way):
        raise Invalid("it cannot be had", [Problem("spec", "is bad", "mend it")])
    return Planned(topology(), given, NOTHING, None)


def chosen(found: Chosen) -> str | None:
    return None if found.planned is None else str(found.planned.document["spec"]["called"])


def kept(name: str, generation: int, begun: int | None = None) -> Kept:
    return Kept(generation, {"called": name}, begun=generation if begun is None else begun)


def test_what_is_asked_for_runs() -> None:
    found = choose(OWNER, document("new"), 2, kept("old", 1), plan)
    assert (chosen(found), found.instead, found.problem) == ("new", None, None)


def test_what_cannot_be_had_leaves_the_last_good_one() -> None:
    found = choose(OWNER, document("bad"), 2, kept("old", 1), plan)
    assert (chosen(found), found.instead) == ("old", 1)
    assert found.problem is not None
    nothing = choose(OWNER, document("bad"), 2, Kept(), plan)
    assert nothing.planned is None
    assert nothing.problem is not None
    assert choose(OWNER, document("bad"), 2, kept("bad", 2), plan).planned is None


def test_of_what_was_good_once_that_which_runs_is_seen_to() -> None:
    """Such as where a machine is gone."""
    gone = choose(OWNER, document("lost"), 2, kept("lost", 2), plan)
    assert (chosen(gone), gone.instead) == ("lost", 2)
    assert gone.problem is not None
    worse = choose(OWNER, document("bad"), 3, kept("lost", 2), plan)
    assert (chosen(worse), worse.instead) == ("lost", 2)
    never = choose(OWNER, document("lost"), 1, Kept(), plan)
    assert never.planned is None
    # It was on its way: nobody goes back to another one for want of a machine.
    begun = choose(OWNER, document("lost"), 2, kept("old", 1, begun=2), plan)
    assert (chosen(begun), begun.instead) == ("lost", 2)
    # Pods are those of a spec that nobody has any more: they are left alone.
    between = choose(OWNER, document("bad"), 3, kept("lost", 1, begun=2), plan)
    assert between.planned is None


def test_what_was_given_up_is_held_where_the_one_before_it_cannot_be_had_any_more() -> None:
    failed = given_up(kept("bad", 1, begun=2), 2, 600)
    found = choose(OWNER, document("new"), 2, failed, plan)
    assert (chosen(found), found.instead, found.rolled_back) == ("new", 2, None)
    assert found.problem is not None
    # Its pods are on their way back already.
    back = given_up(kept("bad", 1, begun=1), 2, 600)
    assert choose(OWNER, document("new"), 2, back, plan).planned is None


def test_a_query_for_which_there_is_no_plan_holds_up_no_spec() -> None:
    found = choose(OWNER, document("heavy"), 2, kept("old", 1), plan)
    assert (chosen(found), found.instead, found.problem) == ("heavy", None, None)


def test_what_was_given_up_stays_so_until_it_changes() -> None:
    failed = given_up(kept("old", 1), 2, 600)
    found = choose(OWNER, document("new"), 2, failed, plan)
    assert (chosen(found), found.instead) == ("old", 1)
    assert found.rolled_back == "nothing more of generation 2 came to be for 600 s"
    # The tree of the old one is as it should be: that makes the new one no better.
    again = after(failed, 2, document("new"), settled=True, own=found.instead is None)
    assert again == failed
    assert chosen(choose(OWNER, document("new"), 2, again, plan)) == "old"
    other = choose(OWNER, document("other"), 3, again, plan)
    assert (chosen(other), other.rolled_back) == ("other", None)
    good = after(again, 3, document("other"), settled=True, own=True)
    assert (good.generation, good.spec, good.failed) == (3, {"called": "other"}, 0)


def test_a_spec_is_good_when_it_is_settled() -> None:
    assert after(kept("old", 1), 2, document("new"), settled=False, own=True) == kept("old", 1)
    assert after(kept("old", 1), 2, document("new"), settled=True, own=True).generation == 2
    assert after(kept("old", 2), 2, document("old"), settled=True, own=True) == kept("old", 2)


@pytest.mark.parametrize(
    "held",
    [
        Kept(),
        Kept(3, {"called": "x"}, 4, "why", {1: 5, 2: 0}, 2.5, 5),
        Kept(numbers={1: 7}, factor=1.3),
    ],
)
def test_what_is_kept_is_read_again(held: Kept) -> None:
    written = manifest_of(OWNER, held)
    assert kept_of(OWNER, Observed((written,), {})) == held
    # Not by a topology of the same name that came later.
    assert kept_of(replace(OWNER, uid="uid-2"), Observed((written,), {})) == Kept()


def test_what_somebody_has_changed_is_nothing() -> None:
    written = manifest_of(OWNER, Kept(3, {"called": "x"}))
    written["data"]["generation"] = "many"
    assert kept_of(OWNER, Observed((written,), {})) == Kept()
    assert kept_of(OWNER, Observed((), {})) == Kept()


def test_a_spec_that_is_too_long_is_not_kept() -> None:
    long = Kept(3, {"called": "x" * 1_000_000}, numbers={1: 2})
    assert kept_of(OWNER, Observed((manifest_of(OWNER, long),), {})) == Kept(numbers={1: 2})
