"""Packages as a user installs them, into a directory of a test's own."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from headwater.aggregates import UserDefined

EXAMPLES = Path(__file__).parents[1] / "examples"


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


@cache
def example_function(name: str) -> UserDefined | None:
    """What the example package offers under a name, without it being installed."""
    path = EXAMPLES / "functions" / "headwater_example_functions" / "__init__.py"
    found = importlib.util.spec_from_file_location("headwater_example_functions", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return {"rms": module.RMS}.get(name)
