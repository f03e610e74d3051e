"""The definitions on a real API server: the same verdicts as `headwater validate`."""

from __future__ import annotations

import re
from typing import Any

import pytest

from e2e.api import Api, Verdict
from tests.manifests import QUERY_REFUSALS, accepted, query_object, refusals

pytestmark = pytest.mark.promise(
    "an API server accepts and refuses the same manifests as `headwater validate`"
)

# What an API server cannot tell, and the operator does: what stands in a list of aggregates (a field that is
# a string or a list has no schema for its items), functions of packages, folders by way of ".", and those
# that a sink has beside its path.
_LATER = {
    ("spec.queries[q].aggregate[1]", "no usable k"),
    ("spec.queries[q].aggregate", "twice"),
    ("spec.queries[q].aggregate", "installed package"),
    ("spec.queries[q].aggregate", "called 'other'"),
}


def _is_later(document: dict[str, Any], field: str, told: str) -> bool:
    of_folder = field == "spec.root.sinks[1].path" and any(part in str(document) for part in ("./", ".files"))
    return (field, told) in _LATER or of_folder


def _blames(verdict: Verdict, field: str) -> bool:
    """Whether something is refused, and for this field: or for the list that it stands in, or as no object of
    the kind at all."""
    steps = [step for step in re.sub(r"\[[^\]]*\]", "", field).split(".") if step != "spec"] or ["spec"]
    said = " ".join((*verdict.fields, verdict.message))
    unread = field in ("apiVersion", "kind") or "cannot be handled as" in said or "json parse error" in said
    return verdict.code in (400, 422) and (unread or any(step in said for step in steps[-2:]))


@pytest.mark.parametrize("document", [pytest.param(found, id=id) for id, found in accepted()])
def test_what_is_taken(api: Api, document: dict[str, Any]) -> None:
    verdict = api.judge(document)
    assert verdict.taken, verdict


@pytest.mark.parametrize(
    "document, field, told", [pytest.param(*case, id=f"{case[1]}: {case[2]}") for case in refusals()]
)
def test_what_is_refused(api: Api, document: dict[str, Any], field: str, told: str) -> None:
    verdict = api.judge(document)
    if _is_later(document, field, told):
        assert verdict.taken, "it could be left to the API server"
        return
    assert _blames(verdict, field), verdict
    # The password of every case that has one.
    assert "hush" not in verdict.message


@pytest.mark.parametrize("changes, field, told", QUERY_REFUSALS)
def test_what_is_refused_of_a_query(api: Api, changes: dict[str, Any], field: str, told: str) -> None:
    assert _blames(api.judge(query_object(**changes)), field)
