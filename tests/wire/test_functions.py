"""Functions of one's own: found by the metadata of installed packages, told by name if they are unusable."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.aggregates import UserDefined
from headwater.errors import Invalid
from headwater.topology import queries_of
from headwater_wire.functions import Functions, UnusableFunction

WORKS = """
from headwater.aggregates import UserDefined
def same(value): return value
{name} = UserDefined({name!r}, same, max, same)
"""


def package(directory: Path, name: str, source: str, *offered: str) -> None:
    """A package as an installer leaves it."""
    (directory / f"{name}.py").write_text(source)
    metadata = directory / f"{name}-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (metadata / "entry_points.txt").write_text("\n".join(["[headwater.functions]", *offered, ""]))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def problem(name: str) -> str:
    with pytest.raises(UnusableFunction) as error:
        Functions()(name)
    (found,) = error.value.problems
    assert found.field == f"function:{name}"
    return str(found)


def test_a_function_of_an_installed_package_is_found_and_read_in_a_query(site: Path) -> None:
    package(site, "good_functions", WORKS.format(name="most"), "most = good_functions:most")
    functions = Functions()
    found = functions("most")
    assert isinstance(found, UserDefined)
    assert functions("most") is found
    document = {"id": "q", "aggregate": "function:most", "window": {"type": "tumbling", "length": "1s"}}
    (query,) = queries_of([document], functions)
    assert query.custom == (found,)


def test_one_that_cannot_be_used_is_told_with_the_query_that_wants_it(site: Path) -> None:
    package(site, "torn_functions", "import no_such_module\n", "torn = torn_functions:torn")
    window = {"type": "tumbling", "length": "1s"}
    asked = [{"id": id, "aggregate": ["sum", "function:torn"], "window": window} for id in ("a", "b")]
    with pytest.raises(Invalid) as error:
        queries_of(asked, Functions())
    fields = [each.field for each in error.value.problems]
    assert fields == ["spec.queries[a].aggregate[1]", "spec.queries[b].aggregate[1]"]
    assert "cannot be loaded (ModuleNotFoundError" in error.value.problems[0].message


def test_a_name_that_nobody_offers_is_none() -> None:
    assert Functions()("nobody-offers-this") is None


def test_a_package_that_cannot_be_imported_is_told_with_its_cause(site: Path) -> None:
    package(site, "broken_functions", "import no_such_module\n", "worst = broken_functions:worst")
    said = problem("worst")
    assert "worst = broken_functions:worst of broken_functions 1.2" in said
    assert "ModuleNotFoundError: No module named 'no_such_module'" in said


def test_a_package_that_wants_to_end_the_program_is_told(site: Path) -> None:
    package(site, "ending_functions", "raise SystemExit(7)\n", "end = ending_functions:end")
    assert "SystemExit: 7" in problem("end")


def test_a_package_without_the_object_is_told(site: Path) -> None:
    package(site, "empty_functions", "", "least = empty_functions:least")
    assert "AttributeError" in problem("least")


def test_an_object_that_is_no_function_is_told(site: Path) -> None:
    package(site, "odd_functions", "odd = 3\n", "odd = odd_functions:odd")
    assert "is a int" in problem("odd")


def test_a_name_that_two_packages_offer_is_nobodys(site: Path) -> None:
    package(site, "one_functions", WORKS.format(name="both"), "both = one_functions:both")
    package(site, "two_functions", WORKS.format(name="both"), "both = two_functions:both")
    said = problem("both")
    assert "one_functions 1.2" in said
    assert "two_functions 1.2" in said


def test_a_broken_package_that_nobody_asks_for_does_no_harm(site: Path) -> None:
    package(site, "good_ones", WORKS.format(name="fine"), "fine = good_ones:fine")
    package(site, "bad_ones", "raise SystemError\n", "bad = bad_ones:bad")
    assert Functions()("fine") is not None
