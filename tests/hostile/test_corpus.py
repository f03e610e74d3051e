"""The inputs of the fuzzer, without it: each is taken or refused as documented, and nothing else happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.run import CORPUS
from fuzz.targets import SNAPSHOTS, TARGETS

INPUTS = sorted(path for name in TARGETS for path in (CORPUS / name).iterdir())


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}-{path.name}")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_an_input_of_the_fuzzer(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())


def test_every_target_has_inputs() -> None:
    assert {path.parent.name for path in INPUTS} == set(TARGETS)


@pytest.mark.parametrize("name", ["plain", "state"])
def test_snapshots_of_the_corpus_can_be_read(name: str) -> None:
    """Or the fuzzer would look at nothing but their heads: after a new format, `python -m fuzz.seeds`."""
    assert SNAPSHOTS.decode((CORPUS / "snapshot" / name).read_bytes()) is not None
