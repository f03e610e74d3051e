"""The node image: kind's own, or one put together from Go modules and Debian's packages.

What is built follows kind's images/base/Dockerfile, whose files are read from kind's Go module. No engine has
a part in it: the result is an archive, kept in the cache, which any engine loads.
"""

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from airgap_kind import archive, gobuilds, network, packages, process, rootfs, storage
from airgap_kind.archive import Image
from airgap_kind.cache import Cache, architecture, digest
from airgap_kind.engine import Engine
from airgap_kind.errors import Failure
from airgap_kind.progress import Progress
from airgap_kind.toolchain import Toolchain
from airgap_kind.versions import Versions

NODE_PROGRAMS = ("kubeadm", "kubelet", "kubectl")
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Run in the new root, as in kind's Dockerfile; but containerd and the CNI plugins are where Debian has them.
SETTLE = r"""
find /lib/systemd/system/sysinit.target.wants/ -name systemd-tmpfiles-setup.service -delete
rm -f /lib/systemd/system/multi-user.target.wants/* /etc/systemd/system/*.wants/* \
    /lib/systemd/system/local-fs.target.wants/* /lib/systemd/system/basic.target.wants/* \
    /lib/systemd/system/sockets.target.wants/*udev* /lib/systemd/system/sockets.target.wants/*initctl*
echo ReadKMsg=no >> /etc/systemd/journald.conf
ln -sf /usr/lib/systemd/systemd /sbin/init
ln -sf /usr/bin/containerd /usr/local/bin/containerd
mkdir -p /opt/cni /etc/cni/net.d /etc/kubernetes/manifests /kind/manifests
ln -sfn /usr/lib/cni /opt/cni/bin
systemctl enable kubelet.service containerd.service undo-mount-hacks.service
systemctl mask systemd-binfmt.service
ctr oci spec |
    jq '.hooks.createContainer += [{"path": "/kind/bin/mount-product-files.sh"}] | del(.process.rlimits)' \
    > /etc/containerd/cri-base.json
"""

# Fills containerd's store without unpacking; each node unpacks what it runs.
IMPORT = r"""
printf 'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n' > /tmp/config.toml
containerd --config /tmp/config.toml > /tmp/log 2>&1 &
for _ in $(seq 100); do ctr version > /dev/null 2>&1 && break; sleep 0.1; done
ctr --namespace k8s.io images import --no-unpack /mnt/images.tar >&2 || { cat /tmp/log >&2; exit 1; }
ctr --namespace k8s.io images list --quiet
kill $!
wait $! || true
"""

INSIDE = r"""
set -eu
mount -t proc proc "$1/proc"
mount -t tmpfs tmpfs "$1/run"
mount -t tmpfs tmpfs "$1/tmp"
mount --bind "$2" "$1/mnt"
exec chroot "$1" /bin/bash -euo pipefail -c "$3"
"""


@dataclass(frozen=True)
class Sources:
    """What an image of our own is made of."""

    cache: Cache
    versions: Versions
    progress: Progress
    toolchain: Callable[[], Toolchain]

    def built(self, build: gobuilds.GoBuild) -> Path:
        return gobuilds.built(build, self.cache, self.toolchain, self.progress)

    def root(self, wanted: rootfs.Rootfs) -> Path:
        return rootfs.made(wanted, self.cache, self.versions, self.progress)


def ensure(engine: Engine, sources: Sources) -> str:
    """The name of a node image that the engine has."""
    stock = sources.versions.stock_image
    own = name(sources.versions)
    # A private engine is for want of another; then no registry is asked for what is at hand.
    if engine.private and (engine.has_image(own) or kept(sources).exists()):
        reason = ""
    else:
        reason = pull(engine, stock, sources.progress)
        if not reason:
            return stock
    if not engine.has_image(own):
        if reason:
            sources.progress.say(f"no stock node image, so one of our own: {reason}")
        ready = made(sources)
        with sources.progress.step(f"loading the node image {own}", "about 15 s"):
            engine.load(ready)
    return own


def pull(engine: Engine, image: str, progress: Progress) -> str:
    """Why the image could not be had; nothing if the engine has it."""
    if engine.has_image(image):
        return ""
    with progress.step(f"looking for the stock node image {image}"):
        return engine.pull(image)


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no answer"


def recipe(versions: Versions) -> str:
    """All that decides what is in the image."""
    arch = architecture()
    parts = [SETTLE, IMPORT, network.TEMPLATE, network.FORGET, network.program().read_text(encoding="utf-8")]
    parts += [storage.TEMPLATE, storage.PROGRAM]
    parts += [build.key(arch) for build in builds(versions).values()]
    parts += [root.key(versions.debian, arch) for root in (rootfs.NODE, rootfs.NETWORK)]
    return digest(versions.kind, *parts)


def name(versions: Versions) -> str:
    return f"airgap-kind/node:{versions.kubernetes}-{recipe(versions)}"


def kept(sources: Sources) -> Path:
    versions = sources.versions
    return sources.cache.images / f"node-{versions.kubernetes}-{architecture()}-{recipe(versions)}.tar.gz"


def builds(versions: Versions) -> dict[str, gobuilds.GoBuild]:
    made_of = (
        gobuilds.kubernetes(versions),
        gobuilds.etcd(versions),
        gobuilds.coredns(versions),
        gobuilds.local_path(versions),
        gobuilds.pause(),
    )
    return {build.name: build for build in made_of}


def made(sources: Sources) -> Path:
    """The archive of our own image, from the cache or made now."""
    target = kept(sources)
    if target.exists():
        return target
    if not packages.is_root():
        raise Failure(
            "a node image can be put together by root alone",
            f"run this as root, or load {sources.versions.stock_image} from elsewhere (docker load)",
        )
    programs = {
        product: folder / product
        for build in builds(sources.versions).values()
        for folder in [sources.built(build)]
        for product in build.products
    }
    node_root = sources.root(rootfs.NODE)
    network_root = sources.root(rootfs.NETWORK)
    files = (
        sources.toolchain().module("sigs.k8s.io/kind", sources.versions.kind) / "images" / "base" / "files"
    )
    with (
        sources.progress.step(f"putting the node image {name(sources.versions)} together", "about 1 min"),
        sources.cache.making(target) as part,
    ):
        work = part.parent
        root, mnt = work / "root", work / "mnt"
        root.mkdir()
        mnt.mkdir()
        tar(
            "--extract",
            "--file",
            node_root,
            "--directory",
            root,
            what="the root file system was not unpacked",
        )
        copy_files(files, root)
        for program in NODE_PROGRAMS:
            shutil.copy(programs[program], root / "usr" / "bin" / program)
        inside(root, mnt, SETTLE, "the node's services could not be set up")
        own = own_images(recipe(sources.versions), programs, network_root, work)
        for place, text in (
            (network.MANIFEST, network.manifest(own.network.names[0])),
            (storage.MANIFEST, storage.manifest(own.storage.names[0])),
        ):
            (root / place.lstrip("/")).write_text(text, encoding="utf-8")
        forgetting = root / network.FORGETTING.lstrip("/")
        forgetting.parent.mkdir(parents=True)
        forgetting.write_text(network.FORGET, encoding="utf-8")
        (root / "kind" / "version").write_text(sources.versions.kubernetes, encoding="utf-8")
        sandbox = adapt_containerd(root / "etc" / "containerd" / "config.toml")
        images = component_images(
            kubeadm_images(programs["kubeadm"], sources.versions), sandbox, programs, network_root, work
        )
        images += [own.network, own.storage]
        archive.write(mnt / "images.tar", images, architecture())
        said = inside(root, mnt, IMPORT, "the images of Kubernetes could not be put into the node image")
        check_imported(images, said.split())
        layer = work / "layer.tar"
        tar(
            *("--create", "--file", layer, "--directory", root, "--numeric-owner", "--xattrs", "."),
            what="the node image could not be packed",
        )
        config = {
            "Env": [PATH, "container=docker"],
            "Entrypoint": ["/usr/local/bin/entrypoint", "/sbin/init"],
            "StopSignal": "SIGRTMIN+3",
        }
        archive.write(
            part, [Image((name(sources.versions),), (layer,), config)], architecture(), compress=True
        )
    return target


def copy_files(files: Path, root: Path) -> None:
    """Scripts are for all to run, the rest for all to read, whatever the module cache made of it."""
    for source in sorted(files.rglob("*")):
        relative = source.relative_to(files)
        if relative.parts[0] == "LICENSES" or source.is_dir():
            continue
        target = root / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(0o755 if target.parent.name == "bin" else 0o644)


def adapt_containerd(path: Path) -> str:
    """Fits kind's configuration to Debian's containerd; gives the name of the sandbox image in it."""
    text, sandbox = adapted(path.read_text(encoding="utf-8"))
    path.write_text(text, encoding="utf-8")
    return sandbox


def adapted(config: str) -> tuple[str, str]:
    sandbox = re.search(r'^\s*sandbox_image\s*=\s*"([^"]+)"', config, re.MULTILINE)
    if not sandbox:
        raise Failure("kind's containerd configuration names no sandbox image", "pin another release of kind")
    # There is no fuse-overlayfs here, and without CAP_SYS_RESOURCE no score below that of the node.
    config = re.sub(r"^\[proxy_plugins.*?(?=^\[plugins)", "", config, flags=re.MULTILINE | re.DOTALL)
    config = config.replace("restrict_oom_score_adj = false", "restrict_oom_score_adj = true")
    return config, sandbox[1]


def kubeadm_images(kubeadm: Path, versions: Versions) -> list[str]:
    listed = process.output(
        [kubeadm, "config", "images", "list", f"--kubernetes-version={versions.kubernetes}"],
        "kubeadm did not list its images",
    )
    return listed.split()


def component_images(
    names: list[str], sandbox: str, programs: Mapping[str, Path], network_root: Path, work: Path
) -> list[Image]:
    """An image for each name that kubeadm prints, with the program of that name in it."""
    images = []
    for full in names:
        program = full.rsplit("/", 1)[1].split(":", 1)[0]
        # kubeadm gives every command but these two, which are the entry points of their images.
        place = f"/{program}" if program in ("coredns", "pause") else f"/usr/local/bin/{program}"
        layer = work / f"{program}.tar"
        archive.write_layer(layer, {place: programs[program]})
        layers = (network_root, layer) if program == "kube-proxy" else (layer,)
        tags = (full, sandbox) if program == "pause" and sandbox != full else (full,)
        images.append(Image(tags, layers, {"Env": [PATH], "Entrypoint": [place]}))
    return images


@dataclass(frozen=True)
class OwnImages:
    """What stands where kind has images of its own."""

    network: Image
    storage: Image


def own_images(tag: str, programs: Mapping[str, Path], network_root: Path, work: Path) -> OwnImages:
    """On the root of kube-proxy, which every node has unpacked: a first volume is there as soon as others."""
    podnet, local_path = work / "podnet.tar", work / "local-path-provisioner.tar"
    archive.write_layer(podnet, {network.PROGRAM: network.program()})
    archive.write_layer(local_path, {storage.PROGRAM: programs["local-path-provisioner"]})
    return OwnImages(
        network=Image(
            (f"airgap-kind/podnet:{tag}",),
            (network_root, podnet),
            {"Env": [PATH], "Entrypoint": ["/usr/bin/python3", "-IS", network.PROGRAM]},
        ),
        storage=Image(
            (f"airgap-kind/local-path-provisioner:{tag}",),
            (network_root, local_path),
            {"Env": [PATH], "Entrypoint": [storage.PROGRAM]},
        ),
    )


def check_imported(images: list[Image], found: list[str]) -> None:
    lacking = [n for image in images for n in image.names if not any(one.endswith(n) for one in found)]
    if lacking:
        raise Failure(f"the node image lacks {', '.join(lacking)}", "run this again", "\n".join(found))


def inside(root: Path, mnt: Path, script: str, what: str) -> str:
    """What a script prints that is run in another root, which sees `mnt` as /mnt."""
    return process.output(
        [*process.CONTAINED, "sh", "-c", INSIDE, "sh", root, mnt, script],
        what,
        env={"PATH": PATH.removeprefix("PATH="), "LC_ALL": "C"},
    )


def tar(*args: str | Path, what: str) -> None:
    process.output(["tar", *args], what)
