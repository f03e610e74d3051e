"""What Go is given to build, and under which name the result is kept."""

from __future__ import annotations

import dataclasses

import pytest

from airgap_kind import gobuilds, nodeimage, rootfs, storage
from airgap_kind.cache import digest
from airgap_kind.toolchain import parse_version
from airgap_kind.versions import VERSIONS

UPSTREAM = """\
module k8s.io/kubernetes

go 1.24.0

godebug default=go1.24

require (
	k8s.io/api v0.0.0
	k8s.io/sample-controller v0.0.0
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/sample-controller => ./staging/src/k8s.io/sample-controller
	k8s.io/client-go => ./staging/src/k8s.io/client-go
	example.org/other => example.org/fork v1.0.0
)
"""


def test_staging_modules_are_taken_as_published() -> None:
    module = gobuilds.kubernetes_module("v1.34.10", UPSTREAM)
    assert "require k8s.io/kubernetes v1.34.10\n" in module
    replaced = "".join(f"\tk8s.io/{name} => k8s.io/{name} v0.34.10\n" for name in ("api", "client-go"))
    assert f"\nreplace (\n{replaced})\n" in module
    assert "\ngo 1.24.0\n" in module
    assert "sample" not in module
    assert "fork" not in module


def test_a_single_line_of_replace_is_read_too() -> None:
    module = gobuilds.kubernetes_module(
        "v1.34.10", "go 1.24.0\nreplace k8s.io/api => ./staging/src/k8s.io/api\n"
    )
    assert "\tk8s.io/api => k8s.io/api v0.34.10\n" in module


def test_kubernetes_knows_its_version() -> None:
    values = gobuilds.kubernetes_values("v1.34.10")
    assert values["k8s.io/component-base/version.gitVersion"] == "v1.34.10"
    assert values["k8s.io/client-go/pkg/version.gitMinor"] == "34"
    flags = gobuilds.kubernetes(VERSIONS).linker_flags
    assert f"-X k8s.io/component-base/version.gitVersion={VERSIONS.kubernetes}" in flags


def test_another_version_or_another_source_is_another_key() -> None:
    build = gobuilds.etcd(VERSIONS)
    keys = {
        build.key("amd64"),
        build.key("arm64"),
        gobuilds.etcd(dataclasses.replace(VERSIONS, etcd="v3.6.1")).key("amd64"),
        dataclasses.replace(build, files={**build.files, "main.go": "package main"}).key("amd64"),
        dataclasses.replace(build, values={"main.x": "1"}).key("amd64"),
    }
    assert len(keys) == 5
    assert gobuilds.etcd(VERSIONS).key("amd64") == build.key("amd64")
    assert build.key("amd64").startswith(f"etcd-{VERSIONS.etcd}-amd64-")


def test_the_node_image_follows_every_part_of_it() -> None:
    names = {nodeimage.name(VERSIONS)}
    for part in ("kind", "kubernetes", "etcd", "coredns", "local_path", "debian"):
        names.add(nodeimage.name(dataclasses.replace(VERSIONS, **{part: "v9.9.9"})))
    assert len(names) == 7
    # Not part of the image.
    assert nodeimage.name(dataclasses.replace(VERSIONS, helm="v9.9.9")) in names


def test_another_storage_manifest_is_another_image_of_the_same_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, programs = nodeimage.name(VERSIONS), nodeimage.builds(VERSIONS)
    monkeypatch.setattr(storage, "TEMPLATE", storage.TEMPLATE + "# another\n")
    assert nodeimage.name(VERSIONS) != name
    again = nodeimage.builds(dataclasses.replace(VERSIONS, local_path="v9.9.9"))
    changed = [one for one in programs if programs[one].key("amd64") != again[one].key("amd64")]
    assert changed == ["local-path-provisioner"]


def test_a_root_file_system_follows_its_packages() -> None:
    other = rootfs.Rootfs(rootfs.PYTHON.name, (*rootfs.PYTHON.includes, "curl"))
    assert other.key("bookworm", "amd64") != rootfs.PYTHON.key("bookworm", "amd64")


def test_a_digest_tells_where_parts_end() -> None:
    assert digest("ab", "c") != digest("a", "bc")


def test_the_version_of_go_is_read() -> None:
    assert parse_version("go version go1.26.8 linux/amd64") == (1, 26)
    assert parse_version("go version go1.27rc1 linux/amd64") == (1, 27)
    assert parse_version("command not found") is None
