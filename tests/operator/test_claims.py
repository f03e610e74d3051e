"""What a claim that is there stays, and what is said of it."""

from __future__ import annotations

from typing import Any

from headwater.topology import topology_of
from headwater_operator.claims import Claim, claim_of, differences, fitted, found, parting
from tests.manifests import small
from tests.operator.trees import one, rendered

THERE = Claim("small-root", "10Gi", "standard", ("ReadWriteOnce",))


def manifest(**storage: Any) -> dict[str, Any]:
    return one(rendered(small(spec__root__storage=storage), []), "PersistentVolumeClaim", "small-root")


def spec(there: Claim | None, **storage: Any) -> tuple[str, str | None, list[str]]:
    found = fitted(manifest(**storage), there)["spec"]
    return found["resources"]["requests"]["storage"], found.get("storageClassName"), found["accessModes"]


def said(there: Claim | None, **storage: Any) -> tuple[str, ...]:
    return differences(topology_of(small(spec__root__storage=storage)).root, there)


def test_a_new_claim_is_as_it_is_asked_for() -> None:
    assert spec(None) == ("10Gi", None, ["ReadWriteOnce"])
    asked = {"size": "20Gi", "storageClass": "fast-ssd", "accessMode": "ReadWriteOncePod"}
    assert spec(None, **asked) == ("20Gi", "fast-ssd", ["ReadWriteOncePod"])
    assert said(None, **asked) == ()


def test_a_claim_grows() -> None:
    assert spec(THERE, size="20Gi") == ("20Gi", "standard", ["ReadWriteOnce"])
    assert said(THERE, size="20Gi") == ()


def test_a_claim_does_not_shrink_and_says_so() -> None:
    assert spec(THERE, size="9Gi") == ("10Gi", "standard", ["ReadWriteOnce"])
    (problem,) = said(THERE, size="9Gi")
    assert "spec.root.storage.size is 9Gi" in problem
    assert "cannot shrink; ask for 10Gi or more" in problem


def test_one_that_somebody_has_enlarged_by_hand_is_left_so() -> None:
    larger = Claim("small-root", "50Gi", "standard", ("ReadWriteOnce",))
    assert spec(larger) == ("50Gi", "standard", ["ReadWriteOnce"])
    assert said(larger) == ()


def test_class_and_mode_stay_and_that_is_said() -> None:
    asked = {"storageClass": "fast-ssd", "accessMode": "ReadWriteMany"}
    assert spec(THERE, **asked) == ("10Gi", "standard", ["ReadWriteOnce"])
    by_class, by_mode = said(THERE, **asked)
    assert "storageClass is fast-ssd, but the claim small-root has standard" in by_class
    assert "accessMode is ReadWriteMany, but the claim small-root has ReadWriteOnce" in by_mode
    assert all("a claim of your own" in each for each in (by_class, by_mode))


def test_what_is_no_longer_asked_for_is_no_difference() -> None:
    """A field that is left out would be taken for one that is removed, and refused."""
    fast = Claim("small-root", "10Gi", "fast-ssd", ("ReadWriteOncePod",))
    assert spec(fast) == ("10Gi", "fast-ssd", ["ReadWriteOncePod"])
    assert said(fast) == ()


def test_a_claim_without_a_class_stays_without() -> None:
    bare = Claim("small-root", "10Gi", None, ("ReadWriteOnce",))
    assert spec(bare, storageClass="fast-ssd")[1] is None
    assert "has none" in said(bare, storageClass="fast-ssd")[0]


def test_a_claim_of_the_user_is_no_business_of_ours() -> None:
    assert said(THERE, claim="mine") == ()


def test_one_that_somebody_has_deleted_is_told_of() -> None:
    gone = {**manifest(), "metadata": {"name": "small-root", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    ours = topology_of(small()).root
    assert parting(ours, None) == parting(ours, THERE) == ""
    told = parting(ours, claim_of(gone))
    assert "the claim small-root was deleted" in told
    assert "/data" in told
    assert "spec.root.storage.claim" in told
    assert parting(topology_of(small(spec__root__storage={"claim": "mine"})).root, claim_of(gone)) == ""


def test_a_claim_is_found_and_read() -> None:
    document = {"apiVersion": "v1", **manifest(size="3Gi", storageClass="a")}
    others = [{"kind": "Service", "metadata": {"name": "small-root"}}, document]
    assert found(others, "small-root") == Claim("small-root", "3Gi", "a", ("ReadWriteOnce",))
    assert found(others, "other") is None
    assert claim_of({"metadata": {"name": "a"}}) == Claim("a", "0", None, ())
