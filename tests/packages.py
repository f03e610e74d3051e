"""Packages as a user installs them, into a directory of a test's own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path


def install(package: Path, directory: Path) -> None:
    """Build a package and install it, without an index: what it needs to be built is here already."""
    copy = directory.parent / f"{directory.name}-source"
    shutil.copytree(package, copy)
    # By uv, which is among the dependencies: an environment that it has made has no pip.
    command = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "install",
        "--quiet",
        "--offline",
        "--no-deps",
        "--no-index",
    ]
    command += ["--no-build-isolation", "--python", sys.executable, "--target", str(directory), str(copy)]
    subprocess.run(command, check=True)
