"""Where an API server has each kind."""

from __future__ import annotations

import pytest

from headwater_operator import kinds
from headwater_operator.kinds import KINDS, Kind, kind_of


@pytest.mark.parametrize(
    "kind, path",
    [
        (kinds.TOPOLOGY, "/apis/headwater.dev/v1alpha1/namespaces/plant/aggregationtopologies/x"),
        (kinds.DEPLOYMENT, "/apis/apps/v1/namespaces/plant/deployments/x"),
        (kinds.POD, "/api/v1/namespaces/plant/pods/x"),
        (kinds.NODE, "/api/v1/nodes/x"),
        (kinds.LEASE, "/apis/coordination.k8s.io/v1/namespaces/plant/leases/x"),
    ],
)
def test_an_object_has_a_path(kind: Kind, path: str) -> None:
    assert kind.object("plant", "x") == path
    assert kind.object("plant", "x", "status") == f"{path}/status"


def test_a_collection_is_that_of_a_namespace_or_of_all() -> None:
    assert kinds.POD.collection("plant") == "/api/v1/namespaces/plant/pods"
    assert kinds.POD.collection() == "/api/v1/pods"
    assert kinds.NODE.collection("plant") == "/api/v1/nodes"


def test_a_name_cannot_leave_its_place() -> None:
    assert kinds.POD.object("plant", "../../nodes/x") == "/api/v1/namespaces/plant/pods/..%2F..%2Fnodes%2Fx"
    with pytest.raises(ValueError, match="in a namespace"):
        kinds.POD.object(None, "x")


def test_kinds_are_found_by_what_objects_call_themselves() -> None:
    for kind in KINDS:
        assert kind_of({"apiVersion": kind.api_version, "kind": kind.name}) is kind
    with pytest.raises(ValueError, match="Pod of v2"):
        kind_of({"apiVersion": "v2", "kind": "Pod"})


def test_a_resource_is_called_as_in_roles() -> None:
    assert kinds.DEPLOYMENT.resource == "deployments.apps"
    assert kinds.POD.resource == "pods"
