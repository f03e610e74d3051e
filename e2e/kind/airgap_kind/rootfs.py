"""Root file systems of Debian, unpacked from its packages by mmdebstrap and kept as archives."""

import os
from dataclasses import dataclass
from pathlib import Path

from airgap_kind import packages, process
from airgap_kind.cache import Cache, architecture, digest
from airgap_kind.errors import Failure
from airgap_kind.progress import Progress
from airgap_kind.versions import Versions

MIRROR = "AIRGAP_KIND_MIRROR"
# Ubuntu has mmdebstrap without it.
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# What no container reads. Not the manual pages: some packages want their folders.
UNREAD = ("usr/share/locale/*", "usr/share/doc/*", "usr/share/info/*", "var/cache/apt/*.bin")


@dataclass(frozen=True)
class Rootfs:
    name: str
    includes: tuple[str, ...]
    removes: tuple[str, ...] = UNREAD

    def key(self, suite: str, arch: str) -> str:
        return f"{self.name}-{suite}-{arch}-{digest(' '.join(self.includes), self.trim)}"

    @property
    def trim(self) -> str:
        return "rm -rf " + " ".join(f'"$1"/{pattern}' for pattern in self.removes)


# The list of kind's own base image, and what it builds from source: containerd, runc and the CNI plugins.
NODE = Rootfs(
    "node-root",
    (
        "systemd", "dbus", "conntrack", "iptables", "nftables", "iproute2", "ethtool", "util-linux", "mount",
        "kmod", "libseccomp2", "pigz", "e2fsprogs", "bash", "ca-certificates", "curl", "jq", "procps",
        "containerd", "runc", "containernetworking-plugins", "socat",
    ),
)  # fmt: skip
# For kube-proxy and the pod network. Every node unpacks it before it is ready, so most of it is left out.
NETWORK = Rootfs(
    "network-root",
    ("conntrack", "iptables", "iproute2", "kmod", "python3"),
    (
        *UNREAD, "usr/bin/perl*", "usr/lib/*/perl*", "usr/lib/*/libperl*", "usr/lib/*/gconv",
        "usr/share/perl*",
        "usr/share/zoneinfo", "usr/share/man", "usr/share/bash-completion", "usr/lib/python3*/ensurepip",
        "usr/lib/python3*/lib2to3", "usr/lib/python3*/pydoc_data", "usr/lib/python3*/test",
    ),
)  # fmt: skip
# For images of one's own.
PYTHON = Rootfs("python-root", ("ca-certificates", "python3", "tini"))


def made(rootfs: Rootfs, cache: Cache, versions: Versions, progress: Progress) -> Path:
    """The archive of a root file system, from the cache or made now."""
    arch = architecture()
    archive = cache.images / f"{rootfs.key(versions.debian, arch)}.tar"
    if archive.exists():
        return archive
    if not packages.is_root():
        raise Failure("a root file system can be made by root alone", "run this as root")
    needs = {"mmdebstrap": "mmdebstrap", "unshare": "util-linux", KEYRING: "debian-archive-keyring"}
    packages.ensure(needs, "root file systems", progress)
    log = cache.logs / f"{rootfs.name}.log"
    log.unlink(missing_ok=True)
    mirror = [os.environ[MIRROR]] if os.environ.get(MIRROR) else []
    with (
        progress.step(f"unpacking Debian {versions.debian} for {rootfs.name}", "about 45 s"),
        cache.making(archive) as part,
    ):
        process.run_logged(
            [
                *(*process.CONTAINED, "mmdebstrap", "--variant=minbase", f"--architectures={arch}"),
                f"--include={','.join(rootfs.includes)}",
                f"--customize-hook={rootfs.trim}",
                versions.debian,
                part,
                *mirror,
            ],
            f"{rootfs.name} could not be unpacked from Debian's packages",
            log,
            progress,
            env={"TMPDIR": str(part.parent)},
            remedy=f"make a mirror of Debian {versions.debian} reachable, or name one in {MIRROR}",
        )
    return archive
