"""The configuration of a node: file, environment, and one sentence for everything that is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import Invalid
from headwater_node.configuration import Configuration, read

GOOD: dict[str, Any] = {
    "name": "c",
    "role": "child",
    "listen": "127.0.0.1:0",
    "parent": "root",
    "parent_address": "127.0.0.1:7000",
}


def of(**changes: Any) -> Configuration:
    return Configuration.of({**GOOD, **changes})


def written(directory: Path, text: str) -> str:
    path = directory / "node.json"
    path.write_text(text)
    return str(path)


def test_what_is_not_given_is_as_usual() -> None:
    found = of()
    assert (found.flush_interval, found.future) == (100_000, 86_400_000_000)
    assert (found.idle_after, found.horizon) == (60_000_000, 3_600_000_000)
    assert (found.metrics, found.advertise, found.credentials) == (None, None, None)


def test_durations_are_seconds_or_words() -> None:
    assert (of(idle_after="10m").idle_after, of(horizon=0.5).horizon) == (600_000_000, 500_000)
    assert of(flush_interval=0.25).flush_interval == of(flush_interval="250ms").flush_interval == 250_000
    assert of(future=60).future == of(future="1m").future == of(future="60").future == 60_000_000
    assert of(future=0).future == 0


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(GOOD))
    environment = {"HEADWATER_NAME": "d", "HEADWATER_FLUSH_INTERVAL": "1s", "HEADWATER_METRICS": ":9100"}
    found = read(path, environment)
    assert (found.name, found.flush_interval, found.metrics) == ("d", 1_000_000, ":9100")
    texts = {**GOOD, "advertise": "node.example:7000"}
    everything = {f"HEADWATER_{field.upper()}": value for field, value in texts.items()}
    assert read(None, everything) == of(advertise="node.example:7000")


@pytest.mark.parametrize(
    "field, value, said",
    [
        ("name", None, "is missing; give it, or set HEADWATER_NAME"),
        ("name", "", "is missing"),
        ("name", 3, "is 3; give a text"),
        ("name", "x" * 300, "give a text of at most 253 bytes"),
        ("role", "root", "is 'root'; give one of child, intermediate"),
        ("role", ["child"], "give a text"),
        ("flush_interval", "soon", "is 'soon'; give seconds from 0.001 to 60"),
        ("flush_interval", 0, "give seconds"),
        ("flush_interval", -1.0, "give seconds"),
        ("flush_interval", True, "give seconds"),
        ("flush_interval", "nan", "give seconds"),
        ("flush_interval", [1], "give seconds"),
        ("future", "-1s", "give seconds from 0 on"),
        ("metrics", "9100", "give host and port"),
        ("metrics", "127.0.0.1:http", "give host and port"),
        ("metrics", 9100, "give a text"),
        ("advertise", 7000, "give a text"),
        # The root tells a node what it computes.
        ("queries", [], "is not known; known are name, role"),
        ("tls", "cert.pem", "give certificate, key, ca"),
        ("parents", "root", "is not known; did you mean parent?"),
    ],
)
def test_what_is_wrong_is_told_with_field_and_remedy(field: str, value: Any, said: str) -> None:
    with pytest.raises(Invalid) as error:
        of(**{field: value})
    (problem,) = error.value.problems
    assert problem.field == field
    assert said in str(problem)


def test_everything_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(Invalid) as error:
        of(role="x", future="x", queries=[], tls={"ca": "/none"})
    fields = {problem.field for problem in error.value.problems}
    assert {"role", "future", "queries", "tls.key", "tls.certificate"} <= fields


@pytest.mark.parametrize("text, said", [("{", "is no JSON"), ("[]", "holds no object"), ("\0", "is no JSON")])
def test_a_file_that_holds_none_is_told(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        read(written(tmp_path, text), {})


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"--config: .* cannot be read"):
        read(str(tmp_path / "none"), {})
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(Invalid, match="--config"):
        read(str(tmp_path / "binary"), {})
