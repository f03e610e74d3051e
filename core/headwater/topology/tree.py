"""The values of a topology: a tree as it was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headwater.durations import MILLISECOND, SECOND
from headwater.queries import Query

START_TIMEOUT = 30 * SECOND
IDLE_AFTER = 60 * SECOND
FLUSH_INTERVAL = 100 * MILLISECOND
HORIZON = 3_600 * SECOND
MARGIN = 0.1
MAX_NODES = 200
KEYS_PER_SOURCE = 100_000
SCALE_DOWN_AFTER = 300 * SECOND
ROTATE = 60 * SECOND
RETAIN = 7 * 86_400 * SECOND
ARCHIVE_BYTES = 10 << 30
# Bytes of records behind which a root begins its log anew with its state, by default and at least.
SNAPSHOT_AFTER, SNAPSHOT_LEAST = 64 << 20, 64 << 10
SINK_TIMEOUT = 30 * SECOND
DRAIN_TIMEOUT = 300 * SECOND
ISSUER_GROUP = "cert-manager.io"

Mode = Literal["pool", "perNode"]
Expose = Literal["clusterIP", "nodePort", "hostPort", "loadBalancer"]
Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
Engine = Literal["spark", "embedded"]
IssuerKind = Literal["Issuer", "ClusterIssuer"]
DeletionPolicy = Literal["Retain", "Delete"]
Failover = Literal["manual", "auto"]
AccessMode = Literal["ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"]
SinkType = Literal["console", "jsonlines", "parquet", "postgres", "webhook"]
# Labels of a node that must all be there, sorted by name.
Selector = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SourceClass:
    """Sources of one kind at one site; `rate` is events a second of each, times are microseconds."""

    name: str
    site: str
    expected: int
    rate: float
    lateness: int
    idle_after: int = IDLE_AFTER


@dataclass(frozen=True, slots=True)
class NodeClass:
    """Nodes that take another number of events a second than the rest."""

    selector: Selector
    ingest_limit: float
    # How many of them there are, if that is known.
    count: int | None = None


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """How many events a second one node takes, and which share of that is kept free."""

    ingest_limit: float
    margin: float = MARGIN
    classes: tuple[NodeClass, ...] = ()


@dataclass(frozen=True, slots=True)
class Toleration:
    """A taint that does not keep a pod away, as in a pod."""

    key: str | None = None
    operator: str = "Equal"
    value: str | None = None
    effect: str | None = None
    seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Resources:
    """What a pod asks for and what it may have, by name, as quantities of Kubernetes."""

    requests: tuple[tuple[str, str], ...] = ()
    limits: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class LayerPlacement:
    """Where the nodes of one layer run, and what their pods have beside what they need."""

    mode: Mode = "pool"
    node_selector: Selector = ()
    tolerations: tuple[Toleration, ...] = ()
    affinity: Mapping[str, Any] | None = None
    priority_class: str | None = None
    image_pull_secrets: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    resources: Resources = Resources()


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the nodes of every layer run."""

    child: LayerPlacement = LayerPlacement()
    intermediate: LayerPlacement = LayerPlacement()
    root: LayerPlacement = LayerPlacement()


@dataclass(frozen=True, slots=True)
class Limits:
    """What a plan stays within, how long less has to suffice before a tree is made smaller, how many
    distinct keys a source brings at most, and how long is waited for what a node that leaves still holds."""

    min_width: int = 1
    max_nodes: int = MAX_NODES
    keys_per_source: int = KEYS_PER_SOURCE
    scale_down_after: int = SCALE_DOWN_AFTER
    drain_timeout: int = DRAIN_TIMEOUT


@dataclass(frozen=True, slots=True)
class Ingest:
    """How devices reach the children, and the Secret with the authority of their certificates."""

    expose: Expose = "clusterIP"
    ca_secret: str | None = None


@dataclass(frozen=True, slots=True)
class Issuer:
    """What issues the certificates of a tree in place of the operator: an issuer of cert-manager."""

    name: str
    kind: IssuerKind = "Issuer"
    group: str = ISSUER_GROUP


@dataclass(frozen=True, slots=True)
class Policies:
    """Which objects a cluster gets beside the pods."""

    disruption_budgets: bool = True
    network_policies: bool = True


@dataclass(frozen=True, slots=True)
class Sink:
    """Where results go: `path` for files, `url` for a webhook, an address in `dsn` and in the environment
    variable `dsn_env` for a database; `secret_ref` is the Secret that holds it in a cluster.

    `headers_env` has headers of a webhook and the environment variables that hold them. `retention` is how
    long a database keeps a row after it was written, in microseconds; None is for ever.
    """

    type: SinkType
    path: str | None = None
    secret_ref: str | None = None
    url: str | None = None
    dsn: str | None = None
    dsn_env: str | None = None
    table: str | None = None
    headers_env: tuple[tuple[str, str], ...] = ()
    timeout: int = SINK_TIMEOUT
    retention: int | None = None


@dataclass(frozen=True, slots=True)
class Storage:
    """The root's volume; without `claim` one is made for it, of so many bytes (a quantity of Kubernetes) of a
    class. What is None is not asked for: then it has the operator's size and the cluster's class."""

    claim: str | None = None
    deletion_policy: DeletionPolicy = "Retain"
    size: str | None = None
    storage_class: str | None = None
    access_mode: AccessMode | None = None


@dataclass(frozen=True, slots=True)
class RootSpec:
    """What merges at the top, what it keeps and where its results go."""

    engine: Engine
    executors: int = 0
    storage: Storage = Storage()
    sinks: tuple[Sink, ...] = ()
    # Who has it made elsewhere when its machine is lost: a person, or the operator.
    failover: Failover = "manual"
    # Bytes of records behind which its log begins anew, with its state.
    snapshot_after: int = SNAPSHOT_AFTER

    @property
    def access_mode(self) -> AccessMode:
        """Of the claim that is made for it."""
        needed: AccessMode = "ReadWriteOncePod" if self.failover == "auto" else "ReadWriteOnce"
        return self.storage.access_mode or needed


@dataclass(frozen=True, slots=True)
class Archive:
    """Where children keep the raw events that they have read, how often a file is finished, for how long
    files are kept, and how many bytes of them a child keeps."""

    path: str
    rotate: int = ROTATE
    retain: int = RETAIN
    max_bytes: int = ARCHIVE_BYTES


@dataclass(frozen=True, slots=True)
class Topology:
    """A tree as it was asked for. Times are microseconds."""

    name: str
    sources: tuple[SourceClass, ...]
    root: RootSpec
    queries: tuple[Query, ...] = ()
    node: NodeSpec | None = None
    placement: Placement = Placement()
    limits: Limits = Limits()
    start_timeout: int = START_TIMEOUT
    flush_interval: int = FLUSH_INTERVAL
    horizon: int = HORIZON
    archive: Archive | None = None
    ingest: Ingest = Ingest()
    policies: Policies = Policies()
    # None: an authority of its own.
    issuer: Issuer | None = None
    suspend: bool = False

    @property
    def expected(self) -> int:
        """How many sources there will be."""
        return sum(source.expected for source in self.sources)

    @property
    def idle_after(self) -> int:
        """After what silence a source is given up: the longest of all classes, as a source does not say of
        which one it is."""
        return max((source.idle_after for source in self.sources), default=IDLE_AFTER)

    @property
    def node_settings(self) -> dict[str, int]:
        """The fields that nodes need and that differ from what a node does by itself, in microseconds."""
        found = {
            "flushInterval": (self.flush_interval, FLUSH_INTERVAL),
            "idleAfter": (self.idle_after, IDLE_AFTER),
            "horizon": (self.horizon, HORIZON),
        }
        return {name: given for name, (given, usual) in found.items() if given != usual}

    @property
    def rate(self) -> float:
        """Events a second of all sources together."""
        return sum(source.expected * source.rate for source in self.sources)
