"""Writes the definitions into the chart: `python -m headwater_operator.crds DIRECTORY [--check]`."""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from headwater_operator.crds import definitions

_HEAD = "# Generated from operator/headwater_operator/crds. Remedy where it is not current: make crds\n"


class _Dumper(yaml.SafeDumper):
    """Writes everything out: an API server knows no anchors."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def written(name: str) -> str:
    return _HEAD + yaml.dump(
        definitions()[name], Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120
    )


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        sys.stderr.write(f"{__doc__}\n")
        return 2
    directory, check = Path(arguments[0]), "--check" in arguments
    known = {f"{name}.yaml" for name in definitions()}
    if check and (more := {path.name for path in directory.glob("*")} - known):
        sys.stderr.write(f"{directory} has {', '.join(sorted(more))}, not one of these. Remedy: remove it\n")
        return 1
    for name in definitions():
        path = directory / f"{name}.yaml"
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(written(name), encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != written(name):
            sys.stderr.write(f"{path} is not current. Remedy: make crds\n")
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
