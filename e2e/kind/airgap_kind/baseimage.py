"""A small image with Debian and Python, for images of one's own where none can be pulled."""

from airgap_kind import rootfs
from airgap_kind.cache import architecture
from airgap_kind.engine import Engine
from airgap_kind.nodeimage import Sources

LABEL = "airgap-kind.root"


def ensure(name: str, engine: Engine, sources: Sources) -> None:
    """Has the engine hold the image under this name."""
    key = rootfs.PYTHON.key(sources.versions.debian, architecture())
    shown = engine.run("image", "inspect", "--format", f'{{{{index .Config.Labels "{LABEL}"}}}}', name)
    if shown.returncode == 0 and shown.stdout.strip() == key:
        return
    root = sources.root(rootfs.PYTHON)
    with sources.progress.step(f"importing {name}"):
        engine.output(
            *("import", "--change", f"LABEL {LABEL}={key}", "--change", 'CMD ["python3"]'),
            *(root, name),
            what=f"the image {name} could not be imported",
        )
