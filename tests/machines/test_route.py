"""Where a source connects, whoever answers there (rule 9)."""

from __future__ import annotations

from headwater.machines.route import Connect, Place, Route, Settings, Try

FIRST = Place("", "service:7070")
A, B = Place("a", "host-a:7070"), Place("b", "host-b:7070")
PATIENCE = 10


def begun() -> Route:
    route = Route(FIRST, Settings(PATIENCE))
    assert route.decide(0) == Connect(FIRST)
    return route


def at(peer: str) -> Route:
    """A source that has found a child at the first address."""
    route = begun()
    route.on_connected(peer, 0)
    return route


def test_a_source_goes_to_the_assigned_child_once_that_has_answered() -> None:
    route = at("a")
    route.on_assigned("b", B.address)
    assert route.decide(1) == Try(B)
    # It is read where it is meanwhile, and the child is tried once.
    assert route.peer == "a"
    assert route.decide(2) is None
    route.on_tried(B, "b")
    assert route.decide(3) == Connect(B)
    route.on_connected("b", 4)
    assert route.decide(5) is None
    assert route.avoid == ""


def test_a_child_that_cannot_be_reached_is_not_tried_again_until_its_address_changes() -> None:
    route = at("a")
    route.on_assigned("b", B.address)
    assert route.decide(1) == Try(B)
    route.on_tried(B, "")
    assert route.avoid == "b"
    for now in range(2, 100):
        route.on_assigned("b", B.address)
        assert route.decide(now) is None
    route.on_assigned("b", "elsewhere:7070")
    assert route.avoid == ""
    assert route.decide(100) == Try(Place("b", "elsewhere:7070"))


def test_another_child_at_the_address_of_the_assigned_one_is_not_that_child() -> None:
    route = at("a")
    route.on_assigned("b", FIRST.address)
    assert route.decide(1) == Try(Place("b", FIRST.address))
    route.on_tried(Place("b", FIRST.address), "a")
    assert route.decide(2) is None
    assert (route.peer, route.avoid) == ("a", "b")


def test_a_source_whose_child_is_gone_goes_back_to_where_it_began() -> None:
    route = at("a")
    route.on_assigned("b", B.address)
    route.decide(1)
    route.on_tried(B, "b")
    route.decide(2)
    route.on_connected("b", 3)
    route.on_lost(4)
    assert route.decide(4 + PATIENCE) is None
    assert route.decide(5 + PATIENCE) == Connect(FIRST)
    assert route.avoid == "b"
    # Nobody is there either: it tries both in turn.
    assert route.decide(6 + 2 * PATIENCE) == Connect(B)
    assert route.decide(7 + 3 * PATIENCE) == Connect(FIRST)
    route.on_connected("c", 8 + 3 * PATIENCE)
    assert (route.peer, route.decide(9 + 3 * PATIENCE)) == ("c", None)


def test_a_child_that_does_not_answer_is_left_for_one_that_does() -> None:
    route = at("a")
    assert route.decide(1, is_silent=True) == Try(FIRST)
    # Where nobody else answers either, the connection is kept.
    route.on_tried(FIRST, "")
    assert route.peer == "a"
    assert route.decide(2, is_silent=True) == Try(FIRST)
    route.on_tried(FIRST, "b")
    assert route.decide(3, is_silent=True) == Connect(FIRST)
