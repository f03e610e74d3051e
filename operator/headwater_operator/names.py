"""What objects, labels, annotations and ports are called. Nothing else in the operator spells a name out."""

from __future__ import annotations

import re

from headwater.topology.manifest import API_VERSION

GROUP, VERSION = API_VERSION.split("/")
TOPOLOGIES, QUERIES = "aggregationtopologies", "aggregationqueries"
# Who writes: the owner of what is applied by the operator.
MANAGER = "headwater-operator"

# Labels.
MANAGED_BY, MANAGED = "app.kubernetes.io/managed-by", "headwater"
TOPOLOGY = f"{GROUP}/topology"
NODE = f"{GROUP}/node"
LAYER = f"{GROUP}/layer"
ROLE = f"{GROUP}/role"

# Annotations: a digest of what was applied last; and what a user asks for.
APPLIED = f"{GROUP}/applied"
PAUSE = f"{GROUP}/pause"
RESTART = f"{GROUP}/restart"
# Which machines the node of a Deployment is for, as JSON.
PLACE = f"{GROUP}/place"
# A digest of what a pod reads only when it starts, so that it starts again when that changes.
CONFIGURATION = f"{GROUP}/configuration"

# Where nodes and the root listen: for the tree, and for probes and metrics.
TREE_PORT, METRICS_PORT = 7070, 9100
# Of the driver of a Spark root with executors: where they read its inbox and where they report; and of all of
# them: where they fetch what others have computed.
INBOX_PORT, DRIVER_PORT, BLOCKS_PORT = 7077, 7078, 7079
# How the root is called by those below it, whatever its topology; and the operator by the root.
ROOT, OPERATOR = "root", "operator"
# The variable with the address of the machine that a pod is on.
HOST_IP = "HEADWATER_HOST_IP"
# The values of the label ROLE beside those of nodes.
EXECUTOR = "executor"
# The files of the ConfigMap with whom a tree trusts: all of it, and children, to whom devices speak too.
TREE_FILE, CHILDREN_FILE = "tree.crt", "children.crt"
# On a Secret that cert-manager has filled: the name of its Certificate.
ISSUED = "cert-manager.io/certificate-name"
# And by whom a Secret was filled: what another has issued cert-manager issues anew.
ISSUER = {part: f"cert-manager.io/issuer-{part}" for part in ("name", "kind", "group")}
# By which policies know the pods of the operator, whatever their namespace; the chart gives them these.
OPERATOR_LABELS = {"app.kubernetes.io/name": "headwater", "app.kubernetes.io/component": "operator"}

_NODE = re.compile(r"(?P<topology>.+)-l(?P<layer>[1-9][0-9]*)-(?P<number>0|[1-9][0-9]*)")


def labels(topology: str) -> dict[str, str]:
    """Of everything that the operator makes for a topology."""
    return {MANAGED_BY: MANAGED, TOPOLOGY: topology}


def selector(topology: str) -> str:
    """What finds them, as a query of the API server."""
    return ",".join(f"{name}={value}" for name, value in labels(topology).items())


def node(topology: str, layer: int, number: int) -> str:
    """The id of a node, and the name of what runs it: layers count from 1, the children, upwards."""
    return f"{topology}-l{layer}-{number}"


def parts(id: str) -> tuple[str, int, int] | None:
    """Topology, layer and number of a node; None if it is the id of none."""
    found = _NODE.fullmatch(id)
    return None if found is None else (found["topology"], int(found["layer"]), int(found["number"]))


def layer_of(id: str) -> int | None:
    """The layer of a node; None if it is the id of none."""
    known = parts(id)
    return None if known is None else known[1]


def layer_service(topology: str, layer: int) -> str:
    return f"{topology}-l{layer}"


def ingest_service(topology: str) -> str:
    return f"{topology}-ingest"


def root(topology: str) -> str:
    """The StatefulSet of the root, and its Service."""
    return f"{topology}-root"


def executors(topology: str) -> str:
    """What is of the executors of a Spark root."""
    return f"{root(topology)}-executors"


def root_pod(topology: str) -> str:
    return f"{root(topology)}-0"


def root_host(topology: str, namespace: str) -> str:
    return f"{root(topology)}.{namespace}.svc"


def root_address(topology: str, namespace: str) -> str:
    return f"{root_host(topology, namespace)}:{TREE_PORT}"


def node_address(topology: str, layer: int, number: int, namespace: str) -> str:
    """Where others in the cluster reach a node: by the name of its pod below its layer's Service."""
    host = f"{node(topology, layer, number)}.{layer_service(topology, layer)}.{namespace}.svc"
    return f"{host}:{TREE_PORT}"


def authority(topology: str) -> str:
    """The Secret with the authority of all certificates of a tree."""
    return f"{topology}-ca"


def certificate(id: str) -> str:
    """The Secret with the certificate of a node, or of the root by its StatefulSet's name."""
    return f"{id}-tls"


def trust(topology: str) -> str:
    """The ConfigMap with whom a tree trusts, where its Secrets do not say all of it."""
    return f"{topology}-trust"


def bootstrap(topology: str) -> str:
    """The ConfigMap with what nodes and root know before they can ask."""
    return f"{topology}-bootstrap"


def kept(topology: str) -> str:
    """The ConfigMap with what outlives the process that works on a topology."""
    return f"{topology}-kept"


def claim(topology: str) -> str:
    """The root's volume, where the manifest names none."""
    return f"{topology}-root"


def operator(topology: str) -> str:
    """What the certificate of the operator for a topology is named by."""
    return f"{topology}-operator"


def host(address: str) -> str:
    """The host of an address; that of an IPv6 one without its brackets."""
    return address.rpartition(":")[0].strip("[]")
