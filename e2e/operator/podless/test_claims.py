"""The root's claim on a real API server: what that lets be changed, and what it does not."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from e2e.operator.spaces import Spaces
from headwater_operator import kinds
from headwater_operator.cluster import Cluster
from headwater_operator.metrics import Metrics
from headwater_operator.nodes import Nodes
from headwater_operator.reconciling import Reconciler
from headwater_operator.settings import Settings

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
NODE = {"ingestLimit": 1000}

Look = Callable[..., dict[str, Any]]


@pytest.fixture
def classes(spaces: Spaces) -> Iterator[dict[str, str]]:
    """A class whose volumes grow, and one whose volumes do not."""
    found = {"grows": f"grows-{uuid.uuid4().hex[:8]}", "stays": f"stays-{uuid.uuid4().hex[:8]}"}
    for kind, name in found.items():
        spaces.post(
            CLASSES,
            {
                "metadata": {"name": name},
                "provisioner": "example.org/none",
                "volumeBindingMode": "WaitForFirstConsumer",
                "allowVolumeExpansion": kind == "grows",
            },
        )
    yield found
    for name in found.values():
        spaces.request("DELETE", f"{CLASSES}/{name}")


@pytest.fixture
def look(cluster: Cluster, spaces: Spaces, space: str) -> Look:
    """Apply a topology with this storage, have it looked at, and give its condition Degraded."""
    reconcile = Reconciler(cluster, Settings("node", "root"), Nodes(), Metrics())

    def looked(**storage: Any) -> dict[str, Any]:
        spaces.topology(space, spec__root__storage={"deletionPolicy": "Retain", **storage}, spec__node=NODE)
        # Once for what is asked for, and once to see that it stays so.
        for _ in range(2):
            reconcile(space, "small")
        document = cluster.get(kinds.TOPOLOGY, space, "small")
        assert document is not None
        conditions = document["status"]["conditions"]
        return next(each for each in conditions if each["type"] == "Degraded")

    return looked


def _claim(cluster: Cluster, space: str) -> dict[str, Any]:
    found = cluster.get(kinds.CLAIM, space, "small-root")
    assert found is not None
    return found


def _size(cluster: Cluster, space: str) -> str:
    found: str = _claim(cluster, space)["spec"]["resources"]["requests"]["storage"]
    return found


def _bind(spaces: Spaces, space: str) -> None:
    """As a provisioner does: only a claim that is bound can grow."""
    path = kinds.CLAIM.object(space, "small-root")
    spaces.patch(path, {"spec": {"volumeName": f"volume-of-{space}"}})
    bound = {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "10Gi"}}
    spaces.patch(f"{path}/status", {"status": bound})


def test_a_claim_grows_where_its_class_allows_it_and_never_shrinks(
    cluster: Cluster, spaces: Spaces, space: str, look: Look, classes: dict[str, str]
) -> None:
    look(size="10Gi", storageClass=classes["grows"])
    first = _claim(cluster, space)
    assert first["spec"]["storageClassName"] == classes["grows"]
    _bind(spaces, space)
    assert look(size="20Gi", storageClass=classes["grows"])["reason"] == "AsPlanned"
    assert _size(cluster, space) == "20Gi"
    smaller = look(size="15Gi", storageClass=classes["grows"])
    assert (smaller["status"], smaller["reason"]) == ("True", "ClaimDiffers")
    assert "cannot shrink; ask for 20Gi or more" in smaller["message"]
    assert _size(cluster, space) == "20Gi"
    # Nothing asked for at all: it stays, and nothing is wrong.
    assert look()["reason"] == "AsPlanned"
    last = _claim(cluster, space)
    assert last["metadata"]["uid"] == first["metadata"]["uid"]
    assert last["spec"]["storageClassName"] == classes["grows"]


def test_where_the_class_does_not_allow_it_that_is_said(
    cluster: Cluster, spaces: Spaces, space: str, look: Look, classes: dict[str, str]
) -> None:
    look(size="10Gi", storageClass=classes["stays"])
    uid = _claim(cluster, space)["metadata"]["uid"]
    _bind(spaces, space)
    refused = look(size="20Gi", storageClass=classes["stays"])
    assert (refused["status"], refused["reason"]) == ("True", "ApplyFailed")
    assert "must support resize" in refused["message"]
    assert _size(cluster, space) == "10Gi"
    assert _claim(cluster, space)["metadata"]["uid"] == uid


def test_class_and_mode_stay_as_they_are(
    cluster: Cluster, spaces: Spaces, space: str, look: Look, classes: dict[str, str]
) -> None:
    look(storageClass=classes["grows"])
    before = _claim(cluster, space)
    differs = look(storageClass=classes["stays"], accessMode="ReadWriteOncePod")
    assert differs["reason"] == "ClaimDiffers"
    assert "storageClass" in differs["message"]
    assert "accessMode" in differs["message"]
    after = _claim(cluster, space)
    assert (after["metadata"]["uid"], after["spec"]) == (before["metadata"]["uid"], before["spec"])


def test_one_that_is_deleted_is_told_of_while_it_is_still_there(
    spaces: Spaces, space: str, look: Look
) -> None:
    look()
    spaces.request("DELETE", kinds.CLAIM.object(space, "small-root"))
    told = look()
    assert (told["status"], told["reason"]) == ("True", "ClaimDeleted")
    assert "the claim small-root was deleted" in told["message"]


def test_a_claim_of_the_user_is_neither_made_nor_changed(cluster: Cluster, space: str, look: Look) -> None:
    assert look(claim="mine")["reason"] == "AsPlanned"
    assert cluster.list(kinds.CLAIM, space) == []
