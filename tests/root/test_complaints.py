"""What sources are told is told to the operator once, and remembering that has a bound."""

from __future__ import annotations

from headwater_root.complaints import Complaints


def test_a_source_that_asks_again_and_again_is_told_of_once() -> None:
    complaints = Complaints()
    assert complaints.is_news("s", "another spool has its name")
    assert not any(complaints.is_news("s", "another spool has its name") for _ in range(1_000))
    assert complaints.is_news("s", "its spool was opened again")
    assert complaints.is_news("t", "another spool has its name")
    complaints.settled("s")
    assert complaints.is_news("s", "its spool was opened again")


def test_however_many_sources_are_refused_only_so_many_are_remembered() -> None:
    complaints = Complaints(names=10)
    assert all(complaints.is_news(str(n), "no") for n in range(100))
    assert not any(complaints.is_news(str(n), "no") for n in range(90, 100))
    # Forgotten, and told of again.
    assert complaints.is_news("0", "no")
