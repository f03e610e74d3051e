"""Window definitions: what they say about themselves, and that good ones have no problem."""

from __future__ import annotations

import numpy as np
import pytest

from headwater.windows import Punctuation, Session, Sliding, Tumbling, Window, is_count, length_and_slide

GOOD: dict[str, Window] = {
    "tumbling 10s": Tumbling("10s"),
    "tumbling 1us": Tumbling(1, offset="-3s"),
    "tumbling 1000 events": Tumbling(count=1_000),
    "sliding 1m / 1s": Sliding("60s", "1s"),
    "sliding 1s / 1s": Sliding("1s", "1s"),
    "sliding 8 / 2 events": Sliding(count=8, every=2),
    "session 30s": Session("30s"),
    "punctuation S..E by overlap": Punctuation("S", "E", "overlap"),
    "punctuation S..S by local": Punctuation("S"),
}


@pytest.mark.parametrize("text, window", GOOD.items(), ids=GOOD)
def test_a_good_window_has_no_problem_and_a_name(text: str, window: Window) -> None:
    assert list(window.problems()) == []
    assert str(window) == text


@pytest.mark.parametrize(
    "window, expected, counts",
    [
        (Tumbling("1ms"), (1_000, 1_000), False),
        (Sliding("1ms", 10), (1_000, 10), False),
        (Tumbling(count=5), (5, 5), True),
        (Sliding(count=5, every=2), (5, 2), True),
    ],
)
def test_length_and_slide(window: Tumbling | Sliding, expected: tuple[int, int], counts: bool) -> None:
    assert length_and_slide(window) == expected
    assert is_count(window) == counts


def test_numbers_of_numpy_read_as_any_other() -> None:
    pairs: list[tuple[Window, Window]] = [
        (Tumbling(count=np.int64(5)), Tumbling(count=5)),  # type: ignore[arg-type]  # what a user may give
        (Tumbling(np.int32(5), np.int64(-1)), Tumbling(5, -1)),  # type: ignore[arg-type]  # what a user may give
        (Session(np.uint8(5)), Session(5)),  # type: ignore[arg-type]  # what a user may give
    ]
    for given, meant in pairs:
        assert list(given.problems()) == []
        assert repr(given) == repr(meant)


def test_windows_are_values() -> None:
    assert Tumbling("1s") == Tumbling("1s")
    assert len({Session(5), Session(5), Session(6)}) == 2
