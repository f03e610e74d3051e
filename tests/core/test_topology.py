"""The manifests: what is taken, what is refused and in which words, and that examples are valid."""

from __future__ import annotations

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
    Ingest,
    InvalidTopology,
    LayerPlacement,
    Limits,
    NodeClass,
    NodeSpec,
    Placement,
    Policies,
    Resources,
    RootSpec,
    Sink,
    SourceClass,
    Storage,
    Toleration,
    Topology,
    query_document,
    query_of,
    topology_of,
)
from headwater.windows import Punctuation, Session, Sliding, Tumbling
from tests.manifests import DESIGN, QUERY_REFUSALS, SMALL, accepted, asked, query_object, refusals, small
from tests.packages import EXAMPLES, example_function
from tests.strategies import EXTREMES, LATEST, PATH, SQUARES, queries

MANIFESTS = sorted(EXAMPLES.glob("*.yaml"))
FUNCTIONS = {function.name: function for function in (SQUARES, EXTREMES, PATH, LATEST)}
MISNAMED = UserDefined("other", float, lambda one, two: one + two, float)


def _functions(name: str) -> UserDefined | None:
    return MISNAMED if name == "misnamed" else FUNCTIONS.get(name)


def _taken(document: dict[str, Any]) -> Query:
    [query] = topology_of(document, _functions).queries
    return query


def test_sinks_with_all_their_fields() -> None:
    sinks = [
        {"type": "postgres", "dsn": "host=db dbname=plant", "dsnEnv": "DSN", "table": "a.b", "timeout": "5s"},
        {"type": "postgres", "dsnEnv": "DSN", "table": "a.c", "retention": "90d"},
        {"type": "postgres", "secretRef": "db", "dsnEnv": "DSN"},
        {
            "type": "webhook",
            "url": "http://[::1]:8080/b@c?d=e",
            "headersEnv": {"X-B": "B", "Authorization": "A"},
        },
    ]
    assert topology_of(small(spec__root__sinks=sinks)).root.sinks == (
        Sink("postgres", dsn="host=db dbname=plant", dsn_env="DSN", table="a.b", timeout=5_000_000),
        Sink("postgres", dsn_env="DSN", table="a.c", retention=90 * 86_400_000_000),
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
    least = topology_of(yaml.safe_load(SMALL))
    assert (least.node, least.placement, least.limits) == (None, Placement(), Limits(1, 200, 100_000))
    few = topology_of(small(spec__limits={"keysPerSource": 1}))
    assert few.limits == Limits(1, 200, 1)
    assert least.root == RootSpec("embedded")
    assert (least.expected, least.rate) == (4, 200.0)
    assert topology_of(small(spec__queries=...)).queries == ()


def test_what_pods_have() -> None:
    document = next(found for id, found in accepted() if id == "pods of child")
    found = topology_of(document).placement.child
    assert found.tolerations == (
        Toleration(None, "Exists"),
        Toleration("example.org/edge", "Equal", None, "NoExecute", 0),
        Toleration("gpu", "Equal", "Yes", "PreferNoSchedule"),
    )
    assert found.affinity == document["spec"]["placement"]["child"]["affinity"]
    assert (found.priority_class, found.image_pull_secrets) == ("high.est", ("one", "two"))
    assert found.env == (("A_1", ""), ("b", "c d"))
    assert found.annotations == (("a", ""), ("example.org/team", "quality, all of it"))
    assert found.resources == Resources(
        (("cpu", "0.25"), ("memory", "64Mi")), (("cpu", "2"), ("memory", "1073741824"))
    )


def test_what_a_cluster_has() -> None:
    least = topology_of(small())
    assert (least.ingest, least.policies, least.suspend) == (Ingest("clusterIP"), Policies(True, True), False)
    exposed = next(found for id, found in accepted() if id == "hostPort")
    assert topology_of(exposed).ingest == Ingest("hostPort", "devices-ca")
    bare = next(found for id, found in accepted() if id == "policies")
    assert topology_of(bare).policies == Policies(False, False)
    suspended = next(found for id, found in accepted() if id == "suspended")
    assert topology_of(suspended).suspend
    assert topology_of(suspended).limits.drain_timeout == 1_000_000


def test_when_a_log_begins_anew() -> None:
    assert topology_of(small()).root.snapshot_after == 64 << 20
    assert topology_of(small(spec__root__snapshotAfter="1 MiB")).root.snapshot_after == 1 << 20


def test_an_archive() -> None:
    assert topology_of(small()).archive is None
    least = topology_of(small(spec__archive={"path": "raw"})).archive
    assert least == Archive("raw", 60_000_000, 7 * 86_400_000_000, 10 << 30)
    given = {"path": "/raw", "rotate": "10s", "retain": "1h", "maxBytes": "64 MiB"}
    assert topology_of(small(spec__archive=given)).archive == Archive("/raw", 10**7, 36 * 10**8, 64 << 20)
    plain = topology_of(small(spec__archive={"path": "raw", "maxBytes": 1 << 20})).archive
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
        topology_of(small(spec__archive=archive))
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
    document = small()
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
    assert _taken(asked(**fields)) == query


@pytest.mark.parametrize(
    "document, field, told",
    [pytest.param(*case, id=f"{case[1]}: {case[2]}") for case in refusals()],
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


@pytest.mark.parametrize("document", [pytest.param(found, id=id) for id, found in accepted()])
def test_what_is_taken(document: dict[str, Any]) -> None:
    judge = query_of if document["kind"] == "AggregationQuery" else topology_of
    judge(document)


def test_everything_is_told_at_once() -> None:
    document = small(
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
        topology_of(asked(id="a].key_by", emitEmpty=True, keyBy="k"))
    assert [problem.field for problem in caught.value.problems] == ["spec.queries[a].key_by].emitEmpty"]


@given(queries())
def test_a_query_survives_its_document(query: Query) -> None:
    document = query_document(query)
    again = yaml.safe_load(yaml.safe_dump(document))
    assert again == document
    assert _taken(small(spec__queries=[again])) == query


@given(queries())
def test_a_query_object_says_the_same(query: Query) -> None:
    fields = query_document(query)
    document = query_object(metadata={"name": fields.pop("id")}, spec={"topologyRef": "factory", **fields})
    assert query_of(document, _functions) == ("factory", query)


@pytest.mark.parametrize(
    "changes, field, told",
    QUERY_REFUSALS,
)
def test_what_is_refused_of_a_query(changes: dict[str, Any], field: str, told: str) -> None:
    with pytest.raises(InvalidTopology) as caught:
        query_of(query_object(**changes))
    found = {problem.field: f"{problem.message}; {problem.remedy}" for problem in caught.value.problems}
    assert told in found.get(field, ""), found


@pytest.mark.parametrize("id", ["a", "Temp_avg.v2", "die Größe", "ä" * 126, "q[1].x", "*"])
def test_ids_that_are_taken(id: str) -> None:
    query = _taken(asked(id=id))
    assert query.id == id
    assert list(query.problems()) == []


def test_the_largest_overlap_is_taken() -> None:
    query = _taken(asked(window={"type": "sliding", "length": "1000s", "slide": "1ms"}))
    assert query.window == Sliding(1_000_000_000, 1_000)


def test_a_status_is_not_ours_to_judge() -> None:
    assert query_of(query_object(status={"accepted": True}))[0] == "factory"
    assert topology_of(small(status={"conditions": []})).name == "small"


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_an_example_is_valid(path: Path) -> None:
    found = topology_of(yaml.safe_load(path.read_text()), example_function)
    assert found.name == path.stem
    assert found.queries
    assert 4 <= found.expected <= 12
    assert all(50 <= source.rate <= 1_000 for source in found.sources)
    assert (found.root.engine, found.root.sinks) == ("spark", (Sink("console"),))
    for query in found.queries:
        alone = small(spec__queries=[query_document(query)])
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
