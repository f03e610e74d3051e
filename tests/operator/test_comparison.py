"""What is applied, deleted or told, by what is there."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headwater_operator import names
from headwater_operator.comparison import ORDER, Actions, Key, compare, stamped
from headwater_operator.rendering import Manifest
from tests.manifests import small
from tests.operator.trees import nodes, one, owner, rendered

OWNER = owner(small())
DESIRED = rendered(small(), nodes("small", 2, 1), monitored=True)


def _there(manifests: Any) -> list[dict[str, Any]]:
    """As an API server gives back what was applied: with more in it than was asked for."""
    found = [deepcopy(stamped(each)) for each in manifests]
    for each in found:
        each["metadata"]["uid"] = f"uid of {each['metadata']['name']}"
        each["status"] = {"observedGeneration": 1}
        each.setdefault("spec", {})["defaulted"] = True
    return found


def test_what_is_there_already_costs_nothing() -> None:
    actions = compare(OWNER, DESIRED, _there(DESIRED))
    assert actions == Actions()
    assert not actions


def test_everything_is_applied_to_an_empty_cluster_in_an_order_in_which_it_starts() -> None:
    actions = compare(OWNER, reversed(DESIRED), [])
    assert len(actions.apply) == len(DESIRED)
    ranks = [ORDER.index(each["kind"]) for each in actions.apply]
    assert ranks == sorted(ranks)
    assert all(len(each["metadata"]["annotations"][names.APPLIED]) == 64 for each in actions.apply)
    assert (actions.delete, actions.conflicts) == ((), ())


def test_every_kind_that_is_rendered_has_its_place() -> None:
    spark = rendered(small(spec__root={"engine": "spark", "spark": {"executors": 1}}), [])
    issued = rendered(small(spec__certificates={"issuerRef": {"name": "plant-ca"}}), [])
    assert {each["kind"] for each in (*DESIRED, *spark, *issued)} == set(ORDER)


def test_what_cert_manager_has_filled_is_taken_on_and_left_as_it_is() -> None:
    issued = rendered(small(spec__certificates={"issuerRef": {"name": "plant-ca"}}), nodes("small", 1))
    secret = one(issued, "Secret", "small-l1-0-tls")
    assert "data" not in secret
    filled = {
        **secret,
        "metadata": {
            **secret["metadata"],
            "ownerReferences": [],
            "annotations": {names.ISSUED: "small-l1-0-tls"},
        },
        "data": {"tls.crt": "YQ=="},
    }
    assert compare(OWNER, [secret], [filled]).apply == (stamped(secret),)
    # Once it is ours, what is in it is no concern of ours.
    ours = deepcopy({**stamped(secret), "data": {"tls.crt": "Yg=="}})
    ours["metadata"]["annotations"][names.ISSUED] = "small-l1-0-tls"
    assert not compare(OWNER, [secret], [ours])
    # A Secret that nobody has labelled is somebody else's.
    bare = {**filled, "metadata": {"name": "small-l1-0-tls"}}
    assert [each.reason for each in compare(OWNER, [secret], [bare]).conflicts] == [
        "was not made by this topology"
    ]
    # It goes with what asks for it, and by nobody else: cert-manager would fill it again.
    gone = compare(OWNER, [], [*_there(issued)]).delete
    assert [key.kind for key in gone if key.name == "small-l1-0-tls"] == ["Certificate"]
    # And the operator may have it back.
    own = one(DESIRED, "Secret", "small-l1-0-tls")
    annotations = {**stamped(secret)["metadata"]["annotations"], names.ISSUED: "small-l1-0-tls"}
    held = {**secret, "metadata": {**secret["metadata"], "annotations": annotations}, "data": {"a": "YQ=="}}
    assert compare(OWNER, [own], [held]).apply == (stamped(own),)


@given(st.data())
def test_what_differs_is_applied_and_what_is_no_longer_desired_deleted(data: st.DataObject) -> None:
    kept = [each for each in DESIRED if each["kind"] != "PersistentVolumeClaim"]
    wanted = data.draw(st.lists(st.sampled_from(kept), unique_by=Key.of))
    before = data.draw(st.lists(st.sampled_from(kept), unique_by=Key.of))
    changed = data.draw(st.lists(st.sampled_from(kept), unique_by=Key.of))
    there = _there(before)
    keys = {Key.of(each) for each in changed}
    desired = [
        {**each, "data": {"more": "yes"}} if Key.of(each) in keys else deepcopy(each) for each in wanted
    ]
    actions = compare(OWNER, desired, there)
    held, asked = {Key.of(each) for each in before}, {Key.of(each) for each in wanted}
    assert {Key.of(each) for each in actions.apply} == (asked - held) | (asked & held & keys)
    assert set(actions.delete) == held - asked
    # Applied and deleted, the same again has nothing to do.
    after = [each for each in there if Key.of(each) in asked - {Key.of(done) for done in actions.apply}]
    assert compare(OWNER, desired, [*after, *_there(actions.apply)]) == Actions()


def test_workloads_are_deleted_before_what_they_need() -> None:
    actions = compare(OWNER, [], _there(DESIRED))
    ranks = [ORDER.index(key.kind) for key in actions.delete]
    assert ranks == sorted(ranks, reverse=True)


def test_a_volume_is_never_deleted() -> None:
    """Not even one that goes with the topology: while that lives another claim may have been named by
    mistake, or its copy not be good."""
    kept = one(DESIRED, "PersistentVolumeClaim", "small-root")
    actions = compare(OWNER, [], _there(DESIRED))
    assert Key.of(kept) not in actions.delete
    assert len(actions.delete) == len(DESIRED) - 1
    owned = rendered(small(spec__root__storage={"deletionPolicy": "Delete"}), [])
    assert Key.of(kept) not in compare(OWNER, [], _there(owned)).delete


def test_what_belongs_to_others_is_neither_deleted_nor_overwritten() -> None:
    (service,) = [each for each in DESIRED if Key.of(each) == Key("", "Service", "small-ingest")]
    key = Key.of(service)

    def judged(**metadata: Any) -> tuple[list[Key], tuple[Key, ...], list[str]]:
        there = {**service, "metadata": {"name": "small-ingest", **metadata}}
        actions = compare(OWNER, [service], [there])
        gone = compare(OWNER, [], [there])
        assert not gone.apply
        applied = [Key.of(each) for each in actions.apply]
        return applied, gone.delete, [str(each) for each in actions.conflicts]

    labels = names.labels("small")
    other = {**OWNER.reference, "uid": "another", "name": "other"}
    alone = "Service small-ingest was not made by this topology"
    theirs = "Service small-ingest belongs to the AggregationTopology other"
    assert judged() == ([], (), [alone])
    assert judged(labels=labels) == ([], (), [alone])
    assert judged(labels=labels, ownerReferences=[other]) == ([], (), [theirs])
    # A topology of the same name that was deleted, and whose objects are not gone yet.
    assert judged(labels=labels, ownerReferences=[{**OWNER.reference, "uid": "before"}])[2] != []
    assert judged(ownerReferences=[OWNER.reference]) == ([key], (key,), [])


def test_a_volume_that_was_kept_is_taken_up_again() -> None:
    claim = one(DESIRED, "PersistentVolumeClaim", "small-root")

    def conflicts(manifest: Manifest) -> int:
        return len(compare(OWNER, [claim], [manifest]).conflicts)

    assert conflicts(_there([claim])[0]) == 0
    metadata = {"name": "small-root", "labels": {"app": "mine"}}
    assert conflicts({**claim, "metadata": metadata}) == 1
    other = {**claim["metadata"], "ownerReferences": [{**OWNER.reference, "uid": "before"}]}
    assert conflicts({**claim, "metadata": other}) == 1


def test_a_volume_changes_its_policy_by_being_applied() -> None:
    kept = rendered(small(), [])
    given_up = rendered(small(spec__root__storage={"deletionPolicy": "Delete"}), [])
    for before, after in ((kept, given_up), (given_up, kept)):
        actions = compare(OWNER, after, _there(before))
        kinds = {each["kind"] for each in actions.apply}
        # What the root reads at its start changes with the manifest, but not its pod.
        assert kinds == {"PersistentVolumeClaim", "ConfigMap"}
        assert not actions.delete


def test_what_is_going_is_not_deleted_again() -> None:
    (service,) = [each for each in _there(DESIRED) if Key.of(each).name == "small-ingest"]
    service["metadata"]["deletionTimestamp"] = "2030-05-01T12:00:00Z"
    assert compare(OWNER, [], [service]) == Actions()


def test_a_digest_is_of_the_manifest_alone() -> None:
    (service,) = [each for each in DESIRED if Key.of(each).name == "small-ingest"]
    before = deepcopy(service)
    first = stamped(service)
    assert service == before
    assert stamped(first) == first
    assert stamped(dict(reversed(service.items()))) == first
    changed = {**service, "spec": {**service["spec"], "type": "NodePort"}}
    applied = [each["metadata"]["annotations"][names.APPLIED] for each in (first, stamped(changed))]
    assert applied[0] != applied[1]
