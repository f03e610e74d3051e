"""Answers of an API server as errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headwater.errors import PermanentError, RetryableError
from headwater_operator.errors import ApiError, Conflict, Forbidden, Gone, Refused, Unavailable, error_of


def answered(code: int, headers: dict[str, str] | None = None, **status: Any) -> ApiError:
    return error_of("get /x", code, json.dumps({"kind": "Status", **status}).encode(), headers or {})


@pytest.mark.parametrize(
    "code, expected",
    [
        (400, Refused),
        (401, Forbidden),
        (403, Forbidden),
        (404, Gone),
        (405, Refused),
        (408, Unavailable),
        (409, Conflict),
        (410, Gone),
        (413, Refused),
        (422, Refused),
        (429, Unavailable),
        (500, Unavailable),
        (502, Unavailable),
        (503, Unavailable),
        (504, Unavailable),
    ],
)
def test_a_code_is_an_error_that_helps_by_another_moment_or_other_input(
    code: int, expected: type[ApiError]
) -> None:
    found = answered(code, message="so it is", reason="Because")
    assert type(found) is expected
    assert isinstance(found, RetryableError) != isinstance(found, PermanentError)
    assert "get /x: so it is" in str(found)
    assert f"({code} Because)" in str(found)


def test_an_api_server_says_when_to_come_again() -> None:
    for found, after in [
        (answered(429, {"Retry-After": "3"}), 3.0),
        (answered(429, details={"retryAfterSeconds": 2}), 2.0),
        (answered(503), None),
        (answered(503, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}), None),
    ]:
        assert isinstance(found, Unavailable)
        assert found.after == after


def test_nothing_is_made_in_a_namespace_that_goes_whatever_the_rights() -> None:
    found = answered(403, reason="Forbidden", details={"causes": [{"reason": "NamespaceTerminating"}]})
    assert isinstance(found, Gone)


def test_a_missing_right_has_a_remedy() -> None:
    assert "grant the operator's account this right" in str(answered(403, message="cannot list pods"))


@pytest.mark.parametrize("body", [b"", b"<html>" + b"x" * 10_000, b"\xff\xfe", b"[]", b"null", b'"text"'])
def test_an_answer_of_something_else_is_told_in_short(body: bytes) -> None:
    found = error_of("get /x", 502, body, {})
    assert isinstance(found, Unavailable)
    assert len(str(found)) < 600
