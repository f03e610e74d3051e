"""The two manifests as values: `AggregationTopology`, the tree, and `AggregationQuery`, one query for it.

A document is what a YAML or JSON reader gives. It is judged whole: one error lists every problem, each with
its field as it stands in the manifest. What decides a result is required, never defaulted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, get_args

from headwater import aggregates
from headwater.aggregates import UserDefined
from headwater.durations import MILLISECOND, SECOND, human, microseconds
from headwater.errors import Invalid, InvalidQuery, Problem
from headwater.queries import EVERYTHING, ID_LIMIT, AggregateSpec, Query, Where, validate
from headwater.windows import (
    LENGTH_LIMIT,
    Punctuation,
    Session,
    Sliding,
    Tumbling,
    Window,
    is_count,
)

API_VERSION = "headwater.dev/v1alpha1"
TOPOLOGY_KIND = "AggregationTopology"
QUERY_KIND = "AggregationQuery"

# A node is called `<topology>-l<layer>-<n>`, and the whole must be a label of 63 characters.
NAME_LIMIT = 40
LABEL_LIMIT = 63
SUBDOMAIN_LIMIT = 253
TEXT_LIMIT = 1_024
SOURCE_CLASSES_LIMIT = 256
SOURCES_LIMIT = 1_000_000
NODES_LIMIT = 10_000
NODE_CLASSES_LIMIT = 64
QUERIES_LIMIT = 256
AGGREGATES_LIMIT = 64
KEYS_LIMIT = 1_024
SINKS_LIMIT = 16
SELECTOR_LIMIT = 16
EXECUTORS_LIMIT = 1_000

START_TIMEOUT = 30 * SECOND
IDLE_AFTER = 60 * SECOND
FLUSH_INTERVAL = 100 * MILLISECOND
HORIZON = 3_600 * SECOND
MARGIN = 0.1
MAX_NODES = 200
FUNCTION_PREFIX = "function:"

Mode = Literal["pool", "perNode"]
Engine = Literal["spark", "embedded"]
DeletionPolicy = Literal["Retain", "Delete"]
SinkType = Literal["console", "jsonlines", "parquet", "postgres", "webhook"]
# Labels of a node that must all be there, sorted by name.
Selector = tuple[tuple[str, str], ...]
# The function that an installed package offers under a name.
Functions = Callable[[str], UserDefined | None]


class InvalidTopology(Invalid):
    """A manifest that cannot be taken."""


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


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """How many events a second one node takes, and which share of that is kept free."""

    ingest_limit: float
    margin: float = MARGIN
    classes: tuple[NodeClass, ...] = ()


@dataclass(frozen=True, slots=True)
class LayerPlacement:
    """Where the nodes of one layer run."""

    mode: Mode = "pool"
    node_selector: Selector = ()


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the nodes of every layer run."""

    child: LayerPlacement = LayerPlacement()
    intermediate: LayerPlacement = LayerPlacement()
    root: LayerPlacement = LayerPlacement()


@dataclass(frozen=True, slots=True)
class Limits:
    """What a plan stays within."""

    min_width: int = 1
    max_nodes: int = MAX_NODES


@dataclass(frozen=True, slots=True)
class Sink:
    """Where results go: `path` for files, `secret_ref` for a database, `url` for a webhook."""

    type: SinkType
    path: str | None = None
    secret_ref: str | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Storage:
    """The root's volume; without `claim` one is made for it."""

    claim: str | None = None
    deletion_policy: DeletionPolicy = "Retain"


@dataclass(frozen=True, slots=True)
class RootSpec:
    """What merges at the top, what it keeps and where its results go."""

    engine: Engine
    executors: int = 0
    storage: Storage = Storage()
    sinks: tuple[Sink, ...] = ()


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

    @property
    def expected(self) -> int:
        """How many sources there will be."""
        return sum(source.expected for source in self.sources)

    @property
    def rate(self) -> float:
        """Events a second of all sources together."""
        return sum(source.expected * source.rate for source in self.sources)


def _no_functions(name: str) -> None:
    return None


def topology_of(document: Mapping[str, Any], functions: Functions = _no_functions) -> Topology:
    """The topology of a manifest, or one error with everything that is wrong with it."""
    problems: list[Problem] = []
    top, spec, name = _opened(document, TOPOLOGY_KIND, _label(NAME_LIMIT), problems)
    sources = tuple(_sources(spec))
    node = spec.section("node")
    found = Topology(
        name=name,
        sources=sources,
        node=None if node is None else _node(node, sources),
        placement=_placement(spec.section("placement")),
        limits=_limits(spec.section("limits")),
        queries=_queries(spec, functions),
        root=_root(spec.section("root", required=True)),
        start_timeout=spec.duration("startTimeout", START_TIMEOUT, at_least=1),
        flush_interval=spec.duration("flushInterval", FLUSH_INTERVAL, at_least=MILLISECOND),
        horizon=spec.duration("horizon", HORIZON, at_least=1),
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


def query_of(document: Mapping[str, Any], functions: Functions = _no_functions) -> tuple[str, Query]:
    """The topology that an `AggregationQuery` is for, and the query; its id is the name of the object."""
    problems: list[Problem] = []
    top, spec, name = _opened(document, QUERY_KIND, _subdomain, problems)
    topology = spec.text("topologyRef", _label(NAME_LIMIT))
    query = _query(spec, name, functions)
    top.done()
    label = {query.id: "spec"}
    _, wrong = _validated([query], label)
    problems += _not_yet_told(wrong, problems)
    if problems:
        raise InvalidTopology(f"the query {name!r} cannot be taken", problems)
    return topology, query


def queries_of(documents: Sequence[Any], functions: Functions = _no_functions) -> tuple[Query, ...]:
    """Queries as they stand in the list of a manifest."""
    problems: list[Problem] = []
    queries = _queries(_Section({"queries": list(documents)}, "spec", problems), functions)
    if problems:
        raise InvalidTopology("the queries cannot be taken", problems)
    return queries


def query_document(query: Query) -> dict[str, Any]:
    """A query as it stands in the list of a manifest; what is as usual is left out."""
    listed = query.aggregate if isinstance(query.aggregate, tuple) else (query.aggregate,)
    names = [
        FUNCTION_PREFIX + given.name if isinstance(given, UserDefined) else str(given) for given in listed
    ]
    document: dict[str, Any] = {
        "id": query.id,
        "aggregate": names[0] if len(names) == 1 else names,
        "window": _window_document(query.window),
    }
    if query.key_by is not None:
        document["keyBy"] = query.key_by
    where = {
        field: bound
        for field, bound in (
            ("above", query.where.above),
            ("atLeast", query.where.at_least),
            ("below", query.where.below),
            ("atMost", query.where.at_most),
        )
        if bound is not None
    }
    if query.where.keys is not None:
        document["where"] = {**where, "keys": sorted(query.where.keys)}
    elif where:
        document["where"] = where
    if query.scope != "global":
        document["scope"] = query.scope
    if query.deduplicate:
        document["deduplicate"] = True
    if query.emit_empty:
        document["emitEmpty"] = True
    return document


def _window_document(window: Window) -> dict[str, Any]:
    document: dict[str, Any] = {"type": type(window).__name__.lower()}
    if isinstance(window, Session):
        return {**document, "gap": human(microseconds(window.gap))}
    if isinstance(window, Punctuation):
        document["start"] = window.start
        if window.end is not None:
            document["end"] = window.end
        document["merge"] = window.merge
        if window.max_open != Punctuation.__dataclass_fields__["max_open"].default:
            document["maxOpen"] = window.max_open
        return document
    if window.count is not None:
        document["count"] = window.count
        if isinstance(window, Sliding):
            document["every"] = window.every
        return document
    document["length"] = human(microseconds(window.length or 0))
    if isinstance(window, Sliding):
        document["slide"] = human(microseconds(window.slide or 0))
    if offset := microseconds(window.offset):
        document["offset"] = human(offset)
    return document


# Reading a document

# What is wrong with a value, and the remedy.
Wrong = tuple[str, str]


class _Section:
    """One mapping of a document. It collects problems and knows at the end which fields nobody asked for."""

    def __init__(self, given: Any, path: str, problems: list[Problem]) -> None:
        self.path, self.problems = path, problems
        self._known: list[str] = []
        self._values: dict[Any, Any] = {}
        if isinstance(given, Mapping):
            # An empty value in YAML is a null: as good as not there.
            self._values = {field: value for field, value in given.items() if value is not None}
        else:
            problems.append(Problem(path or "document", f"is {_shown(given)}", "give a mapping of fields"))

    def at(self, field: str) -> str:
        return f"{self.path}.{field}" if self.path else field

    def wrong(self, field: str, message: str, remedy: str) -> None:
        self.problems.append(Problem(self.at(field), message, remedy))

    def told(self, *fields: str) -> bool:
        """Whether something is known to be wrong with one of the fields or with what is in it."""
        paths = tuple(map(self.at, fields))
        return any(problem.field.startswith(paths) for problem in self.problems)

    def __contains__(self, field: str) -> bool:
        return field in self._values

    def value(self, field: str, remedy: str = "", *, required: bool = False) -> Any:
        self._known.append(field)
        found = self._values.get(field)
        if found is None and required:
            self.wrong(field, "is missing", remedy)
        return found

    def allow(self, *fields: str) -> None:
        """Fields that stand there rightly but say nothing to us."""
        self._known += fields

    def done(self) -> None:
        """Refuse what nobody asked for."""
        for field in self._values:
            if field in self._known:
                continue
            near = get_close_matches(str(field), self._known, 1)
            remedy = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(self._known))}"
            self.wrong(str(field), "is not known", remedy)

    def text(
        self,
        field: str,
        rule: Callable[[str], Wrong | None] | None = None,
        *,
        required: bool = True,
        remedy: str = "give a name",
    ) -> str:
        """A string; empty if it is missing or wrong."""
        found = self.value(field, remedy, required=required)
        if found is None:
            return ""
        if wrong := _text_problem(found) or (rule(found) if rule else None):
            self.wrong(field, *wrong)
            return ""
        return str(found)

    def choice(self, field: str, known: tuple[str, ...], default: str | None = None) -> str:
        """One of the known words; the first of them if it is missing or wrong."""
        listed = ", ".join(known)
        found = self.value(field, f"give one of {listed}", required=default is None)
        if found is None:
            return default or known[0]
        if found not in known:
            near = get_close_matches(str(found), known, 1)
            suggested = f" (did you mean {near[0]}?)" if near else ""
            self.wrong(field, f"is {_shown(found)}", f"give one of {listed}{suggested}")
            return known[0]
        return str(found)

    def flag(self, field: str) -> bool:
        found = self.value(field)
        if found is not None and not isinstance(found, bool):
            self.wrong(field, f"is {_shown(found)}", "give true or false")
        return found is True

    def whole(self, field: str, default: int | None, *, low: int, high: int) -> int:
        remedy = f"give a whole number from {low} to {high}"
        found = self.value(field, remedy, required=default is None)
        if found is None:
            return low if default is None else default
        if not isinstance(found, int) or isinstance(found, bool) or not low <= found <= high:
            self.wrong(field, f"is {_shown(found)}", remedy)
            return low if default is None else default
        return found

    def number(self, field: str, default: float | None, fits: Callable[[float], bool], remedy: str) -> float:
        found = self.value(field, remedy, required=default is None)
        if found is None:
            return 1.0 if default is None else default
        number = _finite(found)
        if number is None or not fits(number):
            self.wrong(field, f"is {_shown(found)}", remedy)
            return 1.0 if default is None else default
        return number

    def duration(self, field: str, default: int | None, *, at_least: int) -> int:
        """Microseconds; the default, or what is allowed at least, if it is missing or wrong."""
        found = self.value(field, "give a duration such as 10s", required=default is None)
        instead = at_least if default is None else default
        if found is None:
            return instead
        if wrong := _unit_problem(found):
            self.wrong(field, *wrong)
            return instead
        try:
            length = microseconds(found)
        except ValueError as error:
            self.wrong(field, str(error), "give a duration such as 10s")
            return instead
        if not at_least <= length < LENGTH_LIMIT:
            self.wrong(field, f"is {human(length)}", f"give {human(at_least)} or more")
            return instead
        return length

    def section(self, field: str, *, required: bool = False) -> _Section | None:
        found = self.value(field, "give a mapping of fields", required=required)
        return None if found is None else _Section(found, self.at(field), self.problems)

    def listed(self, field: str, limit: int, *, required: bool = False) -> list[Any]:
        found = self.value(field, "give a list with at least one item", required=required)
        if found is None:
            return []
        if not isinstance(found, list | tuple):
            self.wrong(field, f"is {_shown(found)}", "give a list")
            return []
        if required and not found:
            self.wrong(field, "is empty", "give a list with at least one item")
        if len(found) > limit:
            self.wrong(field, f"has {len(found)} items", f"give at most {limit}")
        return list(found[:limit])

    def selector(self, field: str, *, required: bool = False) -> Selector:
        """Labels and their values, sorted."""
        found = self.value(field, "give labels, such as headwater.dev/tier: edge", required=required)
        if found is None:
            return ()
        if not isinstance(found, Mapping):
            self.wrong(field, f"is {_shown(found)}", "give labels, such as headwater.dev/tier: edge")
            return ()
        if len(found) > SELECTOR_LIMIT:
            self.wrong(field, f"has {len(found)} labels", f"give at most {SELECTOR_LIMIT}")
        if required and not found:
            self.wrong(field, "is empty", "give at least one label")
        labels = []
        for name, value in found.items():
            if not isinstance(name, str) or not _LABEL_NAME.fullmatch(name):
                self.wrong(
                    field, f"has the label {_shown(name)}", "name labels like headwater.dev/tier or tier"
                )
            elif not isinstance(value, str) or not _LABEL_VALUE.fullmatch(value):
                self.wrong(
                    f"{field}[{name}]",
                    f"is {_shown(value)}",
                    'give a string of at most 63 letters, digits, "-", "_" and "." (a number in quotes)',
                )
            else:
                labels.append((name, value))
        return tuple(sorted(labels))


_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LABEL_NAME = re.compile(
    rf"((?=.{{1,253}}/){_SUBDOMAIN.pattern}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?"
)


def _label(limit: int) -> Callable[[str], Wrong | None]:
    """The rule for a DNS-1123 label."""

    def rule(given: str) -> Wrong | None:
        if len(given) <= limit and _LABEL.fullmatch(given):
            return None
        return (
            f"is {_shown(given)}",
            f'give 1 to {limit} of the characters a-z, 0-9 and "-", with neither end a "-"',
        )

    return rule


def _subdomain(given: str) -> Wrong | None:
    """The rule for the name of an object: DNS-1123 labels, parted by dots."""
    if len(given) <= SUBDOMAIN_LIMIT and _SUBDOMAIN.fullmatch(given):
        return None
    return (
        f"is {_shown(given)}",
        f'give 1 to {SUBDOMAIN_LIMIT} of the characters a-z, 0-9, "-" and ".", no part with a "-" at an end',
    )


def _shown(given: Any) -> str:
    """A value in a message: cut, for a manifest may hold anything."""
    text = repr(given)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _text_problem(given: Any) -> Wrong | None:
    if not isinstance(given, str):
        return f"is {_shown(given)}", "give a string (in quotes if it looks like a number)"
    if not given or len(given) > TEXT_LIMIT:
        return f"has {len(given)} characters", f"give 1 to {TEXT_LIMIT}"
    return None


def _unit_problem(given: Any) -> Wrong | None:
    # A bare number would be microseconds to the engine and seconds to most who write one.
    if isinstance(given, str):
        return None
    return f"is {_shown(given)}, without a unit", "write a duration with its unit, such as 10s"


def _finite(given: Any) -> float | None:
    """A number as a float; None if it is none, or none that a float holds."""
    if not isinstance(given, int | float) or isinstance(given, bool):
        return None
    try:
        number = float(given)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


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
) -> tuple[_Section, _Section, str]:
    """The document, its spec and its name."""
    top = _Section(document, "", problems)
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
    return top, spec if spec is not None else _Section({}, "spec", []), name


def _positive(number: float) -> bool:
    return number > 0


def _sources(spec: _Section) -> Iterator[SourceClass]:
    seen: set[tuple[str, str]] = set()
    total = 0
    for place, given in enumerate(spec.listed("sources", SOURCE_CLASSES_LIMIT, required=True)):
        section = _Section(given, f"spec.sources[{place}]", spec.problems)
        source = SourceClass(
            name=section.text("class", _label(LABEL_LIMIT)),
            site=section.text("site", _label(LABEL_LIMIT)),
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


def _node(section: _Section, sources: Iterable[SourceClass]) -> NodeSpec:
    remedy = "give events a second, above 0"
    limit = section.number("ingestLimit", None, _positive, remedy)
    margin = section.number("margin", MARGIN, lambda share: 0 <= share < 1, "give a share from 0 to below 1")
    classes: list[NodeClass] = []
    for place, given in enumerate(section.listed("classes", NODE_CLASSES_LIMIT)):
        inner = _Section(given, f"{section.path}.classes[{place}]", section.problems)
        found = NodeClass(
            inner.selector("selector", required=True), inner.number("ingestLimit", None, _positive, remedy)
        )
        inner.done()
        if found.selector and found.selector in [known.selector for known in classes]:
            inner.wrong("selector", "stands there twice", "give each selector once")
        classes.append(found)
    section.done()
    most = max([limit, *(found.ingest_limit for found in classes)]) * (1 - margin)
    for source in () if section.told("ingestLimit", "margin", "classes") else sources:
        if source.rate > most:
            section.wrong(
                "ingestLimit",
                f"leaves {most:g} events a second with its margin, but one source of class {source.name!r} "
                f"sends {source.rate:g}",
                "raise ingestLimit, or split the source",
            )
    return NodeSpec(limit, margin, tuple(classes))


def _placement(section: _Section | None) -> Placement:
    if section is None:
        return Placement()
    layers = [_layer(section.section(layer)) for layer in ("child", "intermediate", "root")]
    section.done()
    return Placement(*layers)


def _layer(section: _Section | None) -> LayerPlacement:
    if section is None:
        return LayerPlacement()
    mode = section.choice("mode", get_args(Mode), "pool")
    selector = section.selector("nodeSelector")
    section.done()
    return LayerPlacement("perNode" if mode == "perNode" else "pool", selector)


def _limits(section: _Section | None) -> Limits:
    if section is None:
        return Limits()
    found = Limits(
        section.whole("minWidth", 1, low=1, high=NODES_LIMIT),
        section.whole("maxNodes", MAX_NODES, low=1, high=NODES_LIMIT),
    )
    section.done()
    if found.min_width > found.max_nodes and not section.told("minWidth", "maxNodes"):
        section.wrong(
            "minWidth",
            f"{found.min_width} is more than maxNodes, which is {found.max_nodes}",
            "lower minWidth or raise maxNodes",
        )
    return found


def _root(section: _Section | None) -> RootSpec:
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
    storage = Storage()
    volume = section.section("storage")
    if volume is not None:
        claim = volume.text("claim", _subdomain, required=False) or None
        policy = volume.choice("deletionPolicy", get_args(DeletionPolicy), "Retain")
        storage = Storage(claim, "Delete" if policy == "Delete" else "Retain")
        volume.done()
    sinks: list[Sink] = []
    for place, given in enumerate(section.listed("sinks", SINKS_LIMIT)):
        inner = _Section(given, f"{section.path}.sinks[{place}]", section.problems)
        sink = _sink(inner)
        if sink is not None:
            if sink in sinks:
                inner.wrong("type", "stands there twice with the same target", "give each sink once")
            sinks.append(sink)
    section.done()
    return RootSpec(engine, executors, storage, tuple(sinks))


# Fields of each type of sink, and whether it must have them.
_SINK_FIELDS: dict[SinkType, dict[str, bool]] = {
    "console": {},
    "jsonlines": {"path": True},
    "parquet": {"path": True},
    "postgres": {"secretRef": True},
    "webhook": {"url": True, "secretRef": False},
}
_SINK_RULES: dict[str, tuple[Callable[[str], Wrong | None], str]] = {
    "path": (lambda given: _path_problem(given), "give a folder on the root's volume, such as results"),
    "secretRef": (_subdomain, "name the Secret that holds the address and the password"),
    "url": (lambda given: _url_problem(given), "give an address such as https://example.org/results"),
}


def _path_problem(given: str) -> Wrong | None:
    # The same manifest runs on a laptop and in a pod whose file system is read-only elsewhere.
    if given.startswith("/") or ".." in given.split("/") or "\0" in given:
        return f"is {_shown(given)}", 'give a path relative to the root\'s volume, without ".."'
    return None


def _url_problem(given: str) -> Wrong | None:
    if re.fullmatch(r"https?://[^\s/?#@]+([/?#]\S*)?", given):
        return None
    return (
        f"is {_shown(given)}",
        "give an address such as https://example.org/results (a password goes into secretRef)",
    )


def _sink(section: _Section) -> Sink | None:
    known = get_args(SinkType)
    asked = section.choice("type", known)
    given_type = section.value("type")
    kind = next((name for name in _SINK_FIELDS if name == asked and name == given_type), None)
    found: dict[str, str | None] = {}
    for field, (rule, remedy) in _SINK_RULES.items():
        if kind is None:
            section.allow(field)
        elif field in _SINK_FIELDS[kind]:
            required = _SINK_FIELDS[kind][field]
            found[field] = section.text(field, rule, required=required, remedy=remedy) or None
        elif field in section:
            section.allow(field)
            section.wrong(field, f"a {kind} sink has none", f"drop {field}")
    section.done()
    if kind is None:
        return None
    return Sink(kind, found.get("path"), found.get("secretRef"), found.get("url"))


# Queries

# The engine's names, where a manifest writes them otherwise.
_WRITTEN = {
    "at_least": "atLeast",
    "at_most": "atMost",
    "emit_empty": "emitEmpty",
    "key_by": "keyBy",
    "max_open": "maxOpen",
}
_OURS = re.compile(rf"\b({'|'.join(_WRITTEN)})\b")


def _written(text: str) -> str:
    return _OURS.sub(lambda found: _WRITTEN[found[0]], text)


def _queries(spec: _Section, functions: Functions) -> tuple[Query, ...]:
    found = []
    labels: dict[str, str] = {}
    for place, given in enumerate(spec.listed("queries", QUERIES_LIMIT)):
        id = given.get("id") if isinstance(given, Mapping) else None
        usable = isinstance(id, str) and 0 < len(id) <= ID_LIMIT
        path = f"spec.queries[{id if usable else place}]"
        section = _Section(given, path, spec.problems)
        section.allow("id")
        if not usable:
            told = "is missing" if id is None else f"is {_shown(id)}"
            section.wrong("id", told, f"give a name of 1 to {ID_LIMIT} characters")
        # A query without a name is judged all the same, under one that no other has.
        query = _query(section, str(id) if usable else f"\0{place}", functions)
        labels[query.id] = path
        found.append(query)
    queries, wrong = _validated(found, labels)
    spec.problems += _not_yet_told(wrong, spec.problems)
    return queries


def _validated(given: list[Query], labels: Mapping[str, str]) -> tuple[tuple[Query, ...], list[Problem]]:
    """The queries, and what their own validation says, in the words of a manifest."""
    try:
        return validate(given), []
    except InvalidQuery as error:
        return tuple(given), [_translated(problem, labels) for problem in error.problems]


def _translated(problem: Problem, labels: Mapping[str, str]) -> Problem:
    id, found, field = problem.field.removeprefix("queries[").rpartition("].")
    if found:
        path = f"{labels[id]}.{_written(field)}"
    else:
        path = "spec.queries[*]." + _written(problem.field.removeprefix("queries."))
    return Problem(path, problem.message, _written(problem.remedy))


def _not_yet_told(wrong: Iterable[Problem], told: Iterable[Problem]) -> list[Problem]:
    """What is wrong with fields of which nothing is said yet: a stand-in may be judged a second time."""
    known = {problem.field for problem in told}
    return [problem for problem in wrong if problem.field not in known]


def _query(section: _Section, id: str, functions: Functions) -> Query:
    """The query as far as it can be read; the rest is judged by its own validation."""
    window = _window(section.section("window", required=True))
    found = Query(
        id=id,
        window=Tumbling(1) if window is None else window,
        aggregate=_aggregates(section, functions),
        key_by=section.text("keyBy", required=False) or None,
        where=_where(section.section("where")),
        scope="local" if section.choice("scope", ("global", "local"), "global") == "local" else "global",
        deduplicate=section.flag("deduplicate"),
        emit_empty=section.flag("emitEmpty"),
    )
    scheme = section.choice("scheme", _SCHEMES, "auto")
    section.flag("allowInexact")
    if window is not None and not is_count(window):
        for field in ("scheme", "allowInexact"):
            if field in section:
                section.wrong(
                    field,
                    "only windows of a number of events have one",
                    f"drop {field}, or give window.count",
                )
    elif scheme not in _SCHEMES_NOW and section.value("scheme") == scheme:
        section.wrong(
            "scheme",
            f"{scheme} is not available yet: count windows are computed at the root, from forwarded events",
            f"give one of {', '.join(_SCHEMES_NOW)}",
        )
    section.done()
    return found


_SCHEMES = ("central", "approx", "mon", "sync", "async", "auto")
_SCHEMES_NOW = ("central", "auto")


def _aggregates(section: _Section, functions: Functions) -> list[AggregateSpec]:
    """The functions that were understood; `count` in place of nothing, so that the rest can be judged."""
    known = f"give one of {', '.join(aggregates.NAMES)} or {FUNCTION_PREFIX}NAME"
    given = section.value("aggregate", known, required=True)
    if given is None:
        return ["count"]
    single = not isinstance(given, list | tuple)
    listed = [given] if single else section.listed("aggregate", AGGREGATES_LIMIT)
    if not listed:
        section.wrong("aggregate", "is empty", known)
    found: list[AggregateSpec] = []
    for place, name in enumerate(listed):
        field = "aggregate" if single else f"aggregate[{place}]"
        meant: AggregateSpec = name
        if isinstance(name, str) and name.startswith(FUNCTION_PREFIX):
            wanted = name.removeprefix(FUNCTION_PREFIX)
            function = functions(wanted)
            if function is None:
                section.wrong(
                    field,
                    f"{_shown(wanted)} is no function of an installed package",
                    "install the package whose entry point has that name, on every node",
                )
                continue
            if function.name != wanted:
                section.wrong(
                    field,
                    f"the entry point {wanted!r} holds a function called {function.name!r}",
                    "give both the same name",
                )
                continue
            meant = function
        elif not isinstance(name, str):
            section.wrong(field, f"is {_shown(name)}", known)
            continue
        parsed = aggregates.parse(meant)
        if isinstance(parsed, Problem):
            section.wrong(field, parsed.message, parsed.remedy)
        else:
            found.append(meant)
    return found or ["count"]


def _where(section: _Section | None) -> Where:
    if section is None:
        return EVERYTHING
    bounds = {field: section.value(field) for field in ("above", "atLeast", "below", "atMost")}
    keys: frozenset[str] | None = None
    listed = section.listed("keys", KEYS_LIMIT)
    for place, key in enumerate(listed):
        if not isinstance(key, str) or len(key) > TEXT_LIMIT:
            section.wrong(
                f"keys[{place}]", f"is {_shown(key)}", f"give strings of at most {TEXT_LIMIT} characters"
            )
    if "keys" in section and not section.told("keys"):
        keys = frozenset(key for key in listed if isinstance(key, str))
    section.done()
    return Where(bounds["above"], bounds["atLeast"], bounds["below"], bounds["atMost"], keys)


# Fields of each type of window.
_WINDOW_FIELDS = {
    "tumbling": ("length", "offset", "count"),
    "sliding": ("length", "slide", "offset", "count", "every"),
    "session": ("gap",),
    "punctuation": ("start", "end", "merge", "maxOpen"),
}
_DURATIONS = ("length", "slide", "offset", "gap")


def _window(section: _Section | None) -> Window | None:
    """The window as far as it can be read; None if nobody can say which one is meant."""
    if section is None:
        return None
    kind = section.choice("type", tuple(_WINDOW_FIELDS))
    every = dict.fromkeys(field for fields in _WINDOW_FIELDS.values() for field in fields)
    values = {field: section.value(field) for field in every}
    section.done()
    if section.value("type") != kind:
        return None
    for field, value in values.items():
        if value is None:
            continue
        if field not in _WINDOW_FIELDS[kind]:
            having = [name for name, fields in _WINDOW_FIELDS.items() if field in fields]
            section.wrong(
                field, f"a {kind} window has none", f"drop {field}, or make the type {' or '.join(having)}"
            )
        elif field in _DURATIONS:
            values[field] = _length(section, field, value)
        elif field in ("start", "end") and (wrong := _text_problem(value)):
            section.wrong(field, *wrong)
    if kind == "session":
        return Session(values["gap"])
    if kind == "punctuation":
        if values["start"] is None:
            section.wrong("start", "is missing", "name the mark that opens a window")
        if values["merge"] is None:
            section.wrong("merge", "is missing", "give one of local, bounds, order, overlap")
        usual = Punctuation("")
        return Punctuation(
            values["start"], values["end"], values["merge"], _or(values["maxOpen"], usual.max_open)
        )
    offset = _or(values["offset"], 0)
    if kind == "tumbling":
        return Tumbling(values["length"], offset, values["count"])
    return Sliding(values["length"], values["slide"], offset, values["count"], values["every"])


def _or(value: Any, usual: Any) -> Any:
    return usual if value is None else value


def _length(section: _Section, field: str, given: Any) -> Any:
    """A duration as microseconds; what is none stays as it is, for the window to tell."""
    if wrong := _unit_problem(given):
        section.wrong(field, *wrong)
        return given
    try:
        return microseconds(given)
    except ValueError:
        return given
