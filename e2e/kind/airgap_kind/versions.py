"""What is built, pulled and installed. A change of a line here is a new key in the cache."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Versions:
    kind: str = "v0.33.0"
    # Kubernetes 1.34 is the last that takes cgroup v1. The stock image is the one that kind's release notes
    # name; what is built is the newest patch release that the checksum database of Go vouches for.
    stock_image: str = (
        "kindest/node:v1.34.11@sha256:44e222ee2132dab25ff87301682f89eb82c7880ea3a1bf543bfe9708fd08d67d"
    )
    kubernetes: str = "v1.34.10"
    etcd: str = "v3.6.16"
    coredns: str = "v1.14.7"
    # The newest that the module proxy gave together with its checksum. Stock kind has v0.0.34.
    local_path: str = "v0.0.30"
    helm: str = "v3.22.0"
    # For a machine without Go: the release as PyPI has it.
    go: str = "1.26.6"
    debian: str = "bookworm"


VERSIONS = Versions()
