"""Programs built from Go modules, each kept by its version."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from airgap_kind import process
from airgap_kind.cache import Cache, architecture, digest
from airgap_kind.progress import Progress
from airgap_kind.toolchain import Toolchain
from airgap_kind.versions import Versions

KUBERNETES_PROGRAMS = (
    "kubeadm",
    "kubelet",
    "kubectl",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
)
# What the Corefile of kubeadm uses, and a little for those who edit it. All of CoreDNS takes twice as long.
COREDNS_PLUGINS = (
    "bind", "cache", "errors", "forward", "health", "hosts", "kubernetes", "loadbalance", "log", "loop",
    "metrics", "ready", "reload", "rewrite", "template",
)  # fmt: skip


@dataclass(frozen=True)
class GoBuild:
    """Programs of one module: what to write into an empty folder, and which packages to build there."""

    name: str
    version: str
    about: str
    packages: tuple[str, ...]
    files: Mapping[str, str]
    products: tuple[str, ...]
    values: Mapping[str, str] = field(default_factory=dict)
    # Written from what the module itself says, which is known only when it is here.
    module: Callable[[Toolchain], str] | None = None

    @property
    def linker_flags(self) -> str:
        return " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in self.values.items())])

    def key(self, arch: str) -> str:
        """The name in the cache. What is written into go.mod follows from the version."""
        made_of = [*self.packages, self.linker_flags, *(f"{k}\n{v}" for k, v in sorted(self.files.items()))]
        return f"{self.name}-{self.version}-{arch}-{digest(*made_of)}"


def kubernetes(versions: Versions) -> GoBuild:
    version = versions.kubernetes
    return GoBuild(
        name="kubernetes",
        version=version,
        about="about 7 min on 2 cores",
        packages=tuple(f"k8s.io/kubernetes/cmd/{program}" for program in KUBERNETES_PROGRAMS),
        files={},
        products=KUBERNETES_PROGRAMS,
        values=kubernetes_values(version),
        module=lambda go: kubernetes_module(version, go.module_file("k8s.io/kubernetes", version)),
    )


def kubernetes_values(version: str) -> dict[str, str]:
    """Without these kubeadm takes itself for v0.0.0 and refuses, and so do charts."""
    major, minor, _ = version.removeprefix("v").split(".", 2)
    said = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "0" * 40,
        "buildDate": "1970-01-01T00:00:00Z",
    }
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return {f"{package}.{name}": value for package in packages for name, value in said.items()}


def kubernetes_module(version: str, upstream: str) -> str:
    """A go.mod that takes as published the modules that Kubernetes itself replaces by its staging folders."""
    staged = re.findall(r"^\s*(?:replace\s+)?(\S+) => \./staging/\S+$", upstream, re.MULTILINE)
    language = re.search(r"^go (\S+)$", upstream, re.MULTILINE)
    published = "v0." + version.removeprefix("v1.")
    # The samples are not published for each version, and nothing needs them.
    replaced = [module for module in staged if not module.startswith("k8s.io/sample-")]
    return "\n".join(
        [
            "module airgap/kubernetes",
            "",
            f"go {language[1] if language else '1.24.0'}",
            "",
            f"require k8s.io/kubernetes {version}",
            "",
            "replace (",
            *(f"\t{module} => {module} {published}" for module in replaced),
            ")",
            "",
        ]
    )


def requiring(name: str, path: str, version: str) -> str:
    """A go.mod that requires one module."""
    return f"module airgap/{name}\n\ngo 1.24.0\n\nrequire {path} {version}\n"


def etcd(versions: Versions) -> GoBuild:
    main = """\
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
"""
    return GoBuild(
        name="etcd",
        version=versions.etcd,
        about="about 30 s",
        packages=(".",),
        files={"main.go": main, "go.mod": requiring("etcd", "go.etcd.io/etcd/server/v3", versions.etcd)},
        products=("etcd",),
    )


def coredns(versions: Versions) -> GoBuild:
    imports = "\n".join(f'\t_ "github.com/coredns/coredns/plugin/{plugin}"' for plugin in COREDNS_PLUGINS)
    main = f"""\
package main

import (
	"github.com/coredns/coredns/coremain"
{imports}
)

func main() {{ coremain.Run() }}
"""
    return GoBuild(
        name="coredns",
        version=versions.coredns,
        about="about 2 min",
        packages=(".",),
        files={
            "main.go": main,
            "go.mod": requiring("coredns", "github.com/coredns/coredns", versions.coredns),
        },
        products=("coredns",),
    )


def local_path(versions: Versions) -> GoBuild:
    path = "github.com/rancher/local-path-provisioner"
    return GoBuild(
        name="local-path-provisioner",
        version=versions.local_path,
        about="about 2 min",
        packages=(path,),
        files={"go.mod": requiring("local-path-provisioner", path, versions.local_path)},
        products=("local-path-provisioner",),
        values={"main.VERSION": versions.local_path},
    )


def kind(versions: Versions) -> GoBuild:
    return GoBuild(
        name="kind",
        version=versions.kind,
        about="about 10 s",
        packages=("sigs.k8s.io/kind",),
        files={"go.mod": requiring("kind", "sigs.k8s.io/kind", versions.kind)},
        products=("kind",),
    )


def helm(versions: Versions) -> GoBuild:
    major, minor, _ = versions.kubernetes.removeprefix("v").split(".", 2)
    capabilities = {
        f"helm.sh/helm/v3/pkg/{package}.{name}": value
        for package in ("lint/rules", "chartutil")
        for name, value in (("k8sVersionMajor", major), ("k8sVersionMinor", minor))
    }
    return GoBuild(
        name="helm",
        version=versions.helm,
        about="about 2 min",
        packages=("helm.sh/helm/v3/cmd/helm",),
        files={"go.mod": requiring("helm", "helm.sh/helm/v3", versions.helm)},
        products=("helm",),
        values={"helm.sh/helm/v3/internal/version.version": versions.helm, **capabilities},
    )


def pause() -> GoBuild:
    """What keeps a pod's namespaces: it waits, and reaps what the containers leave behind."""
    main = """\
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for got := range signals {
		if got != syscall.SIGCHLD {
			os.Exit(0)
		}
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if pid <= 0 || err != nil {
				break
			}
		}
	}
}
"""
    return GoBuild(
        name="pause",
        version="v1",
        about="about 5 s",
        packages=(".",),
        files={"main.go": main, "go.mod": "module airgap/pause\n\ngo 1.24.0\n"},
        products=("pause",),
    )


def built(build: GoBuild, cache: Cache, toolchain: Callable[[], Toolchain], progress: Progress) -> Path:
    """The folder with the build's programs, from the cache or made now."""
    home = cache.builds / build.key(architecture())
    if home.exists():
        return home
    go = toolchain()
    log = cache.logs / f"{build.name}.log"
    log.unlink(missing_ok=True)
    with progress.step(f"building {build.name} {build.version}", build.about), cache.making(home) as made:
        source = made.with_name("source")
        source.mkdir()
        made.mkdir()
        for name, text in build.files.items():
            (source / name).write_text(text, encoding="utf-8")
        if build.module:
            (source / "go.mod").write_text(build.module(go), encoding="utf-8")
        process.run_logged(
            [go.go, "build", f"-ldflags={build.linker_flags}", "-o", f"{made}/", *build.packages],
            f"{build.name} {build.version} could not be built",
            log,
            progress,
            env=go.env,
            cwd=source,
            remedy="if a module could not be fetched: make a Go module proxy reachable (go env GOPROXY)",
        )
        missing = [product for product in build.products if not (made / product).exists()]
        assert not missing, f"{build.name} lacks {missing}"
    return home
