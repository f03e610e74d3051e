"""kind, kubectl, helm and docker: the programs that go with a cluster, in one folder for a PATH."""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from airgap_kind import gobuilds, process
from airgap_kind.cache import architecture
from airgap_kind.engine import Engine
from airgap_kind.errors import Failure
from airgap_kind.nodeimage import Sources

NAMES = ("kind", "kubectl", "helm")


def parse_version(text: str) -> tuple[int, ...]:
    """(0, 33, 0) of `kind v0.33.0 go1.26.8 linux/amd64`."""
    found = re.search(r"v?(\d+)\.(\d+)\.(\d+)", text)
    return tuple(int(part) for part in found.groups()) if found else ()


@dataclass(frozen=True)
class Tools:
    sources: Sources

    @property
    def folder(self) -> Path:
        return self.sources.cache.root / "bin"

    def kind(self) -> Path:
        """The kind on the PATH if it is not older than ours, else ours."""
        wanted = self.sources.versions.kind
        there = self._on_path("kind")
        if there and parse_version(process.run([there, "version"]).stdout) >= parse_version(wanted):
            return self._linked("kind", there)
        return self._linked("kind", self.sources.built(gobuilds.kind(self.sources.versions)) / "kind")

    def kubectl(self, engine: Engine | None = None) -> Path:
        """Built beside the node image, or taken out of the stock one, or what is on the PATH."""
        build = gobuilds.kubernetes(self.sources.versions)
        made = self.sources.cache.builds / build.key(architecture()) / "kubectl"
        if made.exists():
            return self._linked("kubectl", made)
        stock = self.sources.versions.stock_image
        if engine and engine.has_image(stock):
            there = self._on_path("kubectl")
            return self._linked("kubectl", there or self._copied(engine, stock))
        return self._linked("kubectl", self.sources.built(build) / "kubectl")

    def helm(self) -> Path:
        """The helm on the PATH if it is a Helm 3, else ours."""
        there = self._on_path("helm")
        if there and parse_version(process.run([there, "version", "--short"]).stdout)[:1] == (3,):
            return self._linked("helm", there)
        return self._linked("helm", self.sources.built(gobuilds.helm(self.sources.versions)) / "helm")

    def docker(self, engine: Engine) -> None:
        """A private engine's own client goes before another on the PATH."""
        if engine.private:
            self._linked("docker", Path(engine.docker))
        else:
            (self.folder / "docker").unlink(missing_ok=True)

    def path(self, before: str) -> str:
        """A PATH that starts with our folder, and has it once."""
        rest = [part for part in before.split(os.pathsep) if part and Path(part) != self.folder]
        return os.pathsep.join([str(self.folder), *rest])

    def env(self, engine: Engine) -> dict[str, str]:
        return {**engine.env, "PATH": self.path(os.environ.get("PATH", os.defpath))}

    def _on_path(self, name: str) -> Path | None:
        rest = self.path(os.environ.get("PATH", os.defpath)).split(os.pathsep)[1:]
        found = shutil.which(name, path=os.pathsep.join(rest))
        return Path(found) if found else None

    def _copied(self, engine: Engine, image: str) -> Path:
        target = self.sources.cache.builds / f"kubectl-{image.split(':')[1].split('@')[0]}" / "kubectl"
        if target.exists():
            return target
        if os.uname().sysname != "Linux":
            raise Failure("there is no kubectl here", "install kubectl")
        what = "kubectl could not be taken out of the node image"
        container = engine.output("create", image, what=what).strip()
        try:
            with self.sources.cache.making(target) as part:
                engine.output("cp", f"{container}:/usr/bin/kubectl", part, what=what)
        finally:
            engine.run("rm", "--force", container)
        return target

    def _linked(self, name: str, target: Path) -> Path:
        link = self.folder / name
        if not (link.is_symlink() and link.readlink() == target):
            self.folder.mkdir(parents=True, exist_ok=True)
            part = link.with_name(f".{name}.{os.getpid()}")
            part.unlink(missing_ok=True)
            part.symlink_to(target)
            part.replace(link)
        return link
