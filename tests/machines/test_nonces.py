"""Nobody who asks for nonces can take away those of others."""

from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from headwater.machines.nonces import OF_A_NAME, Nonces


def nonces(names: int = 100) -> Nonces:
    numbers = count()
    return Nonces(lambda: str(next(numbers)), names=names)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20)), max_size=60))
def test_who_asks_gets_the_same_one_until_it_was_echoed(asked: list[tuple[str, int]]) -> None:
    held, known = nonces(), dict[tuple[str, int], str]()
    for name, opening in asked:
        found = held.of(name, str(opening))
        mine = [key for key in known if key[0] == name]
        # The first ones of a name stay, whoever else comes under it.
        if (name, opening) in mine[: OF_A_NAME - 1]:
            assert found == known[name, opening]
        elif len(mine) >= OF_A_NAME and (name, opening) not in mine:
            del known[mine[-1]]
        known[name, opening] = found
        assert held.of(name, str(opening)) == found
    for (name, opening), nonce in list(known.items()):
        assert held.of(name, str(opening)) == nonce
        held.forget(name, str(opening))
        assert held.of(name, str(opening)) != nonce
        held.forget(name, str(opening))


def test_a_name_that_asks_without_end_takes_nobodys() -> None:
    held = nonces()
    honest, earlier = held.of("s", "opening"), held.of("hostile", "first")
    for opening in range(10_000):
        held.of("hostile", str(opening))
    assert held.of("s", "opening") == honest
    # Nor those of whoever had its name before.
    assert held.of("hostile", "first") == earlier


def test_of_too_many_names_the_oldest_is_forgotten() -> None:
    held = nonces(names=3)
    first, second = held.of("a", "x"), held.of("b", "x")
    held.of("c", "x")
    held.of("d", "x")
    assert held.of("b", "x") == second
    assert held.of("a", "x") != first
