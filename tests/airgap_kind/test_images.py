"""Image archives, and the containerd configuration of a node."""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from airgap_kind import archive
from airgap_kind.archive import Image
from airgap_kind.errors import Failure
from airgap_kind.nodeimage import adapted, check_imported, component_images

CONFIG = """\
version = 2

[proxy_plugins]
# for rootless
[proxy_plugins."fuse-overlayfs"]
  type = "snapshot"
  address = "/run/some.sock"

[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"

[plugins."io.containerd.grpc.v1.cri"]
  # use fixed sandbox image
  sandbox_image = "some.where/pause:3.10"
  restrict_oom_score_adj = false
"""


def read(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as opened:
        members = [(member.name, opened.extractfile(member)) for member in opened]
        return {name: content.read() for name, content in members if content}


@pytest.mark.parametrize("compress", [False, True])
def test_an_archive_names_its_parts_by_their_digests(tmp_path: Path, compress: bool) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"binary")
    low, high = tmp_path / "low.tar", tmp_path / "high.tar"
    archive.write_layer(low, {"/usr/local/bin/low": program})
    archive.write_layer(high, {"/high": program})
    images = [Image(("a/b:1", "a/b:2"), (low, high), {"Entrypoint": ["/high"]}), Image(("c:1",), (low,))]
    target = tmp_path / "images.tar"
    archive.write(target, images, "amd64", compress=compress)
    assert target.read_bytes().startswith(b"\x1f\x8b") is compress

    parts = read(target)
    first, second = json.loads(parts["manifest.json"])
    assert first["RepoTags"] == ["a/b:1", "a/b:2"]
    assert second["Layers"] == first["Layers"][:1]
    config = json.loads(parts[first["Config"]])
    assert config["config"] == {"Entrypoint": ["/high"]}
    digests = [hashlib.sha256(parts[layer]).hexdigest() for layer in first["Layers"]]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{digest}" for digest in digests]
    assert hashlib.sha256(parts[first["Config"]]).hexdigest() in first["Config"]


def test_the_same_files_give_the_same_archive(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"binary")
    written = []
    for number in range(2):
        layer, target = tmp_path / "layer.tar", tmp_path / f"{number}.tar.gz"
        archive.write_layer(layer, {"/program": program})
        archive.write(target, [Image(("a:1",), (layer,))], "amd64", compress=True)
        written.append(gzip.decompress(target.read_bytes()))
    assert written[0] == written[1]


def test_a_program_may_be_run(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"binary")
    archive.write_layer(tmp_path / "layer.tar", {"/usr/bin/x": program})
    with tarfile.open(tmp_path / "layer.tar") as layer:
        member = layer.getmember("usr/bin/x")
        assert (member.mode, member.uid, member.gid) == (0o755, 0, 0)


def test_containerd_is_fitted_to_debian() -> None:
    text, sandbox = adapted(CONFIG)
    assert sandbox == "some.where/pause:3.10"
    assert "fuse" not in text
    assert "proxy_plugins" not in text
    assert "restrict_oom_score_adj = true" in text
    assert 'snapshotter = "overlayfs"' in text


def test_a_configuration_without_a_sandbox_image_is_refused() -> None:
    with pytest.raises(Failure, match="sandbox image"):
        adapted("version = 2\n")


def test_every_name_of_kubeadm_gets_its_program(tmp_path: Path) -> None:
    names = ["some.where/kube-proxy:v1", "some.where/coredns/coredns:v2", "some.where/pause:3.10.1"]
    programs = {}
    for program in ("kube-proxy", "coredns", "pause"):
        programs[program] = tmp_path / program
        programs[program].write_bytes(b"binary")
    root = tmp_path / "root.tar"
    proxy, dns, pause = component_images(names, "some.where/pause:3.10", programs, root, tmp_path)
    assert proxy.layers == (root, tmp_path / "kube-proxy.tar")
    assert dns.config["Entrypoint"] == ["/coredns"]
    assert pause.names == ("some.where/pause:3.10.1", "some.where/pause:3.10")


def test_a_missing_image_is_named() -> None:
    images = [Image(("some.where/a:1", "short/b:2"), ())]
    check_imported(images, ["some.where/a:1", "hub/short/b:2"])
    with pytest.raises(Failure, match="short/b:2"):
        check_imported(images, ["some.where/a:1"])
