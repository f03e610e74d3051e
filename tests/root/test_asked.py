"""What a manifest asks for, from one start to the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.aggregates import UserDefined
from headwater.machines.root import Settings
from headwater.queries import Query
from headwater.windows import Session, Tumbling
from headwater_root import asked
from headwater_root.files import Damaged
from headwater_root.runtime import RootRuntime

A, B, C = Query("a", Tumbling(10)), Query("b", Tumbling(20), "avg"), Query("c", Session(5), key_by="key")
OTHER_B = Query("b", Tumbling(20), "max")


def active(directory: Path, *queries: Query) -> tuple[list[str], int]:
    """Which queries are there in a root that was started with these, and the version."""
    root = RootRuntime(queries, directory, Settings())
    try:
        return sorted(root.machine.engine.active), root.machine.engine.version
    finally:
        root.log.close()


def test_only_what_has_changed_is_changed(tmp_path: Path) -> None:
    assert active(tmp_path, A, B) == (["a", "b"], 0)
    assert active(tmp_path, A, B) == (["a", "b"], 0)
    assert active(tmp_path, A, C) == (["a", "c"], 2)
    assert active(tmp_path, C, A) == (["a", "c"], 2)
    # Another one by the same name is another one.
    assert active(tmp_path, A, B, C) == (["a", "b", "c"], 3)
    assert active(tmp_path, A, OTHER_B, C) == (["a", "b", "c"], 5)


def test_what_was_added_while_the_root_ran_stays(tmp_path: Path) -> None:
    root = RootRuntime([A], tmp_path, Settings())
    root.machine.add(C)
    root.log.close()
    assert active(tmp_path, A) == (["a", "c"], 1)
    assert active(tmp_path, A, B) == (["a", "b", "c"], 2)
    # Asked for twice it is there once.
    assert active(tmp_path, A, B, C) == (["a", "b", "c"], 2)


def test_a_root_that_dies_before_it_has_noted_the_change_makes_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert active(tmp_path, A) == (["a"], 0)
    with monkeypatch.context() as patched:
        patched.setattr(asked, "write", lambda *given: (_ for _ in ()).throw(OSError("no space")))
        with pytest.raises(OSError, match="no space"):
            active(tmp_path, A, B)
    assert active(tmp_path, A, B) == (["a", "b"], 1)


def test_functions_of_ones_own_are_found_by_their_names(tmp_path: Path) -> None:
    longest = UserDefined("longest", lambda value: value, max, lambda state: state)
    query = Query("u", Tumbling(10), longest)
    assert active(tmp_path, query) == (["u"], 0)
    assert active(tmp_path, query, A) == (["a", "u"], 1)


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    active(tmp_path, A)
    (tmp_path / "queries.json").write_text("{}")
    with pytest.raises(Damaged, match="is not what this program wrote"):
        active(tmp_path, A)
