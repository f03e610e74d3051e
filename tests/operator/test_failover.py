"""When a root may be taken off a machine that is lost."""

from __future__ import annotations

import pytest

from headwater.topology import topology_of
from headwater_operator.claims import Claim
from headwater_operator.failover import GRACE, SILENT, Lost, claim_name, hindrance, lost
from headwater_operator.layout import Host
from headwater_operator.observation import Pod
from tests.manifests import small
from tests.operator.test_observation import HOSTS, going
from tests.operator.trees import one, rendered
from tests.operator.views import observed, pod

ALONE = Claim("factory-root", "10Gi", "fast", ("ReadWriteOncePod",))


def found(machine: str, *, evicted: bool = False, hosts: list[Host] | None = HOSTS) -> Pod | None:
    document = pod("factory-root", role="root", ready=False, machine=machine)
    return lost(observed([], [going(document) if evicted else document]), "factory", hosts)


def test_a_root_is_lost_with_its_machine() -> None:
    assert found("good") is None
    assert found("") is None
    assert found("lost") is not None
    assert found("never heard of") is not None
    # It was evicted, and nobody can say that it has ended.
    evicted = found("lost", evicted=True)
    assert evicted is not None
    assert (evicted.name, evicted.machine) == ("factory-root-0", "lost")
    assert lost(observed([], []), "factory", HOSTS) is None


def test_where_machines_cannot_be_seen_none_is_lost() -> None:
    assert found("lost", hosts=None) is None
    assert "nodes.rbac" in hindrance("factory-root", ALONE, None)


@pytest.mark.parametrize(
    "modes", [("ReadWriteOnce",), ("ReadWriteMany",), ("ReadWriteOnce", "ReadWriteMany"), ()]
)
def test_only_a_claim_for_one_pod_alone_will_do(modes: tuple[str, ...]) -> None:
    said = hindrance("mine", Claim("mine", "10Gi", None, modes), HOSTS)
    assert f"the claim mine has the access mode {' and '.join(modes) or 'none'}" in said
    assert "ReadWriteOncePod" in said
    assert hindrance("factory-root", ALONE, HOSTS) == ""
    assert "there is no claim mine" in hindrance("mine", None, HOSTS)


def test_the_claim_that_is_made_for_it_is_for_one_pod_alone() -> None:
    document = small(spec__root__failover="auto")
    claim = one(rendered(document, []), "PersistentVolumeClaim", "small-root")
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    assert claim_name("small", topology_of(document).root) == "small-root"
    mine = small(spec__root__failover="auto", spec__root__storage={"claim": "mine"})
    assert claim_name("small", topology_of(mine).root) == "mine"


def test_asking_for_it_restarts_nobody() -> None:
    before, after = rendered(small(), []), rendered(small(spec__root__failover="auto"), [])
    assert one(before, "StatefulSet", "small-root") == one(after, "StatefulSet", "small-root")


def test_a_root_is_taken_for_dead_when_nobody_answers_time_and_again() -> None:
    gone = Lost("uid", 0.0)
    for _ in range(5 * SILENT):
        assert "only when that has lasted 60 s" in gone.spared(GRACE - 1, False)
    assert gone.spared(GRACE, False) == ""
    assert "still answers" in gone.spared(GRACE, True)
    for _ in range(SILENT - 1):
        assert "asked 3 times" in gone.spared(10 * GRACE, False)
    assert gone.spared(10 * GRACE, False) == ""
