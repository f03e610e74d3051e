"""Programs that come as packages of the system."""

import os
import shutil
from collections.abc import Mapping

from airgap_kind import process
from airgap_kind.errors import Failure
from airgap_kind.progress import Progress

# Daemons and tools for administrators are often not on a user's PATH.
PLACES = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"


def find(command: str) -> str | None:
    """Where a command is; or a file, by its absolute path."""
    if command.startswith("/"):
        return command if os.path.exists(command) else None
    return shutil.which(command, path=PLACES)


def is_root() -> bool:
    return os.geteuid() == 0


def ensure(commands: Mapping[str, str], purpose: str, progress: Progress) -> None:
    """Has every command there, by apt-get where one is missing. Maps a command to the package that has it."""
    missing = sorted({package for command, package in commands.items() if not find(command)})
    if not missing:
        return
    names = " ".join(missing)
    if not find("apt-get"):
        raise Failure(f"{purpose} needs {names}, and there is no apt-get here", f"install {names}")
    if not is_root():
        raise Failure(f"{purpose} needs {names}", f"sudo apt-get install {names}")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    with progress.step(f"installing {names} for {purpose}"):
        # Another apt-get may be at it, as on a machine that has just started.
        install = ["apt-get", "install", "-y", "-qq", "-o", "DPkg::Lock::Timeout=300"]
        install += ["--no-install-recommends", *missing]
        if process.run(install, env=quiet, lasting=True).returncode == 0:
            return
        process.run(["apt-get", "update", "-qq"], env=quiet, lasting=True)
        process.output(
            install,
            f"apt-get could not install {names}",
            env=quiet,
            lasting=True,
            remedy=f"make a mirror of the packages reachable, then apt-get update && apt-get install {names}",
        )
