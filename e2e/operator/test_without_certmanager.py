"""A topology that names an issuer where nobody knows what a Certificate is."""

from __future__ import annotations

from pathlib import Path

from e2e.operator.running import NODES, Operator, rights
from e2e.operator.spaces import Spaces
from headwater_operator import kinds


def test_it_is_told_and_nothing_is_made(spaces: Spaces, space: str, tmp_path: Path) -> None:
    spaces.topology(
        space, spec__node={"ingestLimit": 500}, spec__certificates={"issuerRef": {"name": "plant-ca"}}
    )
    kubeconfig = spaces.kubeconfig(tmp_path / "kubeconfig", spaces.account(space, rights(), NODES))
    with Operator(tmp_path, kubeconfig, space, program="headwater_operator") as operator:

        def told() -> str:
            found = spaces.cluster.get(kinds.TOPOLOGY, space, "small")
            assert found is not None
            conditions = (found.get("status") or {}).get("conditions") or ()
            return next((each["message"] for each in conditions if each["type"] == "Planned"), "")

        operator.until(told)
        assert "certificates.cert-manager.io is not served by the API server" in told()
        assert "install cert-manager, or drop certificates" in told()
        assert not spaces.cluster.list(kinds.DEPLOYMENT, space)
