"""How long a source may be silent: one that the tree itself has cut off has longer (rule 14)."""

from __future__ import annotations

from headwater.machines.silence import Silence


def test_a_source_that_was_heard_has_the_bound() -> None:
    silence = Silence(30, grace=60)
    silence.assign(["s"], 0)
    silence.on_heard("s", 5)
    assert list(silence.quiet(35)) == []
    assert list(silence.quiet(36)) == ["s"]


def test_a_source_that_has_not_come_yet_has_the_start_timeout() -> None:
    silence = Silence(30, grace=60)
    silence.assign(["s", "t"], 0)
    silence.on_heard("t", 1)
    assert list(silence.quiet(59)) == ["t"]
    assert list(silence.quiet(61)) == ["s", "t"]


def test_the_bound_holds_where_it_is_longer_than_the_start_timeout() -> None:
    silence = Silence(90, grace=60)
    silence.assign(["s"], 0)
    assert list(silence.quiet(90)) == []
    assert list(silence.quiet(91)) == ["s"]


def test_after_an_interruption_every_source_has_the_start_timeout_again() -> None:
    silence = Silence(30, grace=60)
    silence.assign(["s"], 0)
    silence.on_heard("s", 1)
    silence.restart(25)
    assert list(silence.quiet(84)) == []
    silence.on_heard("s", 40)
    assert list(silence.quiet(71)) == ["s"]


def test_being_assigned_again_gives_nobody_longer() -> None:
    silence = Silence(30, grace=60)
    silence.assign(["s"], 0)
    silence.on_heard("s", 1)
    silence.assign(["s", "t"], 20)
    assert list(silence.quiet(32)) == ["s"]


def test_a_source_that_was_heard_before_it_was_assigned_has_the_bound() -> None:
    silence = Silence(30, grace=60, recent=4)
    silence.on_heard("s", 5)
    silence.assign(["s"], 8)
    assert list(silence.quiet(35)) == []
    assert list(silence.quiet(36)) == ["s"]


def test_a_source_that_was_heard_long_before_it_was_assigned_is_new() -> None:
    """It may have been cut off elsewhere since."""
    silence = Silence(5, grace=60, recent=4)
    silence.on_heard("s", 5)
    silence.assign(["s"], 15)
    assert list(silence.quiet(75)) == []
    assert list(silence.quiet(76)) == ["s"]


def test_what_was_heard_before_an_interruption_does_not_count() -> None:
    silence = Silence(30, grace=60, recent=4)
    silence.on_heard("s", 5)
    silence.restart(6)
    silence.assign(["s"], 7)
    assert list(silence.quiet(67)) == []
    assert list(silence.quiet(68)) == ["s"]
