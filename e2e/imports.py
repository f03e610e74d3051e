"""What code in an image imports, at any place and time, tried there.

    python3 imports.py

It runs in a pod. It prints the release and, as JSON, which names of others cannot be had; whoever imports
something only when it is asked for would find that out from its users.
"""

from __future__ import annotations

import ast
import importlib
import json
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path


def named(site: Path) -> Iterator[tuple[str, str]]:
    """The modules that packages of ours name, also late ones, and what is taken of each."""
    for path in sorted(site.glob("headwater*/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from ((each.name, "") for each in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                yield from ((node.module, each.name) for each in node.names)


def missing(site: Path) -> list[str]:
    found = set()
    for name, part in sorted({*named(site)}):
        try:
            module = importlib.import_module(name)
            if part and not hasattr(module, part):
                importlib.import_module(f"{name}.{part}")
        except ModuleNotFoundError as error:
            found.add(error.name or name)
    return sorted(found)


if __name__ == "__main__":
    places = [path for each in sys.path if (path := Path(each)).joinpath("headwater").is_dir()]
    print(json.dumps({"release": version("headwater"), "missing": missing(places[0])}))
