"""A root whose machine is lost, on a real API server: when its pod is taken away by force, and when not."""

from __future__ import annotations

import socket

import pytest

from e2e.operator.podless.plant import ADDRESS, POD, Plant
from e2e.operator.spaces import Spaces
from headwater_operator import kinds, names
from headwater_operator.cluster import Cluster
from headwater_operator.failover import GRACE, SILENT


@pytest.fixture
def plant(cluster: Cluster, spaces: Spaces, space: str) -> Plant:
    return Plant(cluster, spaces, space)


def test_a_root_is_taken_off_a_machine_that_stays_lost(plant: Plant) -> None:
    plant.topology(spec__root__failover="auto")
    assert plant.look()["reason"] == "AsPlanned"
    claim = plant.cluster.get(kinds.CLAIM, plant.space, "small-root")
    assert claim is not None
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    first = plant.root("one")
    assert plant.look()["reason"] == "AsPlanned"
    plant.machines(one=False, other=True)
    waits = plant.look()
    assert waits["reason"] == "RootNodeLost"
    assert f"only when that has lasted {GRACE:g} s" in waits["message"]
    plant.look(GRACE - 1)
    assert plant.pod == first
    plant.look(1)
    assert plant.pod is None
    assert plant.failovers == 1
    (said,) = plant.events
    assert f"{POD} was on one, which has been lost for 60 s or more" in said
    # Made elsewhere, it is left alone, however long the first machine is away.
    second = plant.root("other")
    assert plant.look(10 * GRACE)["reason"] == "AsPlanned"
    plant.look(10 * GRACE)
    assert (plant.pod, plant.failovers) == (second, 1)


def test_one_that_was_evicted_and_cannot_say_that_it_has_ended_is_too(plant: Plant) -> None:
    plant.topology(spec__root__failover="auto")
    plant.look()
    plant.root("one")
    plant.machines(one=False, other=True)
    plant.look()
    plant.cluster.delete(kinds.POD, plant.space, POD)
    (evicted,) = plant.cluster.list(kinds.POD, plant.space)
    assert "deletionTimestamp" in evicted["metadata"]
    plant.silence()
    assert (plant.pod, plant.failovers) == (None, 1)


def test_a_machine_that_comes_back_in_time_keeps_its_root(plant: Plant) -> None:
    plant.topology(spec__root__failover="auto")
    plant.look()
    first = plant.root("one")
    for _ in range(3):
        plant.machines(one=False, other=True)
        plant.look()
        plant.look(GRACE - 1)
        plant.machines(one=True, other=True)
        assert plant.look(GRACE)["reason"] == "AsPlanned"
    assert (plant.pod, plant.failovers) == (first, 0)


def test_a_root_that_still_answers_is_left_alone(plant: Plant) -> None:
    """Its kubelet is dead, and it is not."""
    plant.topology(spec__root__failover="auto")
    plant.look()
    first = plant.root("one")
    plant.reached()
    plant.machines(one=False, other=True)
    with plant.answering():
        plant.look()
        degraded = plant.look(10 * GRACE)
        assert "it still answers there" in degraded["message"]
        assert (plant.pod, plant.failovers) == (first, 0)
    assert f"asked {SILENT} times" in plant.look()["message"]
    assert plant.failovers == 0
    plant.silence()
    assert (plant.pod, plant.failovers) == (None, 1)


def test_an_address_that_was_given_to_somebody_else_is_not_the_root(plant: Plant) -> None:
    plant.topology(spec__root__failover="auto")
    plant.look()
    plant.root("one")
    plant.reached()
    plant.machines(other=True)
    with plant.answering(party="small-l1-0"):
        plant.look()
        plant.silence()
        assert (plant.pod, plant.failovers) == (None, 1)


def test_one_that_does_not_trust_us_any_more_is_alive_as_well(plant: Plant) -> None:
    """Whoever takes the connection: its certificates may be those of another authority by now."""
    plant.topology(spec__root__failover="auto")
    plant.look()
    first = plant.root("one")
    plant.reached()
    plant.machines(one=False, other=True)
    with socket.create_server((ADDRESS, names.TREE_PORT)):
        plant.look()
        plant.silence(10 * GRACE)
        assert "it still answers there" in plant.look()["message"]
        assert (plant.pod, plant.failovers) == (first, 0)


def test_by_hand_it_waits_for_ever(plant: Plant) -> None:
    plant.topology()
    plant.look()
    first = plant.root("one")
    plant.machines(other=True)
    for _ in range(3):
        degraded = plant.look(10 * GRACE)
        assert degraded["reason"] == "RootNodeLost"
        assert degraded["message"].startswith("the root is on one")
    assert (plant.pod, plant.failovers) == (first, 0)


def test_a_claim_that_a_second_root_could_have_is_never_risked(plant: Plant) -> None:
    plant.topology()
    plant.look()
    # The claim that was made before is ReadWriteOnce for good: said at once, not only when it matters.
    plant.topology(spec__root__failover="auto")
    assert plant.look()["reason"] == "NoFailover"
    first = plant.root("one")
    plant.machines(one=False, other=True)
    plant.look()
    degraded = plant.look(10 * GRACE)
    assert degraded["reason"] == "RootNodeLost"
    assert "the claim small-root has the access mode ReadWriteOnce" in degraded["message"]
    assert f"kubectl delete pod {POD}" in degraded["message"]
    assert (plant.pod, plant.failovers) == (first, 0)


def test_a_claim_of_the_user_is_looked_at(plant: Plant) -> None:
    plant.topology(spec__root__failover="auto", spec__root__storage={"claim": "mine"})
    missing = plant.look()
    assert (missing["reason"], "there is no claim mine" in missing["message"]) == ("NoFailover", True)
    requests = {"requests": {"storage": "1Gi"}}
    plant.spaces.post(
        kinds.CLAIM.collection(plant.space),
        {"metadata": {"name": "mine"}, "spec": {"accessModes": ["ReadWriteOncePod"], "resources": requests}},
    )
    assert plant.look()["reason"] == "AsPlanned"
    plant.root("one")
    plant.machines(one=False, other=True)
    plant.look()
    plant.silence()
    assert (plant.pod, plant.failovers) == (None, 1)
