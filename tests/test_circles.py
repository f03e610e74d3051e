"""CONTRIBUTING.md lists every test that CI leaves out, and nothing else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]


def _marks(nodes: list[ast.expr], assigned: dict[str, ast.expr]) -> set[str]:
    """The names of the markers in decorators or in `pytestmark`, also in values that these refer to."""
    found: set[str] = set()
    for part in (part for node in nodes for part in ast.walk(node)):
        if isinstance(part, ast.Attribute) and ast.unparse(part.value) == "pytest.mark":
            found.add(part.attr)
        elif isinstance(part, ast.Name) and part.id in assigned:
            # Each is followed once: a name may be assigned from itself.
            others = {name: value for name, value in assigned.items() if name != part.id}
            found |= _marks([assigned[part.id]], others)
    return found


def _tests(folder: str) -> Iterator[tuple[Path, str, set[str]]]:
    """Every test of a folder: its file, its name, its markers."""
    for path in sorted((ROOT / folder).rglob("test_*.py")):
        body = ast.parse(path.read_text()).body
        assigned = {ast.unparse(node.targets[0]): node.value for node in body if isinstance(node, ast.Assign)}
        of_module = _marks([assigned["pytestmark"]], assigned) if "pytestmark" in assigned else set()
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield path.relative_to(ROOT), node.name, of_module | _marks(node.decorator_list, assigned)


def _outside() -> list[tuple[Path, str]]:
    """The tests that CI leaves out."""
    found = [(path, name) for path, name, marks in _tests("tests") if "extended" in marks]
    return found + [(path, name) for path, name, marks in _tests("e2e") if "promise" not in marks]


def _names(path: Path, name: str) -> set[str]:
    """The ways to list a test: by its name, by its file, by a folder that holds it."""
    return {name, str(path), *(str(parent) for parent in path.parents if parent.parts)}


def test_what_ci_leaves_out_is_listed() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text.partition("### Outside of CI")[2].partition("\n## ")[0]
    listed = set(re.findall(r"^\| `([^`]+)`", section, re.MULTILINE))
    outside = _outside()
    missing = [f"{path}::{name}" for path, name in outside if not _names(path, name) & listed]
    assert not missing, f'list these in CONTRIBUTING.md ("Outside of CI"), or have CI run them: {missing}'
    stale = listed - {each for path, name in outside for each in _names(path, name)}
    assert not stale, f"CI runs these, or they are gone: {stale}"


def test_a_folder_or_file_that_is_listed_is_left_out_whole() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    listed = set(re.findall(r"^\| `([^`]+)`", text.partition("### Outside of CI")[2], re.MULTILINE))
    for path, name, marks in _tests("e2e"):
        if "promise" in marks:
            assert not _names(path, name) & listed, f"{path}::{name} is a promise, and listed as left out"
