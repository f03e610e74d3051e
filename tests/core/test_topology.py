"""The manifests: what is taken, what is refused and in which words, and that examples are valid."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given

from headwater.aggregates import UserDefined
from headwater.queries import Query, Where
from headwater.topology import (
    Archive,
    InvalidTopology,
    LayerPlacement,
    Limits,
    NodeClass,
    NodeSpec,
    Placement,
    RootSpec,
    Sink,
    SourceClass,
    Storage,
    Topology,
    query_document,
    query_of,
    topology_of,
)
from headwater.windows import Punctuation, Session, Sliding, Tumbling
from tests.packages import EXAMPLES, example_function
from tests.strategies import EXTREMES, LATEST, PATH, SQUARES, queries

MANIFESTS = sorted(EXAMPLES.glob("*.yaml"))
FUNCTIONS = {function.name: function for function in (SQUARES, EXTREMES, PATH, LATEST)}
MISNAMED = UserDefined("other", float, lambda one, two: one + two, float)

DESIGN = """
apiVersion: headwater.dev/v1alpha1
kind: AggregationTopology
metadata: {name: factory, namespace: plant, labels: {team: quality}}
spec:
  sources: [{class: sensor, site: hall-1, expected: 500, rate: 0.5, lateness: 2s}]
  node:
    ingestLimit: 20
    margin: 0.1
    classes: [{selector: {headwater.dev/device: pi4}, ingestLimit: 12}]
  placement:
    child: {mode: perNode, nodeSelector: {headwater.dev/tier: edge}}
    intermediate: {nodeSelector: {headwater.dev/tier: fog}}
    root: {nodeSelector: {headwater.dev/tier: cloud}}
  limits: {minWidth: 1, maxNodes: 100}
  queries:
    - {id: temp-avg, aggregate: avg, window: {type: sliding, length: 10s, slide: 1s}, keyBy: key}
    - {id: batch-quality, aggregate: [min, max, avg], window: {type: tumbling, count: 1000000}, scheme: auto}
  root:
    engine: spark
    spark: {executors: 2}
    storage: {claim: factory-root, deletionPolicy: Retain}
    sinks: [{type: parquet, path: results}, {type: postgres, secretRef: factory-db}]
"""
SMALL = """
apiVersion: headwater.dev/v1alpha1
kind: AggregationTopology
metadata: {name: small}
spec:
  sources: [{class: sensor, site: hall, expected: 4, rate: 50, lateness: 1s}]
  queries: [{id: q, aggregate: avg, window: {type: tumbling, length: 1s}}]
  root: {engine: embedded}
"""


def _functions(name: str) -> UserDefined | None:
    return MISNAMED if name == "misnamed" else FUNCTIONS.get(name)


def _small(**changes: Any) -> dict[str, Any]:
    """The small manifest, with values put at paths such as `spec__limits__minWidth`; `...` takes one away."""
    document: dict[str, Any] = yaml.safe_load(SMALL)
    for path, value in changes.items():
        where: Any = document
        *steps, last = (int(step) if step.isdigit() else step for step in path.split("__"))
        for step in steps:
            where = where[step] if isinstance(step, int) else where.setdefault(step, {})
        if value is ...:
            del where[last]
        else:
            where[last] = value
    return document


def _asked(**query: Any) -> dict[str, Any]:
    """The small manifest with fields of its query replaced; None takes one away."""
    document = _small()
    document["spec"]["queries"][0].update(query)
    return document


def _taken(document: dict[str, Any]) -> Query:
    [query] = topology_of(document, _functions).queries
    return query


def test_sinks_with_all_their_fields() -> None:
    sinks = [
        {"type": "postgres", "dsn": "host=db dbname=plant", "dsnEnv": "DSN", "table": "a.b", "timeout": "5s"},
        {"type": "postgres", "secretRef": "db", "dsnEnv": "DSN"},
        {
            "type": "webhook",
            "url": "http://[::1]:8080/b@c?d=e",
            "headersEnv": {"X-B": "B", "Authorization": "A"},
        },
    ]
    assert topology_of(_small(spec__root__sinks=sinks)).root.sinks == (
        Sink("postgres", dsn="host=db dbname=plant", dsn_env="DSN", table="a.b", timeout=5_000_000),
        Sink("postgres", secret_ref="db", dsn_env="DSN"),
        Sink("webhook", url="http://[::1]:8080/b@c?d=e", headers_env=(("Authorization", "A"), ("X-B", "B"))),
    )


def test_the_manifest_of_the_design() -> None:
    assert topology_of(yaml.safe_load(DESIGN)) == Topology(
        name="factory",
        sources=(SourceClass("sensor", "hall-1", 500, 0.5, 2_000_000, 60_000_000),),
        node=NodeSpec(20, 0.1, (NodeClass((("headwater.dev/device", "pi4"),), 12),)),
        placement=Placement(
            LayerPlacement("perNode", (("headwater.dev/tier", "edge"),)),
            LayerPlacement("pool", (("headwater.dev/tier", "fog"),)),
            LayerPlacement("pool", (("headwater.dev/tier", "cloud"),)),
        ),
        limits=Limits(1, 100),
        queries=(
            Query("temp-avg", Sliding(10_000_000, 1_000_000), "avg", key_by="key"),
            Query("batch-quality", Tumbling(count=1_000_000), ["min", "max", "avg"]),
        ),
        root=RootSpec(
            "spark",
            2,
            Storage("factory-root", "Retain"),
            (Sink("parquet", path="results"), Sink("postgres", secret_ref="factory-db")),
        ),
        start_timeout=30_000_000,
        flush_interval=100_000,
        horizon=3_600_000_000,
    )


def test_what_may_be_left_out() -> None:
    small = topology_of(yaml.safe_load(SMALL))
    assert (small.node, small.placement, small.limits) == (None, Placement(), Limits(1, 200, 100_000))
    few = topology_of(_small(spec__limits={"keysPerSource": 1}))
    assert few.limits == Limits(1, 200, 1)
    assert small.root == RootSpec("embedded")
    assert (small.expected, small.rate) == (4, 200.0)
    assert topology_of(_small(spec__queries=...)).queries == ()


def test_an_archive() -> None:
    assert topology_of(_small()).archive is None
    least = topology_of(_small(spec__archive={"path": "raw"})).archive
    assert least == Archive("raw", 60_000_000, 7 * 86_400_000_000, 10 << 30)
    given = {"path": "/raw", "rotate": "10s", "retain": "1h", "maxBytes": "64 MiB"}
    assert topology_of(_small(spec__archive=given)).archive == Archive("/raw", 10**7, 36 * 10**8, 64 << 20)
    plain = topology_of(_small(spec__archive={"path": "raw", "maxBytes": 1 << 20})).archive
    assert plain is not None
    assert plain.max_bytes == 1 << 20


@pytest.mark.parametrize(
    "archive, field, told",
    [
        ({}, "spec.archive.path", "is missing"),
        ({"path": "../raw"}, "spec.archive.path", "without"),
        ({"path": "a", "rotate": "0.5s"}, "spec.archive.rotate", "give 1s or more"),
        (
            {"path": "a", "rotate": "1h", "retain": "1m"},
            "spec.archive.retain",
            "raise retain or lower rotate",
        ),
        ({"path": "a", "maxBytes": "10GB"}, "spec.archive.maxBytes", "GiB"),
        ({"path": "a", "maxBytes": "1KiB"}, "spec.archive.maxBytes", "1048576 or more"),
        ({"path": "a", "maxBytes": True}, "spec.archive.maxBytes", "True"),
        ({"path": "a", "keep": "1h"}, "spec.archive.keep", "is not known"),
    ],
)
def test_what_is_refused_of_an_archive(archive: dict[str, Any], field: str, told: str) -> None:
    with pytest.raises(InvalidTopology) as raised:
        topology_of(_small(spec__archive=archive))
    (problem,) = raised.value.problems
    assert problem.field == field
    assert told.lower() in str(problem).lower()


def test_sources_add_up() -> None:
    other = {
        "class": "meter",
        "site": "hall",
        "expected": 3,
        "rate": 0.5,
        "lateness": "0s",
        "idleAfter": "5s",
    }
    document = _small()
    document["spec"]["sources"].append(other)
    found = topology_of(document)
    assert found.sources[1] == SourceClass("meter", "hall", 3, 0.5, 0, 5_000_000)
    assert (found.expected, found.rate) == (7, 201.5)


VALID: dict[str, tuple[dict[str, Any], Query]] = {
    "sliding": (
        {"window": {"type": "sliding", "length": "1m", "slide": "1s", "offset": "-500ms"}},
        Query("q", Sliding(60_000_000, 1_000_000, -500_000), "avg"),
    ),
    "sliding count": (
        {"window": {"type": "sliding", "count": 8, "every": 2}, "scheme": "central"},
        Query("q", Sliding(count=8, every=2), "avg"),
    ),
    "session": ({"window": {"type": "session", "gap": "1h30m"}}, Query("q", Session(5_400_000_000), "avg")),
    "punctuation": (
        {"window": {"type": "punctuation", "start": "S", "end": "E", "merge": "overlap", "maxOpen": 5}},
        Query("q", Punctuation("S", "E", "overlap", 5), "avg"),
    ),
    "one mark": (
        {"window": {"type": "punctuation", "start": "S", "end": None, "merge": "order"}},
        Query("q", Punctuation("S", None, "order"), "avg"),
    ),
    "functions": (
        {"aggregate": ["quantile(0.99)", "top(3)", "function:squares"]},
        Query("q", Tumbling(1_000_000), ["quantile(0.99)", "top(3)", SQUARES]),
    ),
    "where": (
        {
            "keyBy": "machine",
            "where": {"above": -1, "atLeast": 0, "below": 9.5, "atMost": 9, "keys": ["a", ""]},
        },
        Query("q", Tumbling(1_000_000), "avg", "machine", Where(-1, 0, 9.5, 9, frozenset({"a", ""}))),
    ),
    "local": ({"scope": "local"}, Query("q", Tumbling(1_000_000), "avg", scope="local")),
    "switches": (
        {"deduplicate": True, "emitEmpty": True},
        Query("q", Tumbling(1_000_000), "avg", deduplicate=True, emit_empty=True),
    ),
}


@pytest.mark.parametrize("fields, query", VALID.values(), ids=VALID)
def test_a_valid_query(fields: dict[str, Any], query: Query) -> None:
    assert _taken(_asked(**fields)) == query


def _refusals() -> Iterator[tuple[dict[str, Any], str, str]]:
    """Each rule broken once: the document, the field that is told, and a piece of what is said."""
    source = "spec__sources__0__"
    yield _small(apiVersion="headwater.dev/v2"), "apiVersion", "headwater.dev/v1alpha1"
    yield _small(apiVersion=...), "apiVersion", "is missing"
    yield _small(kind="Topology"), "kind", "AggregationTopology"
    yield _small(speck=1), "speck", "did you mean spec?"
    yield _small(spec=...), "spec", "is missing"
    yield _small(spec=[]), "spec", "mapping"
    yield _small(metadata=...), "metadata", "is missing"
    yield _small(metadata__name=...), "metadata.name", "is missing"
    yield _small(metadata__name="Factory"), "metadata.name", "a-z"
    yield _small(metadata__name="a" * 41), "metadata.name", "1 to 40"
    yield _small(metadata__name="-a"), "metadata.name", "a-z"
    yield _small(metadata__name="a\n"), "metadata.name", "a-z"
    yield _small(metadata__name=5), "metadata.name", "give a string"
    yield _small(metadata__lables={}), "metadata.lables", "did you mean labels?"

    yield _small(spec__sources=...), "spec.sources", "is missing"
    yield _small(spec__sources=[]), "spec.sources", "is empty"
    yield _small(spec__sources={}), "spec.sources", "give a list"
    yield _small(spec__sources=["sensor"]), "spec.sources[0]", "mapping"
    yield _small(**{source + "class": ...}), "spec.sources[0].class", "is missing"
    yield _small(**{source + "class": "A"}), "spec.sources[0].class", "a-z"
    yield _small(**{source + "class": ""}), "spec.sources[0].class", "0 characters"
    yield _small(**{source + "class": "a" * 254}), "spec.sources[0].class", "1 to 63"
    yield _small(**{source + "class": "a\0b"}), "spec.sources[0].class", "a-z"
    yield _small(**{source + "site": "a\nb"}), "spec.sources[0].site", "a-z"
    yield _small(**{source + "site": ...}), "spec.sources[0].site", "is missing"
    yield _small(**{source + "expected": ...}), "spec.sources[0].expected", "is missing"
    yield _small(**{source + "expected": 0}), "spec.sources[0].expected", "from 1"
    yield _small(**{source + "expected": True}), "spec.sources[0].expected", "whole number"
    yield _small(**{source + "expected": 1.5}), "spec.sources[0].expected", "whole number"
    yield _small(**{source + "rate": ...}), "spec.sources[0].rate", "is missing"
    yield _small(**{source + "rate": 0}), "spec.sources[0].rate", "above 0"
    yield _small(**{source + "rate": float("inf")}), "spec.sources[0].rate", "above 0"
    yield _small(**{source + "rate": 10**400}), "spec.sources[0].rate", "above 0"
    yield _small(**{source + "lateness": ...}), "spec.sources[0].lateness", "is missing"
    yield _small(**{source + "lateness": 2}), "spec.sources[0].lateness", "without a unit"
    yield _small(**{source + "lateness": "-1s"}), "spec.sources[0].lateness", "0s or more"
    yield _small(**{source + "lateness": "2 sec"}), "spec.sources[0].lateness", "no duration"
    yield _small(**{source + "lateness": "2h"}), "spec.horizon", "longer than every lateness"
    yield _small(**{source + "idleAfter": "0s"}), "spec.sources[0].idleAfter", "or more"
    yield _small(**{source + "latenes": "1s"}), "spec.sources[0].latenes", "did you mean lateness?"
    twice = _small()
    twice["spec"]["sources"] *= 2
    yield twice, "spec.sources[1].class", "twice"
    many = _small()
    many["spec"]["sources"] *= 300
    yield many, "spec.sources", "at most 256"
    yield _small(**{source + "expected": 1_000_001}), "spec.sources[0].expected", "to 1000000"

    yield _small(spec__startTimeout="0s"), "spec.startTimeout", "or more"
    yield _small(spec__flushInterval=100), "spec.flushInterval", "without a unit"
    yield _small(spec__flushInterval="10us"), "spec.flushInterval", "1ms or more"
    yield _small(spec__horizon="soon"), "spec.horizon", "no duration"
    yield _small(spec__horizon="1s"), "spec.horizon", "lateness"
    yield _small(spec__horizn="1h"), "spec.horizn", "did you mean horizon?"

    yield _small(spec__node={}), "spec.node.ingestLimit", "is missing"
    yield _small(spec__node={"ingestLimit": -1}), "spec.node.ingestLimit", "above 0"
    yield _small(spec__node={"ingestLimit": 50}), "spec.node.ingestLimit", "one source of class 'sensor'"
    yield _small(spec__node={"ingestLimit": 99, "margin": 1}), "spec.node.margin", "below 1"
    classes = [{"selector": {"a": "b"}, "ingestLimit": 0}]
    yield (
        _small(spec__node={"ingestLimit": 99, "classes": classes}),
        "spec.node.classes[0].ingestLimit",
        "above",
    )
    classes = [{"ingestLimit": 1}]
    yield (
        _small(spec__node={"ingestLimit": 99, "classes": classes}),
        "spec.node.classes[0].selector",
        "missing",
    )
    classes = [{"selector": {"a": "b"}, "ingestLimit": 1}] * 2
    yield _small(spec__node={"ingestLimit": 99, "classes": classes}), "spec.node.classes[1].selector", "twice"
    yield _small(spec__node={"ingestLimit": 99, "class": []}), "spec.node.class", "did you mean classes?"

    yield _small(spec__placement={"childs": {}}), "spec.placement.childs", "did you mean child?"
    yield _small(spec__placement={"child": {"mode": "each"}}), "spec.placement.child.mode", "pool, perNode"
    selector = {"a": 1}
    yield (
        _small(spec__placement={"root": {"nodeSelector": selector}}),
        "spec.placement.root.nodeSelector[a]",
        "in quotes",
    )
    yield (
        _small(spec__placement={"root": {"nodeSelector": {"a b": "c"}}}),
        "spec.placement.root.nodeSelector",
        "name labels",
    )
    yield (
        _small(spec__placement={"root": {"nodeSelector": "edge"}}),
        "spec.placement.root.nodeSelector",
        "give labels",
    )
    yield _small(spec__limits={"minWidth": 0}), "spec.limits.minWidth", "from 1"
    yield _small(spec__limits={"maxNodes": "9"}), "spec.limits.maxNodes", "whole number"
    yield _small(spec__limits={"minWidth": 3, "maxNodes": 2}), "spec.limits.minWidth", "maxNodes"
    for wrong in (0, -1, 1.5, True, "100", 10**9 + 1):
        yield (
            _small(spec__limits={"keysPerSource": wrong}),
            "spec.limits.keysPerSource",
            "give a whole number from 1 to 1000000000",
        )

    yield _small(spec__root=...), "spec.root", "is missing"
    yield _small(spec__root={}), "spec.root.engine", "is missing"
    yield _small(spec__root__engine="flink"), "spec.root.engine", "spark, embedded"
    yield _small(spec__root__engine="embeded"), "spec.root.engine", "did you mean embedded?"
    yield _small(spec__root__spark={"executors": 1}), "spec.root.spark", "engine embedded"
    yield (
        _small(spec__root={"engine": "spark", "spark": {"executors": -1}}),
        "spec.root.spark.executors",
        "from 0",
    )
    yield _small(spec__root__storage={"claim": "A"}), "spec.root.storage.claim", "a-z"
    yield (
        _small(spec__root__storage={"deletionPolicy": "Keep"}),
        "spec.root.storage.deletionPolicy",
        "Retain, Delete",
    )
    for sink, field, told in [
        ({}, "type", "is missing"),
        ({"type": "kafka"}, "type", "console, jsonlines"),
        ({"type": "jsonlines"}, "path", "is missing"),
        ({"type": "parquet", "path": "/results"}, "path", "relative"),
        ({"type": "parquet", "path": "a/../../b"}, "path", "relative"),
        ({"type": "console", "path": "a"}, "path", "has none"),
        ({"type": "postgres"}, "dsnEnv", "is missing"),
        ({"type": "postgres", "dsn": "postgresql://me:hush@db/x"}, "dsn", "holds a password"),
        ({"type": "postgres", "dsn": "host=db Password = hush"}, "dsn", "dsnEnv"),
        ({"type": "postgres", "dsn": "postgresql://db/x?sslpassword=hush"}, "dsn", "dsnEnv"),
        ({"type": "postgres", "dsn": "my database"}, "dsn", "is no address of a database"),
        ({"type": "postgres", "dsnEnv": "postgresql://me:hush@db"}, "dsnEnv", "no name of an environment"),
        ({"type": "postgres", "dsn": {"password": "hush"}}, "dsn", "is no string"),
        ({"type": "postgres", "dsnEnv": "D", "table": "a.b.c"}, "table", "a schema, a dot and a table"),
        ({"type": "postgres", "dsnEnv": "D", "table": 'x"; drop'}, "table", "a-z, 0-9 and _"),
        ({"type": "postgres", "dsnEnv": "D", "table": "headwater_cursors"}, "table", "holds the cursors"),
        ({"type": "postgres", "dsnEnv": "D", "timeout": "2h"}, "timeout", "give 1h at most"),
        ({"type": "postgres", "dsnEnv": "D", "timeout": 5}, "timeout", "unit"),
        ({"type": "postgres", "dsnEnv": "D", "url": "http://a"}, "url", "has none"),
        ({"type": "jsonlines", "path": "a", "timeout": "5s"}, "timeout", "has none"),
        ({"type": "webhook", "url": "https://a", "headersEnv": "hush"}, "headersEnv", "is no mapping"),
        ({"type": "webhook", "url": "https://a", "headersEnv": {"A b": "V"}}, "headersEnv", "header 'A b'"),
        (
            {"type": "webhook", "url": "https://a", "headersEnv": {"X": "Bearer hush"}},
            "headersEnv[X]",
            "give its name",
        ),
        (
            {"type": "webhook", "url": "https://a", "headersEnv": {"Host": "V"}},
            "headersEnv[Host]",
            "writes itself",
        ),
        (
            {"type": "webhook", "url": "https://a", "headersEnv": {"X": "V", "x": "W"}},
            "headersEnv[x]",
            "twice",
        ),
        ({"type": "webhook"}, "url", "is missing"),
        ({"type": "webhook", "url": "ftp://a"}, "url", "https://"),
        ({"type": "webhook", "url": "https://a:65536/"}, "url", "https://"),
        ({"type": "webhook", "url": "https://a:x/"}, "url", "https://"),
        ({"type": "webhook", "url": "https://a/ b"}, "url", "https://"),
        ({"type": "webhook", "url": "https://ä/"}, "url", "https://"),
        ({"type": "webhook", "url": "https://me:hush@a"}, "url", "secretRef"),
        ({"type": "console", "colour": True}, "colour", "known are"),
    ]:
        yield _small(spec__root__sinks=[sink]), f"spec.root.sinks[0].{field}", told
    yield _small(spec__root__sinks=[{"type": "console"}] * 2), "spec.root.sinks[1].type", "twice"
    for one, other in (("a", "./a/"), ("a", "a/b"), ("a/b", "a")):
        overlapping = [{"type": "jsonlines", "path": one}, {"type": "parquet", "path": other}]
        yield _small(spec__root__sinks=overlapping), "spec.root.sinks[1].path", "a folder of its own"

    yield _small(spec__queries={}), "spec.queries", "give a list"
    yield _small(spec__queries=["q"]), "spec.queries[0]", "mapping"
    one = _small()["spec"]["queries"]
    yield _small(spec__queries=one * 2), "spec.queries[q].id", "is there already"
    yield _small(spec__queries=[{**one[0], "id": f"q{n}"} for n in range(257)]), "spec.queries", "at most 256"
    columns = [{**one[0], "id": name, "keyBy": name} for name in "ab"]
    yield _small(spec__queries=columns), "spec.queries[*].keyBy", "names different columns"
    tumbling = {"type": "tumbling", "length": "1s"}
    marks = {"type": "punctuation", "start": "S", "end": "E", "merge": "local"}
    for query, field, told in [
        ({"id": None}, "id", "is missing"),
        ({"id": 7}, "id", "is 7"),
        ({"id": ""}, "id", "has 0 bytes; give 1 to 253 bytes"),
        ({"id": "ä" * 127}, "id", "has 254 bytes; give 1 to 253 bytes"),
        ({"id": "a/b"}, "id", "is 'a/b'; give 1 to 253 bytes that print, without \"/\""),
        ({"id": "a\nb"}, "id", "is 'a\\nb'; give"),
        ({"id": "a\u202eb"}, "id", "is 'a\\u202eb'; give"),
        ({"id": " a"}, "id", "is ' a'; give"),
        ({"id": "a "}, "id", "without a space at an end"),
        ({"aggregate": None}, "aggregate", "is missing"),
        ({"aggregate": []}, "aggregate", "is empty"),
        ({"aggregate": "average"}, "aggregate", "'average' is not known"),
        ({"aggregate": 5}, "aggregate", "is 5"),
        ({"aggregate": ["avg", "top(0)"]}, "aggregate[1]", "no usable k"),
        ({"aggregate": ["avg", "avg"]}, "aggregate", "twice"),
        ({"aggregate": "function:nowhere"}, "aggregate", "installed package"),
        ({"aggregate": "function:misnamed"}, "aggregate", "called 'other'"),
        ({"agregate": "avg"}, "agregate", "did you mean aggregate?"),
        ({"keyBy": 5}, "keyBy", "give a string"),
        ({"scope": "site"}, "scope", "global, local"),
        ({"deduplicate": "yes"}, "deduplicate", "true or false"),
        ({"emitEmpty": True, "keyBy": "key"}, "emitEmpty", "drop emitEmpty, keyBy or scope"),
        ({"scheme": "central"}, "scheme", "window.count"),
        ({"allowInexact": True}, "allowInexact", "window.count"),
        ({"window": {"type": "tumbling", "count": 5}, "scheme": "sync"}, "scheme", "not available yet"),
        ({"window": {"type": "tumbling", "count": 5}, "scheme": "fast"}, "scheme", "give one of central"),
        ({"window": {"type": "tumbling", "count": 5}, "allowInexact": 1}, "allowInexact", "true or false"),
        ({"where": []}, "where", "mapping"),
        ({"where": {"above": "5"}}, "where.above", "give a number"),
        ({"where": {"atLeast": True}}, "where.atLeast", "give a number"),
        ({"where": {"above": 5, "atMost": 5}}, "where", "no value can match"),
        ({"where": {"keys": []}}, "where.keys", "is empty"),
        ({"where": {"keys": "k"}}, "where.keys", "give a list"),
        ({"where": {"keys": ["k", ["l"]]}}, "where.keys[1]", "give strings"),
        ({"where": {"at_least": 5}}, "where.at_least", "did you mean atLeast?"),
        ({"window": None}, "window", "is missing"),
        ({"window": "tumbling"}, "window", "mapping"),
        ({"window": {"length": "1s"}}, "window.type", "is missing"),
        ({"window": {"type": "hopping"}}, "window.type", "tumbling, sliding"),
        ({"window": {"type": "tumbling"}}, "window.length", "is missing"),
        ({"window": {"type": "tumbling", "length": 10}}, "window.length", "without a unit"),
        ({"window": {"type": "tumbling", "length": "10 s"}}, "window.length", "no duration"),
        ({"window": {"type": "tumbling", "length": "0s"}}, "window.length", "above zero"),
        ({"window": {**tumbling, "count": 5}}, "window.length", "beside count"),
        ({"window": {"type": "tumbling", "count": 0}}, "window.count", "at least 1"),
        ({"window": {"type": "tumbling", "count": 5, "offset": "1s"}}, "window.offset", "no offset"),
        ({"window": {**tumbling, "offset": 5}}, "window.offset", "without a unit"),
        ({"window": {**tumbling, "slide": "1s"}}, "window.slide", "make the type sliding"),
        ({"window": {**tumbling, "lenght": "1s"}}, "window.lenght", "did you mean length?"),
        ({"window": {**tumbling, "type": "sliding"}}, "window.slide", "is missing"),
        ({"window": {**tumbling, "type": "sliding", "slide": "2s"}}, "window.slide", "at most length"),
        (
            {"window": {"type": "sliding", "length": "1000000d", "slide": "1us"}},
            "window.slide",
            "windows of 1000000d, each of which is a result; make slide at least 1d",
        ),
        (
            {"window": {"type": "sliding", "length": "1000001us", "slide": "1us"}},
            "window.slide",
            "into 1,000,001 windows of 1s1us, each of which is a result; make slide at least 2us",
        ),
        ({"window": {"type": "sliding", "count": 5}}, "window.every", "whole number"),
        ({"window": {"type": "sliding", "count": 5, "every": 6}}, "window.every", "at most count"),
        ({"window": {"type": "session"}}, "window.gap", "is missing"),
        ({"window": {**marks, "start": None}}, "window.start", "is missing"),
        ({"window": {**marks, "start": 5}}, "window.start", "give a string"),
        ({"window": {**marks, "merge": None}}, "window.merge", "is missing"),
        ({"window": {**marks, "merge": "gap"}}, "window.merge", "local, bounds, order, overlap"),
        ({"window": {**marks, "maxOpen": 0}}, "window.maxOpen", "at least 1"),
        ({"window": {**marks, "end": None, "merge": "overlap"}}, "window.merge", "give an end mark"),
        ({"window": marks, "deduplicate": True}, "window", "follows one source"),
    ]:
        assert isinstance(query, dict)
        place = "0" if "id" in query else "q"
        yield _asked(**query), f"spec.queries[{place}].{field}", str(told)


@pytest.mark.parametrize(
    "document, field, told",
    [pytest.param(*case, id=f"{case[1]}: {case[2]}") for case in _refusals()],
)
def test_what_is_refused(document: dict[str, Any], field: str, told: str) -> None:
    untouched = deepcopy(document)
    with pytest.raises(InvalidTopology) as caught:
        topology_of(document, _functions)
    found = {problem.field: f"{problem.message}; {problem.remedy}" for problem in caught.value.problems}
    assert told in found.get(field, ""), found
    # The password of every case that has one.
    assert "hush" not in str(caught.value)
    assert document == untouched


@pytest.mark.parametrize("document", [None, 5, [], "apiVersion: v1"])
def test_what_is_no_document(document: Any) -> None:
    with pytest.raises(InvalidTopology, match="mapping"):
        topology_of(document)


def test_everything_is_told_at_once() -> None:
    document = _small(
        metadata__name="No",
        spec__sources__0__rate=-1,
        spec__limits={"minWidth": 0},
        spec__root__engine="none",
        spec__queries=[
            {"id": "a", "aggregate": ["nonsense", "function:x"], "window": {"type": "sliding", "length": 5}},
            {"aggregate": "avg", "window": {"type": "session"}, "key": "k"},
        ],
    )
    with pytest.raises(InvalidTopology) as caught:
        topology_of(document)
    assert [problem.field for problem in caught.value.problems] == [
        "metadata.name",
        "spec.sources[0].rate",
        "spec.limits.minWidth",
        "spec.queries[a].window.length",
        "spec.queries[a].aggregate[0]",
        "spec.queries[a].aggregate[1]",
        "spec.queries[1].id",
        "spec.queries[1].key",
        "spec.queries[a].window.slide",
        "spec.queries[1].window.gap",
        "spec.root.engine",
    ]
    assert str(caught.value).startswith(
        "the topology '' cannot be taken:\n  - metadata.name: is 'No'; give 1 to 40"
    )


def test_names_of_ours_in_an_id_stay_as_they_are() -> None:
    with pytest.raises(InvalidTopology) as caught:
        topology_of(_asked(id="a].key_by", emitEmpty=True, keyBy="k"))
    assert [problem.field for problem in caught.value.problems] == ["spec.queries[a].key_by].emitEmpty"]


@given(queries())
def test_a_query_survives_its_document(query: Query) -> None:
    document = query_document(query)
    again = yaml.safe_load(yaml.safe_dump(document))
    assert again == document
    assert _taken(_small(spec__queries=[again])) == query


@given(queries())
def test_a_query_object_says_the_same(query: Query) -> None:
    fields = query_document(query)
    document = _object(metadata={"name": fields.pop("id")}, spec={"topologyRef": "factory", **fields})
    assert query_of(document, _functions) == ("factory", query)


def _object(**changes: Any) -> dict[str, Any]:
    spec = {"topologyRef": "factory", "aggregate": "avg", "window": {"type": "tumbling", "length": "1s"}}
    return {
        "apiVersion": "headwater.dev/v1alpha1",
        "kind": "AggregationQuery",
        "metadata": {"name": "q"},
        "spec": spec,
        **changes,
    }


@pytest.mark.parametrize(
    "changes, field, told",
    [
        ({"kind": "AggregationTopology"}, "kind", "AggregationQuery"),
        ({"metadata": {"name": "Q"}}, "metadata.name", "a-z"),
        (
            {"spec": {"aggregate": "avg", "window": {"type": "session", "gap": "1s"}}},
            "spec.topologyRef",
            "missing",
        ),
        (
            {"spec": {"topologyRef": "a", "aggregate": "avg", "window": {"type": "session"}}},
            "spec.window.gap",
            "miss",
        ),
        ({"spec": {"topologyRef": "a", "id": "a"}}, "spec.id", "is not known"),
        ({"spec": {"topologyRef": "a", "emitEmpty": True, "scope": "local"}}, "spec.emitEmpty", "keyBy"),
        ({"spec": None}, "spec", "is missing"),
    ],
)
def test_what_is_refused_of_a_query(changes: dict[str, Any], field: str, told: str) -> None:
    with pytest.raises(InvalidTopology) as caught:
        query_of(_object(**changes))
    found = {problem.field: f"{problem.message}; {problem.remedy}" for problem in caught.value.problems}
    assert told in found.get(field, ""), found


@pytest.mark.parametrize("id", ["a", "Temp_avg.v2", "die Größe", "ä" * 126, "q[1].x", "*"])
def test_ids_that_are_taken(id: str) -> None:
    query = _taken(_asked(id=id))
    assert query.id == id
    assert list(query.problems()) == []


def test_the_largest_overlap_is_taken() -> None:
    query = _taken(_asked(window={"type": "sliding", "length": "1000s", "slide": "1ms"}))
    assert query.window == Sliding(1_000_000_000, 1_000)


def test_a_status_is_not_ours_to_judge() -> None:
    assert query_of(_object(status={"accepted": True}))[0] == "factory"
    assert topology_of(_small(status={"conditions": []})).name == "small"


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_an_example_is_valid(path: Path) -> None:
    found = topology_of(yaml.safe_load(path.read_text()), example_function)
    assert found.name == path.stem
    assert found.queries
    assert 4 <= found.expected <= 12
    assert all(50 <= source.rate <= 500 for source in found.sources)
    assert (found.root.engine, found.root.sinks) == ("spark", (Sink("console"),))
    for query in found.queries:
        alone = _small(spec__queries=[query_document(query)])
        assert [query] == list(topology_of(alone, example_function).queries)


def test_examples_cover_windows_and_aggregates() -> None:
    documents = [yaml.safe_load(path.read_text()) for path in MANIFESTS]
    every = [query for document in documents for query in topology_of(document, example_function).queries]
    kinds = {type(query.window) for query in every}
    assert kinds == {Tumbling, Sliding, Session, Punctuation}
    assert {query.window.merge for query in every if isinstance(query.window, Punctuation)} == {
        "local",
        "bounds",
        "order",
        "overlap",
    }
    functions = {function.name.partition("(")[0] for query in every for function in query.aggregates}
    assert functions == {
        *("sum", "count", "avg", "product", "geomean", "variance", "stddev", "min", "max", "range"),
        *("first", "last", "median", "quantile", "distinct", "mode", "top", "bottom"),
        # A function of one's own.
        "rms",
    }
