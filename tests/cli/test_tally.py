"""What a run has sent, and what of it was read."""

from __future__ import annotations

from headwater_cli.tally import Tally


def test_heartbeats_behind_the_events_are_no_events() -> None:
    found = Tally({"a": 11, "b": 6}, {"a", "b"})
    assert (found.accepted, found.sent, found.unread, found.beats) == (17, 15, 0, 2)
    # One was stopped before its heartbeat.
    found = Tally({"a": 11, "b": 5}, {"a"})
    assert (found.accepted, found.sent, found.unread, found.beats) == (16, 15, 0, 1)


def test_a_heartbeat_that_was_not_read_is_neither_an_event_nor_counted() -> None:
    found = Tally({"a": 11, "b": 6}, {"a", "b"}, {"b": 2})
    assert (found.sent, found.unread, found.beats) == (15, 3, 1)
    # All but the heartbeat was read; all, and then nothing more.
    found = Tally({"a": 11, "b": 6}, {"a", "b"}, {"b": 5})
    assert (found.sent, found.unread, found.beats) == (15, 0, 1)
    found = Tally({"a": 11, "b": 6}, {"a", "b"}, {"b": 6})
    assert (found.sent, found.unread, found.beats) == (15, 0, 2)
    # It was noticed before the heartbeat.
    found = Tally({"a": 11, "b": 5}, {"a"}, {"b": 2})
    assert (found.sent, found.unread, found.beats) == (15, 3, 1)


def test_there_is_no_less_than_nothing_unread() -> None:
    """Somebody else has sent under that name."""
    assert Tally({"a": 5}, set(), {"a": 7}).unread == 0
