"""The default storage class: what kind applies, and what is run on a node for a volume."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import yaml

from airgap_kind import nodeimage, storage

IMAGE = "some/provisioner:1"


def objects() -> dict[str, dict[str, Any]]:
    """By kind; the manifest has one of each."""
    read = list(yaml.safe_load_all(storage.manifest(IMAGE)))
    by_kind = {one["kind"]: one for one in read}
    assert len(by_kind) == len(read)
    return by_kind


def test_the_class_is_the_default_and_waits_for_a_pod() -> None:
    found = objects()["StorageClass"]
    assert found["metadata"]["name"] == "standard"
    assert found["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] == "true"
    assert found["provisioner"] == "rancher.io/local-path"
    assert (found["volumeBindingMode"], found["reclaimPolicy"]) == ("WaitForFirstConsumer", "Delete")


def test_no_image_is_asked_for_that_the_nodes_do_not_have() -> None:
    assert "IMAGE" not in storage.manifest(IMAGE)
    by_kind = objects()
    pod = by_kind["Deployment"]["spec"]["template"]["spec"]
    helper = yaml.safe_load(by_kind["ConfigMap"]["data"]["helperPod.yaml"])["spec"]
    for container in (*pod["containers"], *helper["containers"]):
        assert container["image"] == IMAGE
        assert container["imagePullPolicy"] == "IfNotPresent"
    arguments = pod["containers"][0]["args"]
    assert arguments[arguments.index("--helper-image") + 1] == IMAGE


def test_the_provisioner_is_where_no_worker_takes_it_along() -> None:
    pod = objects()["Deployment"]["spec"]["template"]["spec"]
    (role,) = pod["nodeSelector"]
    assert [each["key"] for each in pod["tolerations"]] == [role]


def test_all_of_it_is_in_the_namespace_that_health_looks_at() -> None:
    by_kind = objects()
    assert by_kind["Namespace"]["metadata"]["name"] == storage.NAMESPACE
    spaces = {kind: one["metadata"].get("namespace") for kind, one in by_kind.items()}
    inside = {kind for kind, space in spaces.items() if space == storage.NAMESPACE}
    assert inside == {"ServiceAccount", "Role", "RoleBinding", "ConfigMap", "Deployment"}


def test_rights_are_those_of_the_account_that_the_provisioner_runs_as() -> None:
    by_kind = objects()
    account = by_kind["Deployment"]["spec"]["template"]["spec"]["serviceAccountName"]
    assert by_kind["ServiceAccount"]["metadata"]["name"] == account
    for kind in ("Role", "ClusterRole"):
        binding = by_kind[f"{kind}Binding"]
        assert binding["roleRef"]["name"] == by_kind[kind]["metadata"]["name"]
        assert [(one["name"], one["namespace"]) for one in binding["subjects"]] == [
            (account, storage.NAMESPACE)
        ]


def test_volumes_are_below_one_folder_of_each_node() -> None:
    (paths,) = json.loads(objects()["ConfigMap"]["data"]["config.json"])["nodePathMap"]
    assert paths == {"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": ["/var/local-path-provisioner"]}


def script(name: str, volume: Path) -> None:
    """As the provisioner has it run, under a strict umask."""
    subprocess.run(
        ["/bin/sh", "-c", 'umask 077; exec /bin/sh -c "$0"', objects()["ConfigMap"]["data"][name]],
        env={**os.environ, "VOL_DIR": str(volume)},
        check=True,
    )


def test_anyone_may_write_a_volume_and_nothing_of_it_stays(tmp_path: Path) -> None:
    volume = tmp_path / "pvc-1_space_a claim"
    script("setup", volume)
    assert stat.S_IMODE(volume.stat().st_mode) == 0o777
    kept = volume / "state" / "word"
    kept.parent.mkdir()
    kept.write_text("one")
    # Asked again, for want of an answer: what is there stays.
    script("setup", volume)
    assert kept.read_text() == "one"
    script("teardown", volume)
    assert list(tmp_path.iterdir()) == []
    script("teardown", volume)


def test_its_image_has_a_shell_below_the_program(tmp_path: Path) -> None:
    program, root = tmp_path / "program", tmp_path / "root.tar"
    program.write_bytes(b"binary")
    own = nodeimage.own_images("tag", {"local-path-provisioner": program}, root, tmp_path)
    assert own.storage.names == ("airgap-kind/local-path-provisioner:tag",)
    assert own.network.names == ("airgap-kind/podnet:tag",)
    for image in (own.network, own.storage):
        assert image.layers[0] == root
        assert image.layers[1].exists()
    assert own.storage.config["Entrypoint"] == [storage.PROGRAM]
