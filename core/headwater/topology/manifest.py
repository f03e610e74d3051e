"""A manifest as values: `AggregationTopology`, the tree, and `AggregationQuery`, one query for it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, get_args

from headwater.durations import MILLISECOND, SECOND, human
from headwater.errors import Problem
from headwater.queries import Query
from headwater.topology.placement import read_placement
from headwater.topology.queries import (
    Functions,
    listed_queries,
    no_functions,
    not_yet_told,
    read_query,
    validated,
)
from headwater.topology.sections import (
    LABEL_LIMIT,
    InvalidTopology,
    Section,
    Wrong,
    label,
    service,
    shown,
    subdomain,
)
from headwater.topology.sinks import read_sinks
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
    Archive,
    DeletionPolicy,
    Engine,
    Expose,
    Failover,
    Ingest,
    Issuer,
    IssuerKind,
    Limits,
    NodeClass,
    NodeSpec,
    Policies,
    RootSpec,
    SourceClass,
    Storage,
    Topology,
)

API_VERSION = "headwater.dev/v1alpha1"
TOPOLOGY_KIND = "AggregationTopology"
QUERY_KIND = "AggregationQuery"

# A node is called `<topology>-l<layer>-<n>`, and the whole must be a label of 63 characters.
NAME_LIMIT = 40
SOURCE_CLASSES_LIMIT = 256
SOURCES_LIMIT = 1_000_000
NODES_LIMIT = 10_000
NODE_CLASSES_LIMIT = 64
EXECUTORS_LIMIT = 1_000
KEYS_LIMIT = 1_000_000_000
# The size of a volume, as Kubernetes writes it; not without a unit, which would be bytes.
VOLUME = re.compile(r"[1-9][0-9]{0,5}(Mi|Gi|Ti|M|G|T)")
# What a claim of the user's own has already.
OF_A_CLAIM = ("size", "storageClass", "accessMode")


def topology_of(document: Mapping[str, Any], functions: Functions = no_functions) -> Topology:
    """The topology of a manifest, or one error with everything that is wrong with it."""
    problems: list[Problem] = []
    top, spec, name = _opened(document, TOPOLOGY_KIND, service(NAME_LIMIT), problems)
    sources = tuple(_sources(spec))
    node = spec.section("node")
    found = Topology(
        name=name,
        sources=sources,
        node=None if node is None else _node(node, sources),
        placement=read_placement(spec.section("placement")),
        limits=_limits(spec.section("limits")),
        queries=listed_queries(spec, functions),
        root=_root(spec.section("root", required=True)),
        start_timeout=spec.duration("startTimeout", START_TIMEOUT, at_least=1),
        flush_interval=spec.duration("flushInterval", FLUSH_INTERVAL, at_least=MILLISECOND),
        horizon=spec.duration("horizon", HORIZON, at_least=1),
        archive=_archive(spec.section("archive")),
        ingest=_ingest(spec.section("ingest")),
        policies=_policies(spec.section("policies")),
        issuer=_issuer(spec.section("certificates")),
        suspend=spec.flag("suspend"),
    )
    slowest = max((source.lateness for source in sources), default=0)
    if found.horizon <= slowest and not spec.told("horizon"):
        spec.wrong(
            "horizon",
            f"{human(found.horizon)} is not above the lateness of {human(slowest)}, so sources would "
            "wait for themselves",
            "make horizon longer than every lateness",
        )
    spec.done()
    top.done()
    if problems:
        raise InvalidTopology(f"the topology {name!r} cannot be taken", problems)
    return found


def query_of(document: Mapping[str, Any], functions: Functions = no_functions) -> tuple[str, Query]:
    """The topology that an `AggregationQuery` is for, and the query; its id is the name of the object."""
    problems: list[Problem] = []
    top, spec, name = _opened(document, QUERY_KIND, subdomain, problems)
    topology = spec.text("topologyRef", service(NAME_LIMIT))
    query = read_query(spec, name, functions)
    top.done()
    labels = {query.id: "spec"}
    _, wrong = validated([query], labels)
    problems += not_yet_told(wrong, problems)
    if problems:
        raise InvalidTopology(f"the query {name!r} cannot be taken", problems)
    return topology, query


# What an API server puts into the metadata of any object.
_METADATA = (
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
)


def _opened(
    document: Any, kind: str, rule: Callable[[str], Wrong | None], problems: list[Problem]
) -> tuple[Section, Section, str]:
    """The document, its spec and its name."""
    top = Section(document, "", problems)
    top.allow("status")
    top.choice("apiVersion", (API_VERSION,))
    top.choice("kind", (kind,))
    name = ""
    metadata = top.section("metadata", required=True)
    if metadata is not None:
        name = metadata.text("name", rule)
        metadata.allow(*_METADATA)
        metadata.done()
    spec = top.section("spec", required=True)
    return top, spec if spec is not None else Section({}, "spec", []), name


def _positive(number: float) -> bool:
    return number > 0


def _sources(spec: Section) -> Iterator[SourceClass]:
    seen: set[tuple[str, str]] = set()
    total = 0
    for place, given in enumerate(spec.listed("sources", SOURCE_CLASSES_LIMIT, required=True)):
        section = Section(given, f"spec.sources[{place}]", spec.problems)
        source = SourceClass(
            name=section.text("class", label(LABEL_LIMIT)),
            site=section.text("site", label(LABEL_LIMIT)),
            expected=section.whole("expected", None, low=1, high=SOURCES_LIMIT),
            rate=section.number("rate", None, _positive, "give events a second, above 0"),
            lateness=section.duration("lateness", None, at_least=0),
            idle_after=section.duration("idleAfter", IDLE_AFTER, at_least=MILLISECOND),
        )
        section.done()
        if source.name and source.site:
            if (source.name, source.site) in seen:
                section.wrong(
                    "class",
                    f"{source.name!r} at {source.site!r} stands there twice",
                    "give each class once a site",
                )
            seen.add((source.name, source.site))
        total += source.expected
        yield source
    if total > SOURCES_LIMIT:
        spec.wrong("sources", f"expects {total} in all", f"expect at most {SOURCES_LIMIT}")


def _node(section: Section, sources: Iterable[SourceClass]) -> NodeSpec:
    remedy = "give events a second, above 0"
    limit = section.number("ingestLimit", None, _positive, remedy)
    margin = section.number("margin", MARGIN, lambda share: 0 <= share < 1, "give a share from 0 to below 1")
    classes: list[NodeClass] = []
    for place, given in enumerate(section.listed("classes", NODE_CLASSES_LIMIT)):
        inner = Section(given, f"{section.path}.classes[{place}]", section.problems)
        found = NodeClass(
            inner.selector("selector", required=True),
            inner.number("ingestLimit", None, _positive, remedy),
            inner.whole("count", 1, low=1, high=NODES_LIMIT) if "count" in inner else None,
        )
        inner.allow("count")
        inner.done()
        for known in classes:
            if found.selector and found.selector == known.selector:
                said = f", with {known.ingest_limit:g} and {found.ingest_limit:g} items a second"
                differ = said if found.ingest_limit != known.ingest_limit else ""
                inner.wrong("selector", f"stands there twice{differ}", "give each selector once")
                break
        classes.append(found)
    section.done()
    most = max([limit, *(found.ingest_limit for found in classes)]) * (1 - margin)
    for source in () if section.told("ingestLimit", "margin", "classes") else sources:
        if source.rate > most:
            section.wrong(
                "ingestLimit",
                f"leaves {most:g} events a second with its margin, but one source of class {source.name!r} "
                f"sends {source.rate:g}",
                f"raise ingestLimit to {_up(source.rate / (1 - margin)):g} or more, or split the source",
            )
    return NodeSpec(limit, margin, tuple(classes))


def _limits(section: Section | None) -> Limits:
    if section is None:
        return Limits()
    found = Limits(
        section.whole("minWidth", 1, low=1, high=NODES_LIMIT),
        section.whole("maxNodes", MAX_NODES, low=1, high=NODES_LIMIT),
        section.whole("keysPerSource", KEYS_PER_SOURCE, low=1, high=KEYS_LIMIT),
        section.duration("scaleDownAfter", SCALE_DOWN_AFTER, at_least=SECOND),
        section.duration("drainTimeout", DRAIN_TIMEOUT, at_least=SECOND),
    )
    section.done()
    if found.min_width > found.max_nodes and not section.told("minWidth", "maxNodes"):
        section.wrong(
            "minWidth",
            f"{found.min_width} is more than maxNodes, which is {found.max_nodes}",
            "lower minWidth or raise maxNodes",
        )
    return found


def _up(limit: float) -> float:
    """Six digits, not below it."""
    scale = 10.0 ** (math.floor(math.log10(limit)) - 5)
    return math.ceil(limit / scale + 1e-9) * scale


def _ingest(section: Section | None) -> Ingest:
    if section is None:
        return Ingest()
    expose = section.choice("expose", get_args(Expose), "clusterIP")
    auth = section.section("auth")
    secret = None
    if auth is not None:
        secret = auth.text("caSecretRef", subdomain, remedy="name the Secret that holds ca.crt") or None
        auth.done()
    section.done()
    return Ingest(next(known for known in get_args(Expose) if known == expose), secret)


def _issuer(section: Section | None) -> Issuer | None:
    if section is None:
        return None
    given = section.section("issuerRef", required=True)
    section.done()
    if given is None:
        return None
    kind = given.choice("kind", get_args(IssuerKind), "Issuer")
    found = Issuer(
        given.text("name", subdomain, remedy="name an issuer of cert-manager"),
        next(known for known in get_args(IssuerKind) if known == kind),
        given.text("group", subdomain, required=False) or ISSUER_GROUP,
    )
    given.done()
    return found


def _policies(section: Section | None) -> Policies:
    if section is None:
        return Policies()
    found = Policies(section.flag("disruptionBudgets", True), section.flag("networkPolicies", True))
    section.done()
    return found


def archive_of(given: Any) -> Archive:
    """The archive of a document that holds nothing else, such as the file of a node."""
    problems: list[Problem] = []
    found = _archive(Section(given, "archive", problems))
    if found is None or problems:
        raise InvalidTopology("the archive cannot be taken", problems)
    return found


def _archive(section: Section | None) -> Archive | None:
    if section is None:
        return None
    found = Archive(
        section.text(
            "path", _archive_path_problem, remedy="give a folder, such as /var/lib/headwater/archive"
        ),
        section.duration("rotate", ROTATE, at_least=SECOND),
        section.duration("retain", RETAIN, at_least=SECOND),
        section.size("maxBytes", ARCHIVE_BYTES, at_least=1 << 20),
    )
    section.done()
    if found.retain < found.rotate and not section.told("rotate", "retain"):
        section.wrong(
            "retain",
            f"{human(found.retain)} is less than rotate, which is {human(found.rotate)}",
            "raise retain or lower rotate",
        )
    return found


def _archive_path_problem(given: str) -> Wrong | None:
    if ".." in given.split("/") or "\0" in given:
        return f"is {shown(given)}", 'give a folder on the machine of the child, without ".."'
    return None


def _root(section: Section | None) -> RootSpec:
    if section is None:
        return RootSpec("embedded")
    engine: Engine = "spark" if section.choice("engine", get_args(Engine)) == "spark" else "embedded"
    executors = 0
    spark = section.section("spark")
    if spark is not None:
        executors = spark.whole("executors", 0, low=0, high=EXECUTORS_LIMIT)
        spark.done()
        if engine == "embedded":
            section.wrong("spark", "stands beside engine embedded", "drop spark, or make the engine spark")
    storage = _storage(section.section("storage"))
    sinks = read_sinks(section)
    auto = section.choice("failover", get_args(Failover), "manual") == "auto"
    snapshot = section.size("snapshotAfter", SNAPSHOT_AFTER, at_least=SNAPSHOT_LEAST)
    section.done()
    if auto and executors:
        section.wrong(
            "failover",
            "is auto, for which the volume has to be mounted by one pod alone, and executors mount it too",
            "make it manual, or make spark.executors 0",
        )
    if auto and storage.access_mode not in (None, "ReadWriteOncePod"):
        section.wrong(
            "storage.accessMode",
            f"is {storage.access_mode} beside failover auto, which needs ReadWriteOncePod",
            "drop accessMode, or make failover manual",
        )
    elif executors and storage.access_mode == "ReadWriteOncePod":
        section.wrong(
            "storage.accessMode",
            "is ReadWriteOncePod, so that no executor could mount the checkpoint",
            "give ReadWriteOnce or ReadWriteMany, or make spark.executors 0",
        )
    return RootSpec(engine, executors, storage, sinks, "auto" if auto else "manual", snapshot)


def _storage(section: Section | None) -> Storage:
    if section is None:
        return Storage()
    claim = section.text("claim", subdomain, required=False) or None
    policy = section.choice("deletionPolicy", get_args(DeletionPolicy), "Retain")
    section.allow("accessMode")
    mode = section.choice("accessMode", get_args(AccessMode)) if "accessMode" in section else None
    found = Storage(
        claim,
        "Delete" if policy == "Delete" else "Retain",
        section.text("size", _volume_problem, required=False) or None,
        section.text("storageClass", subdomain, required=False) or None,
        next((known for known in get_args(AccessMode) if known == mode), None),
    )
    section.done()
    for field in OF_A_CLAIM if claim is not None else ():
        if field in section:
            section.wrong(
                field,
                "stands beside claim, which is made by you with one of its own",
                f"drop {field}; or drop claim, and one is made",
            )
    return found


def _volume_problem(given: str) -> Wrong | None:
    if VOLUME.fullmatch(given):
        return None
    return f"is {shown(given)}", "give a whole number with Mi, Gi, Ti, M, G or T, such as 10Gi"
