"""What is there already under a name that a topology needs, and what of a topology cannot be changed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from e2e.operator.running import NODES, Operator, rights
from e2e.operator.spaces import Spaces
from headwater_operator import kinds, names
from headwater_operator.errors import ApiError


def test_while_somebody_has_the_name_of_the_authority_nothing_is_signed(
    spaces: Spaces, space: str, tmp_path: Path
) -> None:
    authority = names.authority("small")
    foreign = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": authority}}
    spaces.post(f"/api/v1/namespaces/{space}/secrets", foreign)
    spaces.topology(space, spec__node={"ingestLimit": 500})
    kubeconfig = spaces.kubeconfig(tmp_path / "kubeconfig", spaces.account(space, rights(), NODES))

    def made() -> list[str]:
        found = spaces.cluster.list(kinds.SECRET, space, names.selector("small"))
        return [each["metadata"]["name"] for each in found]

    def told() -> str:
        found = spaces.cluster.get(kinds.TOPOLOGY, space, "small")
        assert found is not None
        conditions = (found.get("status") or {}).get("conditions") or ()
        return next((each["message"] for each in conditions if each["type"] == "Degraded"), "")

    with Operator(tmp_path, kubeconfig, space, program="headwater_operator") as operator:
        operator.until(lambda: f"Secret {authority} was not made by this topology" in told())
        time.sleep(2)
        assert made() == []
        assert not spaces.cluster.list(kinds.DEPLOYMENT, space)
        spaces.cluster.delete(kinds.SECRET, space, authority)
        operator.until(lambda: authority in made() and spaces.cluster.list(kinds.DEPLOYMENT, space))


def test_a_root_stays_with_its_engine(spaces: Spaces, space: str) -> None:
    spaces.topology(space, spec__root={"engine": "embedded"})
    with pytest.raises(ApiError, match="cannot be changed: the log of a root stays with its engine"):
        spaces.topology(space, spec__root={"engine": "spark"})
