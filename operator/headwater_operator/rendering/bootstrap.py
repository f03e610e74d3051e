"""What nodes and root know before they can ask: a ConfigMap.

The root gets the manifest without its queries: these, and the members of the tree, are told to it while it
runs. Of what stands there a pod starts again only for what it cannot be told.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from headwater.durations import human
from headwater.topology import API_VERSION, TOPOLOGY_KIND, Archive, Topology
from headwater.topology.tree import SNAPSHOT_AFTER
from headwater_operator import names
from headwater_operator.rendering import sinks
from headwater_operator.rendering.objects import Manifest, Owner, digest, manifest
from headwater_operator.rendering.pods import Volume

PATH = "/etc/headwater/bootstrap"
TOPOLOGY_FILE, CHILD_FILE, EXECUTOR_FILE = "topology.json", "child.json", "executor.json"
# Folders of an image that a volume must not take the place of; what is asked for there lies below DATA.
_OF_IMAGES = re.compile(r"/(bin|boot|dev|etc|home|lib|lib64|opt|proc|root|run|sbin|sys|tmp|usr)?(/.*)?")
DATA = "/data"


def bootstrap(
    owner: Owner, topology: Topology, document: Mapping[str, Any], executor: Manifest | None
) -> Manifest:
    """`executor` is the template of executors, if there are any."""
    files = {TOPOLOGY_FILE: _text(_told(owner, document))}
    if executor is not None:
        files[EXECUTOR_FILE] = _text(executor)
    if topology.archive is not None:
        files[CHILD_FILE] = _text(_child(topology.archive))
    return manifest(owner, "v1", "ConfigMap", names.bootstrap(owner.name), data=files)


def volume(owner: Owner) -> Volume:
    return Volume("bootstrap", PATH, {"configMap": {"name": names.bootstrap(owner.name)}})


def of_the_root(topology: Topology, executor: Manifest | None) -> str:
    """A digest of what the root reads only when it starts. Sources, limits of nodes and queries are not among
    it; its volume stands in its pod, and when that is made elsewhere is the operator's."""
    root = asdict(topology.root)
    del root["storage"], root["failover"]
    # Of fields that came later only what is asked for: a new release restarts no root by itself.
    if topology.root.snapshot_after == SNAPSHOT_AFTER:
        del root["snapshot_after"]
    for sink in root["sinks"]:
        if sink["retention"] is None:
            del sink["retention"]
    keys = topology.limits.keys_per_source
    read = {"root": root, "startTimeout": topology.start_timeout, "keysPerSource": keys}
    return digest({**read, "executor": executor})


def of_children(topology: Topology) -> str | None:
    """A digest of the file of the children; None if they have none."""
    return None if topology.archive is None else digest(_child(topology.archive))


def archive_path(archive: Archive) -> str:
    """Where it lies in a pod."""
    path = "/" + posixpath.normpath(posixpath.join(DATA, archive.path)).lstrip("/")
    return f"{DATA}{path}".rstrip("/") if _OF_IMAGES.fullmatch(path) else path


def _told(owner: Owner, document: Mapping[str, Any]) -> dict[str, Any]:
    spec = {field: value for field, value in document["spec"].items() if field != "queries"}
    root = dict(spec["root"])
    if root.get("sinks"):
        root["sinks"] = [sinks.told(sink) for sink in root["sinks"]]
    return {
        "apiVersion": API_VERSION,
        "kind": TOPOLOGY_KIND,
        # No more of its metadata: what others write there changes at any time.
        "metadata": {"name": owner.name, "namespace": owner.namespace},
        "spec": {**spec, "root": root},
    }


def _child(archive: Archive) -> dict[str, Any]:
    given = {
        "path": archive_path(archive),
        "rotate": human(archive.rotate),
        "retain": human(archive.retain),
        "maxBytes": archive.max_bytes,
    }
    return {"archive": given}


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2, sort_keys=True) + "\n"
