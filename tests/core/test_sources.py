"""Names of sources: their order, what is shown of them, and which are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.sources import SourceId, source_name_problem

NAMES = st.text("ab#12", min_size=1, max_size=6) | st.text(
    st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20
)
IDS = st.builds(SourceId, NAMES, st.integers(1, 30))


@pytest.mark.parametrize(
    "source, label",
    [
        (SourceId("pump", 1), "pump"),
        (SourceId("pump", 2), "pump#2"),
        (SourceId("pump#2", 1), "pump#2#1"),
        (SourceId("pump#2", 2), "pump#2#2"),
        (SourceId("pump#", 1), "pump#"),
        (SourceId("pump#2a", 1), "pump#2a"),
        (SourceId("pump"), "pump"),
        (SourceId("pump#2"), "pump#2"),
    ],
)
def test_labels(source: SourceId, label: str) -> None:
    assert source.label == label
    assert SourceId.of(str(source)) == source


@given(st.lists(IDS, unique=True))
def test_no_two_sources_have_the_same_label(ids: list[SourceId]) -> None:
    assert len({each.label for each in ids}) == len(ids)


@given(st.lists(IDS))
def test_the_order_of_sources_is_that_of_their_bytes(ids: list[SourceId]) -> None:
    by_bytes = sorted(ids, key=lambda each: str(each).encode())
    assert by_bytes == sorted(ids, key=lambda each: (each.name.encode(), each.incarnation))
    assert [SourceId.of(str(each)) for each in ids] == ids


@pytest.mark.parametrize("name", ["pump", "Pumpe 1 (süd)", "é" * 126, "a" * 253, "press/1#2"])
def test_names_that_are_taken(name: str) -> None:
    assert source_name_problem(name) is None


@pytest.mark.parametrize(
    "name, wrong",
    [
        ("", "0 bytes"),
        ("a" * 254, "254 bytes"),
        ("é" * 127, "254 bytes"),
        ("a\0b", "control"),
        ("a\n", "control"),
        ("\x1b[2J", "control"),
        ("a\x85", "control"),
        ("\ud800", "control"),
    ],
)
def test_names_that_are_refused(name: str, wrong: str) -> None:
    found = source_name_problem(name)
    assert found is not None
    assert wrong in found[0]
