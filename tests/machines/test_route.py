"""Where a source connects, whoever answers there (rule 9)."""

from __future__ import annotations

from headwater.machines.route import KNOWN, Connect, Place, Route, Settings, Try

FIRST = Place("", "service:7070")
A, B = Place("a", "host-a:7070"), Place("b", "host-b:7070")
SETTINGS = Settings(
    patience=10, longest_patience=40, retry=2, longest_retry=4, retry_known=8, pause=20, longest_pause=80
)


def begun() -> Route:
    route = Route([FIRST], SETTINGS)
    assert route.decide(0) == Connect(FIRST)
    return route


def at(peer: str) -> Route:
    """A source that has found a child at the first address."""
    route = begun()
    route.on_connected(peer, 0)
    return route


def reached(route: Route, place: Place, now: int) -> None:
    """The place is tried, answers under its own name, and is connected to."""
    assert route.decide(now) == Try(place)
    route.on_tried(place, place.child, now)
    assert route.decide(now) == Connect(place)
    route.on_connected(place.child, now)


def test_a_source_goes_to_the_assigned_child_once_that_has_answered() -> None:
    route = at("a")
    route.on_assigned("b", B.address)
    assert route.decide(1) == Try(B)
    # It is read where it is meanwhile, and the child is tried once.
    assert route.peer == "a"
    assert route.decide(2) is None
    route.on_tried(B, "b", 3)
    assert route.decide(3) == Connect(B)
    route.on_connected("b", 4)
    assert route.decide(5) is None
    assert (route.avoid, route.failures) == ("", 0)


def test_a_child_that_cannot_be_reached_is_tried_again_less_and_less_often() -> None:
    route = at("a")
    route.on_assigned("b", B.address)
    tried = []
    for now in range(1, 400):
        if route.decide(now) == Try(B):
            tried.append(now)
            route.on_tried(B, "", now)
        assert route.peer == "a"
    assert tried == [1, 21, 61, 141, 221, 301, 381]
    assert (route.avoid, route.failures) == ("b", len(tried))


def test_a_child_whose_address_has_changed_is_tried_at_once() -> None:
    route = at("a")
    route.on_assigned("b", B.address)
    route.decide(1)
    route.on_tried(B, "", 1)
    route.on_assigned("b", "elsewhere:7070")
    assert route.avoid == ""
    assert route.decide(2) == Try(Place("b", "elsewhere:7070"))


def test_a_child_that_the_root_names_again_is_tried_sooner_but_not_at_every_word() -> None:
    route = at("a")
    route.on_assigned("b", B.address)
    tried = []
    for now in range(1, 100):
        if route.decide(now) == Try(B):
            tried.append(now)
            route.on_tried(B, "", now)
        route.on_assigned("b", B.address)
    assert tried == [1, 11, 31, 71]


def test_a_child_that_can_be_reached_again_is_connected_to_if_it_is_assigned() -> None:
    route = at("a")
    route.on_assigned("b", B.address)
    route.decide(1)
    route.on_tried(B, "", 1)
    reached(route, B, 21)
    assert route.avoid == ""
    # Where another one is assigned meanwhile, the root hears that it can be reached, and no more happens.
    route = at("a")
    route.on_assigned("b", B.address)
    route.decide(1)
    route.on_tried(B, "", 1)
    route.on_assigned("a", A.address)
    assert route.decide(21) == Try(B)
    route.on_tried(B, "b", 21)
    assert route.decide(21) is None
    assert (route.peer, route.avoid) == ("a", "")


def test_a_child_that_is_not_assigned_any_more_is_tried_no_more_often() -> None:
    route = at("a")
    route.on_assigned("b", B.address)
    route.decide(1)
    route.on_tried(B, "", 1)
    route.on_assigned("a", A.address)
    tried = []
    for now in range(2, 150):
        if route.decide(now) == Try(B):
            tried.append(now)
            route.on_tried(B, "", now)
    assert tried == [21, 61, 141]


def test_another_child_at_the_address_of_the_assigned_one_is_not_that_child() -> None:
    route = at("a")
    route.on_assigned("b", FIRST.address)
    assert route.decide(1) == Try(Place("b", FIRST.address))
    route.on_tried(Place("b", FIRST.address), "a", 1)
    assert route.decide(2) is None
    assert (route.peer, route.avoid) == ("a", "b")


def test_a_source_whose_child_is_gone_goes_back_to_where_it_began() -> None:
    route = at("a")
    route.on_assigned("b", B.address)
    reached(route, B, 2)
    route.on_lost(4)
    assert route.decide(14) is None
    # The other place is tried beside the attempt under way, again and again.
    assert route.decide(15) == Try(FIRST)
    assert route.avoid == "b"
    route.on_tried(FIRST, "", 16)
    assert route.decide(17) is None
    assert route.decide(18) == Try(FIRST)
    route.on_tried(FIRST, "a", 19)
    assert route.decide(19) == Connect(FIRST)
    route.on_connected("a", 20)
    assert (route.peer, route.decide(21)) == ("a", None)


def test_a_source_takes_another_child_at_the_address_of_its_own_one() -> None:
    route = at("a")
    there = Place("b", FIRST.address)
    route.on_assigned("b", FIRST.address)
    reached(route, there, 1)
    route.on_lost(2)
    # Only another child answers there now.
    assert route.decide(13) == Try(FIRST)
    route.on_tried(FIRST, "a", 13)
    assert route.decide(13) == Connect(FIRST)
    # Whoever takes anybody there need not try its child there.
    for now in range(14, 200):
        assert route.decide(now) is None


def test_where_nobody_answers_each_place_has_longer_each_time() -> None:
    """A way on which connecting takes long is not given up before it is there."""
    route = at("a")
    route.on_assigned("b", B.address)
    reached(route, B, 2)
    route.on_lost(3)
    turns = []
    for now in range(3, 300):
        step = route.decide(now)
        if isinstance(step, Try):
            route.on_tried(step.place, "", now)
        elif isinstance(step, Connect):
            turns.append((now, step.place))
    assert [place for _, place in turns] == [FIRST, B] * (len(turns) // 2) + [FIRST] * (len(turns) % 2)
    spans = [after - before for (before, _), (after, _) in zip([(3, B), *turns], turns, strict=False)]
    assert spans == [21, *[41] * (len(spans) - 1)]
    # The next outage begins anew.
    route.on_connected("b", 300)
    route.on_lost(301)
    assert isinstance(route.decide(322), Connect)


def test_a_child_that_does_not_answer_is_left_for_one_that_does() -> None:
    route = at("a")
    assert route.decide(1, is_silent=True) == Try(FIRST)
    # Where nobody else answers either, the connection is kept.
    route.on_tried(FIRST, "", 1)
    assert route.peer == "a"
    assert route.decide(2, is_silent=True) is None
    assert route.decide(3, is_silent=True) == Try(FIRST)
    route.on_tried(FIRST, "b", 3)
    assert route.decide(3, is_silent=True) == Connect(FIRST)


def test_a_silent_child_is_left_for_the_assigned_one_where_the_first_address_is_gone() -> None:
    route = at("a")
    route.on_assigned("b", B.address)
    route.decide(1)
    route.on_tried(B, "", 1)
    tried = []
    for now in range(3, 12):
        step = route.decide(now, is_silent=True)
        if isinstance(step, Try):
            tried.append(step.place)
            route.on_tried(step.place, "", now)
    assert {*tried} == {FIRST, B}
    while not isinstance(step := route.decide(now, is_silent=True), Try) or step.place != B:
        now += 1
        if isinstance(step, Try):
            route.on_tried(step.place, "", now)
    route.on_tried(B, "b", now)
    assert route.decide(now, is_silent=True) == Connect(B)


def test_a_child_that_has_spoken_meanwhile_is_not_left() -> None:
    route = at("a")
    assert route.decide(1, is_silent=True) == Try(FIRST)
    route.on_tried(FIRST, "b", 2)
    assert route.decide(2) is None
    assert route.peer == "a"


def test_children_of_before_are_tried_where_nobody_else_answers() -> None:
    """Of a device whose machine has no child any more, and whose child is gone."""
    route = at("a")
    route.on_assigned("b", B.address)
    reached(route, B, 1)
    route.on_assigned("a", FIRST.address)
    reached(route, Place("a", FIRST.address), 2)
    route.on_lost(3)
    tried = []
    for now in range(3, 30):
        step = route.decide(now)
        if isinstance(step, Try):
            tried.append(step.place)
            if step.place == B:
                break
            route.on_tried(step.place, "", now)
    assert tried == [FIRST, B]
    route.on_tried(B, "b", 30)
    assert route.decide(30) == Connect(B)


def test_as_many_children_are_remembered_as_are_of_use() -> None:
    route = at("a")
    for number in range(20):
        route.on_assigned(f"c{number}", f"host-{number}:7070")
    route.on_assigned("c19", "elsewhere:7070")
    assert len(route._known) == KNOWN
    assert route._known[:2] == [Place("c19", "elsewhere:7070"), Place("c18", "host-18:7070")]


def test_where_several_addresses_were_given_none_waits_for_another() -> None:
    """Nobody answers at the first two addresses, not even with a refusal."""
    third = Place("", "third:7070")
    route = Route([FIRST, Place("", "second:7070"), third], SETTINGS)
    assert route.decide(0) == Connect(FIRST)
    steps = [step for now in range(1, 15) if (step := route.decide(now)) is not None]
    assert steps == [Try(Place("", "second:7070")), Try(third)]
    route.on_tried(third, "c", 15)
    assert route.decide(15) == Connect(third)


def test_where_connecting_takes_long_each_of_several_addresses_has_its_turn() -> None:
    places = [Place("", f"{name}:7070") for name in ("first", "second", "third")]
    route = Route(places, SETTINGS)
    turns = []
    for now in range(400):
        step = route.decide(now)
        if isinstance(step, Try):
            route.on_tried(step.place, "", now)
        elif isinstance(step, Connect):
            turns.append(step.place)
    assert turns[:6] == places * 2


def test_a_silent_child_is_left_for_another_one_whatever_its_own_address_answers() -> None:
    """The way up of the first child is broken: it takes every new connection, and stays silent on it."""
    other = Place("", "other:7070")
    route = Route([FIRST, other], SETTINGS)
    assert route.decide(0) == Connect(FIRST)
    route.on_connected("a", 0)
    assert route.decide(5, is_silent=True) == Try(other)
    assert route.decide(5, is_silent=True) == Try(FIRST)
    route.on_tried(FIRST, "a", 5)
    assert route.decide(5, is_silent=True) is None
    route.on_tried(other, "c", 6)
    assert route.decide(6, is_silent=True) == Connect(other)


def test_a_silent_child_is_connected_to_anew_where_no_other_answers() -> None:
    route = Route([FIRST, Place("", "other:7070")], SETTINGS)
    assert route.decide(0) == Connect(FIRST)
    route.on_connected("a", 0)
    for _ in range(2):
        step = route.decide(5, is_silent=True)
        assert isinstance(step, Try)
        route.on_tried(step.place, "a" if step.place == FIRST else "", 5)
    assert route.decide(6, is_silent=True) is None
    assert route.decide(7, is_silent=True) == Connect(FIRST)


def test_where_it_began_any_child_is_welcome_that_bears_the_name() -> None:
    """The name is that of a Service, which the certificates of all children bear."""
    service = Place("plant-ingest", FIRST.address)
    route = Route([service], SETTINGS)
    assert route.decide(0) == Connect(service)
    route.on_connected("a", 0)
    route.on_assigned("b", B.address)
    reached(route, B, 1)
    route.on_lost(2)
    assert route.decide(13) == Try(service)
    route.on_tried(service, "a", 13)
    assert route.decide(13) == Connect(service)
    route.on_connected("a", 14)
    # And when that is silent.
    assert route.decide(15, is_silent=True) == Try(B)
    assert route.decide(15, is_silent=True) == Try(service)
    route.on_tried(service, "c", 15)
    assert route.decide(15, is_silent=True) == Connect(service)


def test_another_child_where_the_assigned_one_should_be_moves_nobody_to_and_fro() -> None:
    """It was named by its address when the source began, and another child answers there today."""
    there = Place("b", FIRST.address)
    route = Route([there], SETTINGS)
    assert route.decide(0) == Connect(there)
    route.on_connected("a", 0)
    route.on_assigned("b", FIRST.address)
    tried = 0
    for now in range(1, 100):
        step = route.decide(now)
        assert not isinstance(step, Connect)
        if isinstance(step, Try):
            tried += 1
            route.on_tried(step.place, "a", now)
    assert (route.avoid, tried) == ("b", 3)


def test_a_place_that_does_not_answer_is_tried_less_often_until_there_is_a_connection() -> None:
    route = at("a")
    route.on_assigned("b", B.address)
    reached(route, B, 1)
    for begin in (2, 102):
        route.on_lost(begin)
        tried = []
        for now in range(begin, begin + 21):
            if route.decide(now) == Try(FIRST):
                tried.append(now - begin)
                route.on_tried(FIRST, "", now)
        assert tried == [11, 13, 17]
        route.on_connected("b", begin + 21)


def test_children_of_before_are_tried_less_often() -> None:
    route = at("a")
    for number in range(KNOWN):
        route.on_assigned(f"c{number}", f"host-{number}:7070")
    route.on_assigned("b", B.address)
    reached(route, B, 1)
    route.on_lost(2)
    tried = []
    for now in range(3, 35):
        while isinstance(step := route.decide(now), Try):
            tried.append(step.place)
            route.on_tried(step.place, "", now)
        if isinstance(step, Connect):
            break
    known = Place("c5", "host-5:7070")
    assert 0 < tried.count(known) < tried.count(FIRST)
