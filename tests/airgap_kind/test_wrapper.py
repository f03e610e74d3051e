"""The wrapper takes out of a container's specification what this machine cannot grant, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airgap_kind.wrapper import CAPABILITIES, bounding_set, fit, option, specification

ALL = (1 << len(CAPABILITIES)) - 1
WITHOUT_RESOURCE = ALL & ~(1 << CAPABILITIES.index("SYS_RESOURCE"))


def status(mask: int) -> str:
    return f"Name:\tdockerd\nCapEff:\t{0:016x}\nCapBnd:\t{mask:016x}\nCapAmb:\t{0:016x}\n"


def asked(score: int = -500) -> dict[str, Any]:
    names = ["CAP_CHOWN", "CAP_SYS_ADMIN", "CAP_SYS_RESOURCE"]
    capabilities = {"bounding": list(names), "effective": list(names), "ambient": None}
    return {"args": ["sh"], "capabilities": capabilities, "oomScoreAdj": score}


def test_the_bounding_set_is_read_by_bits() -> None:
    assert bounding_set(status(0b101)) == {"CAP_CHOWN", "CAP_DAC_READ_SEARCH"}
    assert "CAP_SYS_RESOURCE" not in bounding_set(status(0x1FFFEFFFFFF))
    assert len(bounding_set(status(0x1FFFEFFFFFF))) == len(CAPABILITIES) - 1


def test_what_is_absent_is_taken_out_everywhere() -> None:
    process = asked()
    fit(process, bounding_set(status(WITHOUT_RESOURCE)), 0)
    left = ["CAP_CHOWN", "CAP_SYS_ADMIN"]
    assert process["capabilities"] == {"bounding": left, "effective": left, "ambient": []}
    assert process["oomScoreAdj"] == 0
    assert process["args"] == ["sh"]


def test_a_score_above_our_own_stays() -> None:
    process = asked(score=100)
    fit(process, bounding_set(status(WITHOUT_RESOURCE)), 0)
    assert process["oomScoreAdj"] == 100


def test_nothing_changes_where_nothing_is_absent() -> None:
    process = asked()
    fit(process, bounding_set(status(ALL)), 0)
    assert process["capabilities"]["bounding"] == asked()["capabilities"]["bounding"]
    assert process["oomScoreAdj"] == -500


def test_a_process_without_capabilities_is_left_alone() -> None:
    process: dict[str, Any] = {"args": ["sh"]}
    fit(process, frozenset(), 0)
    assert process == {"args": ["sh"]}


@pytest.mark.parametrize(
    "line, found",
    [
        ("--root /r create --bundle /b --pid-file /p id", (Path("/b/config.json"), True)),
        ("--root /r run -b /b id", (Path("/b/config.json"), True)),
        ("create id", (Path("config.json"), True)),
        ("--log=/l exec --process=/tmp/spec --detach id", (Path("/tmp/spec"), False)),
        ("exec -p /tmp/spec id", (Path("/tmp/spec"), False)),
        ("exec id sh", None),
        ("--root /r delete --force id", None),
    ],
)
def test_where_the_specification_is(line: str, found: tuple[Path, bool] | None) -> None:
    assert specification(line.split()) == found


def test_an_option_without_its_value_is_none() -> None:
    assert option(["create", "--bundle"], "--bundle") is None
