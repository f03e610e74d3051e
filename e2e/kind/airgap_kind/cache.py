"""Where everything is kept: one folder in the user's cache directory, shared by all checkouts."""

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from airgap_kind.errors import Failure
from airgap_kind.progress import Progress

VARIABLE = "AIRGAP_KIND_CACHE"
ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def architecture() -> str:
    """This machine, in the words of Go and of Debian."""
    machine = platform.machine().lower()
    if machine not in ARCHITECTURES:
        raise Failure(f"no node image can be built for {machine}", "use an x86-64 or arm64 machine")
    return ARCHITECTURES[machine]


def digest(*parts: str) -> str:
    """A short key of what something was made from: other parts, another key."""
    joined = hashlib.sha256()
    for part in parts:
        joined.update(f"{len(part.encode())}:".encode() + part.encode())
    return joined.hexdigest()[:12]


def default_root(env: Mapping[str, str]) -> Path:
    if env.get(VARIABLE):
        return Path(env[VARIABLE]).absolute()
    # A relative XDG_CACHE_HOME is to be ignored, says the specification.
    home = env.get("XDG_CACHE_HOME", "")
    base = Path(home) if home.startswith("/") else Path(env.get("HOME") or Path.home()) / ".cache"
    return base / "airgap-kind"


@dataclass(frozen=True)
class Cache:
    root: Path

    @property
    def builds(self) -> Path:
        return self.root / "builds"

    @property
    def images(self) -> Path:
        return self.root / "images"

    @property
    def engine(self) -> Path:
        return self.root / "engine"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def scratch(self) -> Path:
        return self.root / "scratch"

    def cluster(self, name: str) -> Path:
        return self.root / "clusters" / name

    @contextlib.contextmanager
    def lock(self, progress: Progress) -> Iterator[None]:
        """Keeps two commands apart. The kernel lets go of it however the holder ends."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / "lock").open("a+", encoding="utf-8") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                held.seek(0)
                progress.say(f"waiting for another run (process {held.read().strip() or 'unknown'})")
                fcntl.flock(held, fcntl.LOCK_EX)
            held.truncate(0)
            held.write(str(os.getpid()))
            held.flush()
            # What a killed run left half made.
            shutil.rmtree(self.scratch, ignore_errors=True)
            yield

    @contextlib.contextmanager
    def making(self, target: Path) -> Iterator[Path]:
        """A folder to make `target` in, under the name `target.name`; it gets its place only when whole."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.scratch, ignore_cleanup_errors=True) as folder:
            made = Path(folder) / target.name
            yield made
            if target.is_dir():
                shutil.rmtree(target)
            os.replace(made, target)


def write_whole(path: Path, text: str, mode: int = 0o644) -> None:
    """Writes a small file so that nobody sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.chmod(mode)
    os.replace(part, path)
