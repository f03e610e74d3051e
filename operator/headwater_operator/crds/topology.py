"""The spec of a topology: sources, nodes, where they run, queries and the root."""

from __future__ import annotations

from typing import get_args

from headwater.durations import MILLISECOND, SECOND, human
from headwater.topology.manifest import (
    EXECUTORS_LIMIT,
    KEYS_LIMIT,
    NODE_CLASSES_LIMIT,
    NODES_LIMIT,
    OF_A_CLAIM,
    SOURCE_CLASSES_LIMIT,
    SOURCES_LIMIT,
    VOLUME,
)
from headwater.topology.queries import QUERIES_LIMIT
from headwater.topology.sections import LABEL_LIMIT, SIZE_LIMIT, SIZES
from headwater.topology.tree import (
    ARCHIVE_BYTES,
    DRAIN_TIMEOUT,
    FLUSH_INTERVAL,
    HORIZON,
    IDLE_AFTER,
    ISSUER_GROUP,
    KEYS_PER_SOURCE,
    MARGIN,
    MAX_NODES,
    RETAIN,
    ROTATE,
    SCALE_DOWN_AFTER,
    SNAPSHOT_AFTER,
    SNAPSHOT_LEAST,
    START_TIMEOUT,
    AccessMode,
    DeletionPolicy,
    Engine,
    Expose,
    Failover,
    IssuerKind,
)
from headwater_operator.crds import cel, query
from headwater_operator.crds.fields import (
    Rule,
    Schema,
    choice,
    duration,
    flag,
    label,
    listed,
    mapping,
    positive,
    selector,
    subdomain,
    text,
    whole,
    with_rules,
)
from headwater_operator.crds.placement import placement
from headwater_operator.crds.sinks import sinks

# Whether a root has executors, and whether the operator has it made elsewhere.
_EXECUTORS = "has(self.spark) && has(self.spark.executors) && self.spark.executors > 0"
_AUTO = "has(self.failover) && self.failover == 'auto'"


def spec() -> Schema:
    classes = "(has(self.node.classes) ? self.node.classes.map(c, c.ingestLimit) : [])"
    limits = f"([self.node.ingestLimit] + {classes}).max()"
    kept = f"(1.0 - (has(self.node.margin) ? self.node.margin : {MARGIN}))"
    horizon = f"(has(self.horizon) ? {cel.microseconds('self.horizon')} : {HORIZON})"
    return mapping(
        "What is asked for.",
        {
            "sources": _sources(),
            "node": _node(),
            "placement": placement(),
            "limits": _limits(),
            "queries": _queries(),
            "root": _root(),
            "startTimeout": duration(
                f"How long is waited for sources that are expected (default {human(START_TIMEOUT)}).",
                at_least=1,
            ),
            "flushInterval": duration(
                f"How often a node sends what it has (default {human(FLUSH_INTERVAL)}).", at_least=MILLISECOND
            ),
            "horizon": duration(
                "How far events of one source may be ahead of another's before that source has to wait "
                f"(default {human(HORIZON)}).",
                at_least=1,
            ),
            "archive": _archive(),
            "ingest": _ingest(),
            "certificates": _certificates(),
            "policies": mapping(
                "Which objects there are beside the pods.",
                {
                    "disruptionBudgets": flag("A PodDisruptionBudget for each layer (default true)."),
                    "networkPolicies": flag("A NetworkPolicy for each layer (default true)."),
                },
            ),
            "suspend": flag("Take nothing more, commit what there is, and keep only the volume."),
        },
        ("sources", "root"),
        Rule(
            f"!has(self.node) || self.sources.all(s, s.rate <= {limits} * {kept})",
            "leaves less with its margin than one source sends; raise ingestLimit, or split the source",
            ".node",
        ),
        Rule(
            f"self.sources.all(s, {cel.microseconds('s.lateness')} < {horizon})",
            "must be longer than every lateness, or sources would wait for themselves",
            ".horizon",
        ),
    )


def _sources() -> Schema:
    fields = {
        "class": label("What kind of device it is.", LABEL_LIMIT),
        "site": label("Where they are; queries with scope local are computed for each site.", LABEL_LIMIT),
        "expected": whole("How many of them there are.", 1, SOURCES_LIMIT),
        "rate": positive("Events a second that each of them sends."),
        "lateness": duration(
            "How much later than others of its source an event may come and still count, such as 2s.",
            at_least=0,
        ),
        "idleAfter": duration(
            f"After so long without a word nobody waits for a source (default {human(IDLE_AFTER)}).",
            at_least=MILLISECOND,
        ),
    }
    required = ("class", "site", "expected", "rate", "lateness")
    found = listed(
        "The devices, by kind and site.",
        mapping("Devices of one kind at one site.", fields, required),
        SOURCE_CLASSES_LIMIT,
        least=1,
        keys=("class", "site"),
    )
    return with_rules(
        found,
        Rule(
            f"self.map(s, s.expected).sum() <= {SOURCES_LIMIT}",
            f"expect at most {SOURCES_LIMIT} sources in all",
        ),
    )


def _node() -> Schema:
    one = mapping(
        "Nodes that take another number of events a second than the rest.",
        {
            "selector": selector("The labels of these nodes.", least=1),
            "ingestLimit": positive("Items a second that one of them takes."),
            "count": whole("How many of them there are, if that is known.", 1, NODES_LIMIT),
        },
        ("selector", "ingestLimit"),
    )
    classes = with_rules(
        listed("Nodes with limits of their own.", one, NODE_CLASSES_LIMIT),
        Rule(
            "self.all(one, self.exists_one(other, other.selector == one.selector))", "give each selector once"
        ),
    )
    margin: Schema = {
        "description": f"The share of a limit that is kept free (default {MARGIN}).",
        "type": "number",
        "minimum": 0,
        "maximum": 1,
        "exclusiveMaximum": True,
    }
    return mapping(
        "What a node takes: the tree is planned so that none has more.",
        {
            "ingestLimit": positive(
                "Items a second that a node takes, events or rows; headwater bench node measures it."
            ),
            "margin": margin,
            "classes": classes,
        },
        ("ingestLimit",),
    )


def _limits() -> Schema:
    return mapping(
        "What a plan stays within.",
        {
            "minWidth": whole("The least number of nodes of a layer (default 1).", 1, NODES_LIMIT),
            "maxNodes": whole(f"The tree has no more nodes (default {MAX_NODES}).", 1, NODES_LIMIT),
            "keysPerSource": whole(
                f"A source with more distinct keys is put into quarantine (default {KEYS_PER_SOURCE}).",
                1,
                KEYS_LIMIT,
            ),
            "scaleDownAfter": duration(
                "For so long less has to suffice before a tree is made smaller (default "
                f"{human(SCALE_DOWN_AFTER)}).",
                at_least=SECOND,
            ),
            "drainTimeout": duration(
                f"How long a node that leaves has for what it holds (default {human(DRAIN_TIMEOUT)}).",
                at_least=SECOND,
            ),
        },
        (),
        Rule(
            f"!has(self.minWidth) || self.minWidth <= (has(self.maxNodes) ? self.maxNodes : {MAX_NODES})",
            "is more than maxNodes; lower minWidth or raise maxNodes",
            ".minWidth",
        ),
    )


def _queries() -> Schema:
    one = mapping(
        "One query.",
        {"id": query.id_field(), **query.fields()},
        ("id", *query.REQUIRED),
        *query.rules(),
    )
    found = listed(
        f"What is computed, all in one pass over the events; more than {QUERIES_LIMIT} come as "
        "AggregationQuery.",
        one,
        QUERIES_LIMIT,
        keys=("id",),
    )
    return with_rules(
        found,
        Rule(
            "self.all(q, !has(q.keyBy) || self.all(r, !has(r.keyBy) || r.keyBy == q.keyBy))",
            "names different columns in keyBy, but an event has one key; use one key column",
        ),
    )


def _root() -> Schema:
    return mapping(
        "What merges at the top.",
        {
            "engine": choice("spark: a PySpark job. embedded: a process of its own.", get_args(Engine)),
            "spark": mapping(
                "Of engine spark.",
                {
                    "executors": whole(
                        "How many executors Spark has; 0 runs everything in the driver (default).",
                        0,
                        EXECUTORS_LIMIT,
                    )
                },
            ),
            "storage": _storage(),
            "failover": choice(
                "Who has it made elsewhere when its machine is lost. manual: a person (default). auto: the "
                "operator, where its claim is ReadWriteOncePod.",
                get_args(Failover),
            ),
            "snapshotAfter": _bytes(
                "How many bytes of records its log has before it begins anew with the root's state, or as "
                f"many as that has if it is more; also with a unit (default {SNAPSHOT_AFTER >> 20}MiB). "
                "Fewer are sooner replayed and take less of the volume; the root stands still while it "
                "writes it.",
                SNAPSHOT_LEAST,
                f"{SNAPSHOT_LEAST >> 10}KiB",
            ),
            "sinks": sinks(),
        },
        ("engine",),
        Rule(
            "self.engine == oldSelf.engine",
            "cannot be changed: the log of a root stays with its engine; make another topology for it",
            ".engine",
        ),
        Rule(
            "!has(self.spark) || self.engine == 'spark'",
            "stands beside engine embedded; drop spark, or make the engine spark",
            ".spark",
        ),
        Rule(
            f"!({_EXECUTORS}) || !has(self.storage) || !has(self.storage.accessMode) || "
            "self.storage.accessMode != 'ReadWriteOncePod'",
            "has accessMode ReadWriteOncePod, so that no executor could mount the checkpoint; "
            "give ReadWriteOnce or ReadWriteMany, or make spark.executors 0",
            ".storage",
        ),
        Rule(
            f"!({_AUTO}) || !({_EXECUTORS})",
            "is auto, for which the volume has to be mounted by one pod alone, and executors mount it too; "
            "make it manual, or make spark.executors 0",
            ".failover",
        ),
        Rule(
            f"!({_AUTO}) || !has(self.storage) || !has(self.storage.accessMode) || "
            "self.storage.accessMode == 'ReadWriteOncePod'",
            "has an accessMode beside failover auto, which needs ReadWriteOncePod; drop accessMode, or make "
            "failover manual",
            ".storage",
        ),
    )


def _storage() -> Schema:
    return mapping(
        "The volume with the root's log, its snapshots and its results.",
        {
            "claim": subdomain("The PersistentVolumeClaim; without one it is made."),
            "deletionPolicy": choice(
                "What becomes of the volume when the topology is deleted (default Retain).",
                get_args(DeletionPolicy),
            ),
            "size": text(
                "How large the claim is that is made (default 10Gi); larger later, never smaller.",
                16,
                f"^{VOLUME.pattern}$",
            ),
            "storageClass": subdomain(
                "The StorageClass of the claim that is made (by default that of the cluster); for good."
            ),
            "accessMode": choice(
                "How the claim that is made may be mounted (default ReadWriteOnce); for good.",
                get_args(AccessMode),
            ),
        },
        (),
        *(
            Rule(
                f"!has(self.claim) || !has(self.{field})",
                f"stands beside claim, which is made by you with one of its own; drop {field}, or drop claim",
                f".{field}",
            )
            for field in OF_A_CLAIM
        ),
    )


def _ingest() -> Schema:
    return mapping(
        "How devices reach the children.",
        {
            "expose": choice("The address that children advertise (default clusterIP).", get_args(Expose)),
            "auth": mapping(
                "Devices show certificates.",
                {"caSecretRef": subdomain("The Secret that holds the authority of theirs, ca.crt.")},
                ("caSecretRef",),
            ),
        },
    )


def _certificates() -> Schema:
    issuer = mapping(
        "The issuer, of cert-manager or one that it knows.",
        {
            "name": subdomain("Of an Issuer in the namespace of the topology, or of a ClusterIssuer."),
            "kind": choice("Issuer (default) or ClusterIssuer.", get_args(IssuerKind)),
            "group": subdomain(f"The API group of the issuer (default {ISSUER_GROUP})."),
        },
        ("name",),
    )
    return mapping(
        "Who issues the certificates of the tree; without it the operator does, by an authority of its own.",
        {"issuerRef": issuer},
        ("issuerRef",),
    )


def _bytes(description: str, at_least: int, said: str) -> Schema:
    """A whole number of bytes, or one with a unit."""
    unit = "1.0"
    for name, factor in SIZES.items():
        unit = f"self.endsWith('{name}') ? {factor}.0 : {unit}"
    given = f"double(self.find('^[0-9]+')) * ({unit})"
    return with_rules(
        {
            "description": description,
            "x-kubernetes-int-or-string": True,
            "maxLength": SIZE_LIMIT,
            "pattern": rf"^[0-9]{{1,15}}\s*({'|'.join(SIZES)})$",
        },
        Rule(
            f"type(self) == int ? self >= {at_least} : {given} >= {at_least}.0 && {given} < {1 << 63}.0",
            f"must be {said} or more",
        ),
    )


def _archive() -> Schema:
    rotate = f"(has(self.rotate) ? {cel.microseconds('self.rotate')} : {ROTATE})"
    retain = f"(has(self.retain) ? {cel.microseconds('self.retain')} : {RETAIN})"
    return mapping(
        "Where children keep the raw events that they have read.",
        {
            "path": with_rules(
                text(
                    "A folder on the machine of the child, such as /var/lib/headwater/archive.",
                    pattern=r"^[^\x00]+$",
                ),
                Rule("self.split('/').all(part, part != '..')", 'must be without ".."'),
            ),
            "rotate": duration(f"How often a file is finished (default {human(ROTATE)}).", at_least=SECOND),
            "retain": duration(f"For how long files are kept (default {human(RETAIN)}).", at_least=SECOND),
            "maxBytes": _bytes(
                "How many bytes of files a child keeps, also with a unit such as 10GiB (default "
                f"{ARCHIVE_BYTES >> 30}GiB).",
                1 << 20,
                "1MiB",
            ),
        },
        ("path",),
        Rule(f"{retain} >= {rotate}", "is less than rotate; raise retain or lower rotate", ".retain"),
    )
