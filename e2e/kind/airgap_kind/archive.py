"""Image archives, written without an engine: what `docker load` and `ctr images import` read."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHUNK = 1 << 20
# Always the same, so that the same files give the same image.
EPOCH = "1970-01-01T00:00:00Z"


@dataclass(frozen=True)
class Image:
    """Names, layers from the lowest up, and how it is run."""

    names: tuple[str, ...]
    layers: tuple[Path, ...]
    config: Mapping[str, Any] = field(default_factory=dict)


def write(target: Path, images: Sequence[Image], arch: str, *, compress: bool = False) -> None:
    digests: dict[Path, str] = {}
    for layer in (layer for image in images for layer in image.layers):
        if layer not in digests:
            digests[layer] = file_digest(layer)
    with ExitStack() as stack:
        raw = stack.enter_context(target.open("wb"))
        # The lowest level: Go programs shrink to half by it in a few seconds.
        out = stack.enter_context(gzip.GzipFile("", "wb", 1, raw, mtime=0)) if compress else raw
        archive = stack.enter_context(tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT))
        written: set[str] = set()
        for layer, name in digests.items():
            if name not in written:
                written.add(name)
                info = tarfile.TarInfo(f"{name}.tar")
                info.size = layer.stat().st_size
                with layer.open("rb") as content:
                    archive.addfile(info, content)
        manifest = []
        for image in images:
            text = json.dumps(configuration(image, arch, [digests[layer] for layer in image.layers]))
            config_name = f"{hashlib.sha256(text.encode()).hexdigest()}.json"
            if config_name not in written:
                written.add(config_name)
                add_text(archive, config_name, text)
            manifest.append(
                {
                    "Config": config_name,
                    "RepoTags": list(image.names),
                    "Layers": [f"{digests[layer]}.tar" for layer in image.layers],
                }
            )
        add_text(archive, "manifest.json", json.dumps(manifest))


def configuration(image: Image, arch: str, digests: Sequence[str]) -> dict[str, Any]:
    return {
        "architecture": arch,
        "os": "linux",
        "created": EPOCH,
        "config": dict(image.config),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{name}" for name in digests]},
        "history": [{"created": EPOCH} for _ in digests],
    }


def write_layer(target: Path, files: Mapping[str, Path]) -> None:
    """A layer that holds programs, each at the absolute path given."""
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as layer:
        for place, source in sorted(files.items()):
            info = tarfile.TarInfo(place.lstrip("/"))
            info.size = source.stat().st_size
            info.mode = 0o755
            with source.open("rb") as content:
                layer.addfile(info, content)


def add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(text.encode())
    archive.addfile(info, io.BytesIO(text.encode()))


def file_digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as content:
        while chunk := content.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
