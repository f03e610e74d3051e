"""What tests start beside a cluster, built where the cache has it not: `python -m e2e.programs`."""

from __future__ import annotations

from e2e import apiserver
from e2e.certmanager import program as certmanager


def main() -> None:
    for name in ("etcd", "kube-apiserver", "kube-controller-manager"):
        apiserver.program(name)
    certmanager.definitions()
    certmanager.built()


if __name__ == "__main__":
    main()
