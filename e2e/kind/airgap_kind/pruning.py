"""What earlier versions left in the cache and in the engine."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from airgap_kind import gobuilds, nodeimage, rootfs
from airgap_kind.cache import architecture
from airgap_kind.engine import Engine
from airgap_kind.nodeimage import Sources


def stale(entries: Iterable[Path], current: Iterable[str]) -> list[Path]:
    """Those whose name is not a current key, with whatever ending."""
    keys = tuple(current)
    return sorted(entry for entry in entries if not any(entry.name in (key, f"{key}.tar") for key in keys))


def prune(engine: Engine | None, sources: Sources) -> None:
    versions, cache, arch = sources.versions, sources.cache, architecture()
    builds = [*nodeimage.builds(versions).values(), gobuilds.kind(versions), gobuilds.helm(versions)]
    built = [build.key(arch) for build in builds]
    # Go, and the kubectl of a stock image, are known by their versions alone.
    built += [f"go-{versions.go}", f"kubectl-{versions.stock_image.split(':')[1].split('@')[0]}"]
    roots = (rootfs.NODE, rootfs.NETWORK, rootfs.PYTHON)
    kept = [root.key(versions.debian, arch) for root in roots] + [nodeimage.kept(sources).name]
    for folder, current in ((cache.builds, built), (cache.images, kept)):
        for entry in stale(folder.iterdir() if folder.exists() else (), current):
            sources.progress.say(f"removing {entry.name}")
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    if engine and engine.private:
        name = nodeimage.name(versions)
        shown = engine.run("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", name.split(":")[0])
        for image in shown.stdout.split():
            # One that a cluster runs on stays.
            if image != name and engine.run("image", "rm", image).returncode == 0:
                sources.progress.say(f"removing the image {image}")
