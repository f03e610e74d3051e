"""Manifests that are taken and manifests that are refused, a pair for each rule: for whoever judges them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

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


def small(**changes: Any) -> dict[str, Any]:
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


def asked(**query: Any) -> dict[str, Any]:
    """The small manifest with fields of its query replaced; None takes one away, also within its window."""
    document = small()
    found = {**document["spec"]["queries"][0], **query}
    document["spec"]["queries"][0] = {
        name: _without_none(value) for name, value in found.items() if value is not None
    }
    return document


def _without_none(given: Any) -> Any:
    if not isinstance(given, dict):
        return given
    return {name: value for name, value in given.items() if value is not None}


def refusals() -> Iterator[tuple[dict[str, Any], str, str]]:
    """Each rule broken once: the document, the field that is told, and a piece of what is said."""
    source = "spec__sources__0__"
    yield small(apiVersion="headwater.dev/v2"), "apiVersion", "headwater.dev/v1alpha1"
    yield small(apiVersion=...), "apiVersion", "is missing"
    yield small(kind="Topology"), "kind", "AggregationTopology"
    yield small(speck=1), "speck", "did you mean spec?"
    yield small(spec=...), "spec", "is missing"
    yield small(spec=[]), "spec", "mapping"
    yield small(metadata=...), "metadata", "is missing"
    yield small(metadata__name=...), "metadata.name", "is missing"
    yield small(metadata__name="Factory"), "metadata.name", "a-z"
    yield small(metadata__name="a" * 41), "metadata.name", "1 to 40"
    yield small(metadata__name="-a"), "metadata.name", "a-z"
    yield small(metadata__name="3d-factory"), "metadata.name", "a letter first"
    yield small(metadata__name="a\n"), "metadata.name", "a-z"
    yield small(metadata__name=5), "metadata.name", "give a string"
    yield small(metadata__lables={}), "metadata.lables", "did you mean labels?"

    yield small(spec__sources=...), "spec.sources", "is missing"
    yield small(spec__sources=[]), "spec.sources", "is empty"
    yield small(spec__sources={}), "spec.sources", "give a list"
    yield small(spec__sources=["sensor"]), "spec.sources[0]", "mapping"
    yield small(**{source + "class": ...}), "spec.sources[0].class", "is missing"
    yield small(**{source + "class": "A"}), "spec.sources[0].class", "a-z"
    yield small(**{source + "class": ""}), "spec.sources[0].class", "0 characters"
    yield small(**{source + "class": "a" * 254}), "spec.sources[0].class", "1 to 63"
    yield small(**{source + "class": "a\0b"}), "spec.sources[0].class", "a-z"
    yield small(**{source + "site": "a\nb"}), "spec.sources[0].site", "a-z"
    yield small(**{source + "site": ...}), "spec.sources[0].site", "is missing"
    yield small(**{source + "expected": ...}), "spec.sources[0].expected", "is missing"
    yield small(**{source + "expected": 0}), "spec.sources[0].expected", "from 1"
    yield small(**{source + "expected": True}), "spec.sources[0].expected", "whole number"
    yield small(**{source + "expected": 1.5}), "spec.sources[0].expected", "whole number"
    yield small(**{source + "rate": ...}), "spec.sources[0].rate", "is missing"
    yield small(**{source + "rate": 0}), "spec.sources[0].rate", "above 0"
    yield small(**{source + "rate": float("inf")}), "spec.sources[0].rate", "above 0"
    yield small(**{source + "rate": 10**400}), "spec.sources[0].rate", "above 0"
    yield small(**{source + "lateness": ...}), "spec.sources[0].lateness", "is missing"
    yield small(**{source + "lateness": 2}), "spec.sources[0].lateness", "without a unit"
    yield small(**{source + "lateness": "-1s"}), "spec.sources[0].lateness", "0s or more"
    yield small(**{source + "lateness": "1s" * 17}), "spec.sources[0].lateness", "at most 32"
    yield small(**{source + "lateness": "2 sec"}), "spec.sources[0].lateness", "no duration"
    yield small(**{source + "lateness": "2h"}), "spec.horizon", "longer than every lateness"
    yield small(**{source + "idleAfter": "0s"}), "spec.sources[0].idleAfter", "or more"
    yield small(**{source + "latenes": "1s"}), "spec.sources[0].latenes", "did you mean lateness?"
    twice = small()
    twice["spec"]["sources"] *= 2
    yield twice, "spec.sources[1].class", "twice"
    many = small()
    many["spec"]["sources"] *= 300
    yield many, "spec.sources", "at most 256"
    yield small(**{source + "expected": 1_000_001}), "spec.sources[0].expected", "to 1000000"
    crowds = small()
    kind = {**crowds["spec"]["sources"][0], "expected": 600_000}
    crowds["spec"]["sources"] = [{**kind, "site": site} for site in ("a", "b")]
    yield crowds, "spec.sources", "expects 1200000 in all"
    kinds = [{"selector": {"a": f"b{n}"}, "ingestLimit": 1} for n in range(65)]
    yield small(spec__node={"ingestLimit": 99, "classes": kinds}), "spec.node.classes", "at most 64"

    yield small(spec__startTimeout="0s"), "spec.startTimeout", "or more"
    yield small(spec__flushInterval=100), "spec.flushInterval", "without a unit"
    yield small(spec__flushInterval="10us"), "spec.flushInterval", "1ms or more"
    yield small(spec__horizon="soon"), "spec.horizon", "no duration"
    yield small(spec__horizon="1s"), "spec.horizon", "lateness"
    yield small(spec__horizn="1h"), "spec.horizn", "did you mean horizon?"

    yield small(spec__node={}), "spec.node.ingestLimit", "is missing"
    yield small(spec__node={"ingestLimit": -1}), "spec.node.ingestLimit", "above 0"
    yield small(spec__node={"ingestLimit": 50}), "spec.node.ingestLimit", "one source of class 'sensor'"
    yield small(spec__node={"ingestLimit": 99, "margin": 1}), "spec.node.margin", "below 1"
    classes = [{"selector": {"a": "b"}, "ingestLimit": 0}]
    yield (
        small(spec__node={"ingestLimit": 99, "classes": classes}),
        "spec.node.classes[0].ingestLimit",
        "above",
    )
    classes = [{"ingestLimit": 1}]
    yield (
        small(spec__node={"ingestLimit": 99, "classes": classes}),
        "spec.node.classes[0].selector",
        "missing",
    )
    classes = [{"selector": {"a": "b"}, "ingestLimit": 1}] * 2
    yield small(spec__node={"ingestLimit": 99, "classes": classes}), "spec.node.classes[1].selector", "twice"
    yield small(spec__node={"ingestLimit": 99, "class": []}), "spec.node.class", "did you mean classes?"

    yield small(spec__placement={"childs": {}}), "spec.placement.childs", "did you mean child?"
    yield small(spec__placement={"child": {"mode": "each"}}), "spec.placement.child.mode", "pool, perNode"
    selector = {"a": 1}
    yield (
        small(spec__placement={"root": {"nodeSelector": selector}}),
        "spec.placement.root.nodeSelector[a]",
        "in quotes",
    )
    yield (
        small(spec__placement={"root": {"nodeSelector": {"a b": "c"}}}),
        "spec.placement.root.nodeSelector",
        "name labels",
    )
    yield (
        small(spec__placement={"root": {"nodeSelector": "edge"}}),
        "spec.placement.root.nodeSelector",
        "give labels",
    )
    for layer, field, told in [
        ({"tolerations": {}}, "tolerations", "give a list"),
        ({"tolerations": [{}]}, "tolerations[0].key", "make the operator Exists"),
        ({"tolerations": [{"operator": "Exists"}] * 17}, "tolerations", "at most 16"),
        ({"tolerations": [{"key": "a b"}]}, "tolerations[0].key", "example.org/disk"),
        ({"tolerations": [{"key": "a", "operator": "In"}]}, "tolerations[0].operator", "Exists, Equal"),
        (
            {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
            "tolerations[0].value",
            "drop value",
        ),
        ({"tolerations": [{"key": "a", "value": "b c"}]}, "tolerations[0].value", "at most 63"),
        ({"tolerations": [{"key": "a", "effect": "Never"}]}, "tolerations[0].effect", "NoExecute"),
        (
            {"tolerations": [{"key": "a", "tolerationSeconds": 5}]},
            "tolerations[0].tolerationSeconds",
            "NoExecute",
        ),
        (
            {"tolerations": [{"key": "a", "effect": "NoExecute", "tolerationSeconds": -1}]},
            "tolerations[0].tolerationSeconds",
            "from 0",
        ),
        ({"affinity": []}, "affinity", "mapping"),
        ({"affinity": {"nodeAffinity": []}}, "affinity.nodeAffinity", "give a mapping"),
        ({"affinity": {"antiAffinity": {}}}, "affinity.antiAffinity", "did you mean podAntiAffinity?"),
        ({"priorityClassName": "A"}, "priorityClassName", "a-z"),
        ({"imagePullSecrets": ["a"]}, "imagePullSecrets[0]", "mapping"),
        ({"imagePullSecrets": [{"name": "A"}]}, "imagePullSecrets[0].name", "a-z"),
        ({"imagePullSecrets": [{"name": "a"}] * 2}, "imagePullSecrets[1].name", "twice"),
        ({"imagePullSecrets": [{"name": f"a{n}"} for n in range(9)]}, "imagePullSecrets", "at most 8"),
        ({"env": [{"name": "A"}]}, "env[0].value", "is missing"),
        ({"env": [{"name": "A", "value": 5}]}, "env[0].value", "in quotes"),
        ({"env": [{"name": "A", "value": ["hush"]}]}, "env[0].value", "in quotes"),
        ({"env": [{"name": "A", "value": "hush" * 257}]}, "env[0].value", "has 1028 characters"),
        ({"env": {"A": "hush"}}, "env", "give a list"),
        ({"env": ["A=hush"]}, "env[0]", "mapping"),
        ({"env": [{"name": "A-B", "value": ""}]}, "env[0].name", "letters, digits and _"),
        ({"env": [{"name": "HEADWATER_A", "value": ""}]}, "env[0].name", "the operator's"),
        ({"env": [{"name": "A", "value": ""}] * 2}, "env[1].name", "twice"),
        ({"annotations": []}, "annotations", "give annotations"),
        ({"annotations": {"a b": "c"}}, "annotations", "has the name 'a b'"),
        ({"annotations": {"a": 1}}, "annotations[a]", "give a string"),
        ({"annotations": {"headwater.dev/pause": "1"}}, "annotations[headwater.dev/pause]", "another name"),
        ({"annotations": {f"a{n}": "" for n in range(33)}}, "annotations", "at most 32"),
        ({"resources": {"requests": {"cpu": "half"}}}, "resources.requests.cpu", "500m or 2"),
        ({"resources": {"requests": {"cpu": -1}}}, "resources.requests.cpu", "500m or 2"),
        ({"resources": {"requests": {"cpu": 1_000_000}}}, "resources.requests.cpu", "500m or 2"),
        ({"resources": {"limits": {"memory": 10**15}}}, "resources.limits.memory", "256Mi"),
        ({"tolerations": [{"key": f"{'a.' * 127}a/b"}]}, "tolerations[0].key", "example.org/disk"),
        ({"annotations": {"headwater.dev": "1"}}, "annotations[headwater.dev]", "another name"),
        ({"resources": {"limits": {"memory": "1GB"}}}, "resources.limits.memory", "256Mi"),
        ({"resources": {"limits": {"disk": "1G"}}}, "resources.limits.disk", "known are cpu, memory"),
        ({"resources": {"claims": []}}, "resources.claims", "is not known"),
        (
            {"resources": {"requests": {"cpu": 1}, "limits": {"cpu": "999m"}}},
            "resources.requests.cpu",
            "is 1, above limits.cpu, which is 999m",
        ),
        (
            {"resources": {"requests": {"memory": "1Gi"}, "limits": {"cpu": 1, "memory": "1G"}}},
            "resources.requests.memory",
            "above limits.memory",
        ),
    ]:
        yield small(spec__placement={"child": layer}), f"spec.placement.child.{field}", told
    yield small(spec__ingest={"expose": "ingress"}), "spec.ingest.expose", "clusterIP, nodePort"
    yield small(spec__ingest={"auth": {}}), "spec.ingest.auth.caSecretRef", "is missing"
    yield small(spec__ingest={"auth": {"caSecretRef": "A"}}), "spec.ingest.auth.caSecretRef", "a-z"
    yield small(spec__certificates={}), "spec.certificates.issuerRef", "is missing"
    yield small(spec__certificates={"issuerRef": {}}), "spec.certificates.issuerRef.name", "is missing"
    for issuer, field, told in [
        ({"name": "Plant"}, "name", "a-z"),
        ({"name": "a" * 254}, "name", "1 to 253"),
        ({"name": "plant-ca", "kind": "CA"}, "kind", "Issuer, ClusterIssuer"),
        ({"name": "plant-ca", "group": "example.org/v1"}, "group", "a-z"),
        ({"name": "plant-ca", "of": "plant"}, "of", "known are"),
    ]:
        given = {"issuerRef": issuer}
        yield small(spec__certificates=given), f"spec.certificates.issuerRef.{field}", told
    yield small(spec__certificates={"issuer": "plant-ca"}), "spec.certificates.issuer", "did you mean"
    yield small(spec__policies={"networkPolicies": "no"}), "spec.policies.networkPolicies", "true or false"
    yield small(spec__policies={"budgets": True}), "spec.policies.budgets", "known are"
    yield small(spec__suspend="yes"), "spec.suspend", "true or false"
    yield small(spec__limits={"drainTimeout": "1ms"}), "spec.limits.drainTimeout", "1s or more"
    yield small(spec__limits={"minWidth": 0}), "spec.limits.minWidth", "from 1"
    yield small(spec__limits={"maxNodes": "9"}), "spec.limits.maxNodes", "whole number"
    yield small(spec__limits={"minWidth": 3, "maxNodes": 2}), "spec.limits.minWidth", "maxNodes"
    for wrong in (0, -1, 1.5, True, "100", 10**9 + 1):
        yield (
            small(spec__limits={"keysPerSource": wrong}),
            "spec.limits.keysPerSource",
            "give a whole number from 1 to 1000000000",
        )

    yield small(spec__root=...), "spec.root", "is missing"
    yield small(spec__root={}), "spec.root.engine", "is missing"
    yield small(spec__root__engine="flink"), "spec.root.engine", "spark, embedded"
    yield small(spec__root__engine="embeded"), "spec.root.engine", "did you mean embedded?"
    yield small(spec__root__spark={"executors": 1}), "spec.root.spark", "engine embedded"
    yield (
        small(spec__root={"engine": "spark", "spark": {"executors": -1}}),
        "spec.root.spark.executors",
        "from 0",
    )
    yield small(spec__root__storage={"claim": "A"}), "spec.root.storage.claim", "a-z"
    yield (
        small(spec__root__storage={"deletionPolicy": "Keep"}),
        "spec.root.storage.deletionPolicy",
        "Retain, Delete",
    )
    for volume, field, told in [
        *(({"size": size}, "size", "such as 10Gi") for size in ("10", "0Gi", "1.5Gi", "10GiB", "1000000Gi")),
        ({"size": 10}, "size", "give a string"),
        ({"storageClass": "Fast SSD"}, "storageClass", "a-z"),
        ({"accessMode": "ReadOnlyMany"}, "accessMode", "ReadWriteOnce, ReadWriteOncePod, ReadWriteMany"),
        ({"claim": "mine", "size": "10Gi"}, "size", "beside claim"),
        ({"claim": "mine", "storageClass": "fast"}, "storageClass", "beside claim"),
        ({"claim": "mine", "accessMode": "ReadWriteOnce"}, "accessMode", "drop accessMode"),
    ]:
        yield small(spec__root__storage=volume), f"spec.root.storage.{field}", told
    executors = {"engine": "spark", "spark": {"executors": 1}}
    yield (
        small(spec__root={**executors, "storage": {"accessMode": "ReadWriteOncePod"}}),
        "spec.root.storage.accessMode",
        "no executor could mount",
    )
    yield small(spec__root__failover="always"), "spec.root.failover", "manual, auto"
    yield small(spec__root={**executors, "failover": "auto"}), "spec.root.failover", "executors mount it too"
    yield (
        small(spec__root__failover="auto", spec__root__storage={"accessMode": "ReadWriteOnce"}),
        "spec.root.storage.accessMode",
        "beside failover auto",
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
        ({"type": "postgres", "dsn": "postgresql://me:hu?hush@db/x"}, "dsn", "dsnEnv"),
        ({"type": "postgres", "dsn": "mysql://me:hush@db/x"}, "dsn", "dsnEnv"),
        ({"type": "postgres", "dsn": "mysql://hush"}, "dsn", "is no address of a database"),
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
        yield small(spec__root__sinks=[sink]), f"spec.root.sinks[0].{field}", told
    yield small(spec__root__sinks=[{"type": "console"}] * 2), "spec.root.sinks[1].type", "twice"
    many_sinks = [{"type": "jsonlines", "path": f"a{n}"} for n in range(17)]
    yield small(spec__root__sinks=many_sinks), "spec.root.sinks", "at most 16"
    headers = {"type": "webhook", "url": "https://a", "headersEnv": {f"X-{n}": "V" for n in range(17)}}
    yield small(spec__root__sinks=[headers]), "spec.root.sinks[0].headersEnv", "at most 16"
    for after in (65_535, "63KiB", "64KB", "9999999TiB", True, -1, "lots", " 64KiB", f"64{' ' * 28}KiB"):
        yield small(spec__root__snapshotAfter=after), "spec.root.snapshotAfter", "65536 or more"
    for archive, field, told in [
        ({}, "path", "is missing"),
        ({"path": "a/../b"}, "path", 'without ".."'),
        ({"path": "a", "rotate": "2s", "retain": "1s"}, "retain", "raise retain or lower rotate"),
        ({"path": "a", "rotate": "8d"}, "retain", "is less than rotate"),
        ({"path": "a", "rotate": "999ms"}, "rotate", "1s or more"),
        ({"path": "a", "maxBytes": "1MB"}, "maxBytes", "KiB"),
        ({"path": "a", "maxBytes": 1_048_575}, "maxBytes", "1048576 or more"),
        ({"path": "a", "maxBytes": "1023KiB"}, "maxBytes", "1048576 or more"),
    ]:
        yield small(spec__archive=archive), f"spec.archive.{field}", told
    for one, other in (("a", "./a/"), ("a", "a/b"), ("a/b", "a"), ("b/a.files/c", "b/a")):
        overlapping = [{"type": "jsonlines", "path": one}, {"type": "parquet", "path": other}]
        yield small(spec__root__sinks=overlapping), "spec.root.sinks[1].path", "a folder of its own"

    yield small(spec__queries={}), "spec.queries", "give a list"
    yield small(spec__queries=["q"]), "spec.queries[0]", "mapping"
    one = small()["spec"]["queries"]
    yield small(spec__queries=one * 2), "spec.queries[q].id", "is there already"
    yield small(spec__queries=[{**one[0], "id": f"q{n}"} for n in range(257)]), "spec.queries", "at most 256"
    columns = [{**one[0], "id": name, "keyBy": name} for name in "ab"]
    yield small(spec__queries=columns), "spec.queries[*].keyBy", "names different columns"
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
        ({"aggregate": True}, "aggregate", "is True"),
        ({"aggregate": {"avg": 1}}, "aggregate", "is {'avg': 1}"),
        ({"aggregate": "quantile(2)"}, "aggregate", "no quantile"),
        ({"aggregate": "top(0)"}, "aggregate", "no usable k"),
        ({"aggregate": "bottom(1001)"}, "aggregate", "no usable k"),
        ({"aggregate": ["avg"] * 65}, "aggregate", "at most 64"),
        ({"aggregate": ["avg", "top(0)"]}, "aggregate[1]", "no usable k"),
        ({"aggregate": ["avg", "avg"]}, "aggregate", "twice"),
        ({"aggregate": "function:nowhere"}, "aggregate", "installed package"),
        ({"aggregate": "function:misnamed"}, "aggregate", "called 'other'"),
        ({"agregate": "avg"}, "agregate", "did you mean aggregate?"),
        ({"keyBy": 5}, "keyBy", "give a string"),
        ({"keyBy": "k" * 254}, "keyBy", "has 254 characters; give 1 to 253"),
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
        yield asked(**query), f"spec.queries[{place}].{field}", str(told)


def query_object(**changes: Any) -> dict[str, Any]:
    spec = {"topologyRef": "factory", "aggregate": "avg", "window": {"type": "tumbling", "length": "1s"}}
    return {
        "apiVersion": "headwater.dev/v1alpha1",
        "kind": "AggregationQuery",
        "metadata": {"name": "q"},
        "spec": spec,
        **changes,
    }


_QUERY = {"topologyRef": "a", "aggregate": "avg", "window": {"type": "tumbling", "length": "1s"}}
QUERY_REFUSALS: list[tuple[dict[str, Any], str, str]] = [
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
    ({"spec": {**_QUERY, "emitEmpty": True, "scope": "local"}}, "spec.emitEmpty", "keyBy"),
    ({"spec": None}, "spec", "is missing"),
]


def accepted() -> Iterator[tuple[str, dict[str, Any]]]:
    """What is taken, up to the edge of each rule: a word on it, and the document."""
    yield "small", small()
    yield "design", yaml.safe_load(DESIGN)
    yield "longest name", small(metadata__name="a" * 40)
    yield "no queries", small(spec__queries=...)
    source = "spec__sources__0__"
    for field, value in (
        ("class", "a" * 63),
        ("expected", 1_000_000),
        ("rate", 1e-9),
        ("lateness", "0s"),
        ("lateness", "59m59.999999s"),
        ("lateness", "0.5d0.4h1.5ms10us"),
        ("idleAfter", "1ms"),
    ):
        horizon = {"spec__horizon": "2d"} if value == "0.5d0.4h1.5ms10us" else {}
        yield f"sources.{field} {value}"[:60], small(**{source + field: value, **horizon})
    sites = small()
    sites["spec"]["sources"] = [{**sites["spec"]["sources"][0], "site": site} for site in ("a", "b")]
    yield "two sites", sites
    for field, value in (("startTimeout", "1us"), ("flushInterval", "1ms"), ("horizon", "1.000001s")):
        yield f"{field} {value}", small(**{f"spec__{field}": value})
    for node in (
        {"ingestLimit": 50, "margin": 0},
        {"ingestLimit": 1, "classes": [{"selector": {"a": "b"}, "ingestLimit": 60}]},
        {"ingestLimit": 99, "classes": [{"selector": {"a": c}, "ingestLimit": 1, "count": 2} for c in "bc"]},
    ):
        yield f"node {node}"[:60], small(spec__node=node)
    labels = {"tier": "", "headwater.dev/tier": "Edge_1.a", "a" * 63: "b" * 63, f"{'a.' * 126}a/b": "c"}
    yield "labels", small(spec__placement={"root": {"nodeSelector": labels}, "child": {"mode": "perNode"}})
    pods: dict[str, Any] = {
        "tolerations": [
            {"operator": "Exists"},
            {"key": "example.org/edge", "effect": "NoExecute", "tolerationSeconds": 0},
            {"key": "gpu", "operator": "Equal", "value": "Yes", "effect": "PreferNoSchedule"},
        ],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        "priorityClassName": "high.est",
        "imagePullSecrets": [{"name": "one"}, {"name": "two"}],
        "env": [{"name": "A_1", "value": ""}, {"name": "b", "value": "c d"}],
        "annotations": {"example.org/team": "quality, all of it", "a": ""},
        "resources": {
            "requests": {"cpu": "0.25", "memory": "64Mi"},
            "limits": {"cpu": 2, "memory": 1073741824},
        },
    }
    for layer in ("child", "intermediate", "root"):
        yield f"pods of {layer}", small(spec__placement={layer: pods})
    for request, limit in (({"cpu": 1}, {"cpu": "1000m"}), ({"memory": "1G"}, {"cpu": 1, "memory": "1Gi"})):
        resources = {"requests": request, "limits": limit}
        yield f"a request of {request}", small(spec__placement={"child": {"resources": resources}})
    for expose in ("clusterIP", "nodePort", "hostPort", "loadBalancer"):
        auth = {"auth": {"caSecretRef": "devices-ca"}} if expose == "hostPort" else {}
        yield expose, small(spec__ingest={"expose": expose, **auth})
    for kind, issuer in {
        "an issuer": {"name": "plant-ca"},
        "an issuer of the cluster": {"name": "plant.ca", "kind": "ClusterIssuer"},
        "an issuer of others": {"name": "a" * 253, "kind": "Issuer", "group": "awspca.cert-manager.io"},
    }.items():
        yield kind, small(spec__certificates={"issuerRef": issuer})
    yield "policies", small(spec__policies={"disruptionBudgets": False, "networkPolicies": False})
    yield "suspended", small(spec__suspend=True, spec__limits={"drainTimeout": "1s"})
    yield "limits", small(spec__limits={"minWidth": 200, "keysPerSource": 10**9, "scaleDownAfter": "1s"})
    yield "as many as there may be", small(spec__limits={"minWidth": 3, "maxNodes": 3})
    for archive in (
        {"path": "/var/lib/archive", "rotate": "1s", "retain": "1s", "maxBytes": 1 << 20},
        {"path": "archive", "maxBytes": "1024KiB"},
        {"path": "a/..b", "maxBytes": "4 TiB"},
    ):
        yield f"archive {archive['path']}", small(spec__archive=archive)
    for after in (65_536, "64KiB", "2 GiB", f"64{' ' * 27}KiB"):
        yield f"a snapshot after {after}", small(spec__root__snapshotAfter=after)
    yield "executors", small(spec__root={"engine": "spark", "spark": {"executors": 1_000}})
    yield "storage", small(spec__root__storage={"claim": "a.b-c", "deletionPolicy": "Delete"})
    for volume in (
        {"size": "10Gi", "storageClass": "fast-ssd", "accessMode": "ReadWriteOncePod"},
        {"size": "999999T", "deletionPolicy": "Delete"},
        {"storageClass": "rook.ceph-1", "accessMode": "ReadWriteOnce"},
    ):
        yield f"storage {volume}"[:60], small(spec__root__storage=volume)
    shared = {"engine": "spark", "spark": {"executors": 2}, "storage": {"accessMode": "ReadWriteMany"}}
    yield "storage for executors", small(spec__root=shared)
    for volume in ({"accessMode": "ReadWriteOncePod"}, {"claim": "mine"}, {"size": "5Gi"}):
        yield f"failover with {volume}", small(spec__root__failover="auto", spec__root__storage=volume)
    yield "failover by hand", small(spec__root={**shared, "failover": "manual"})
    for sink in (
        {"type": "console"},
        {"type": "jsonlines", "path": "a..b/..c/d.."},
        {"type": "postgres", "dsn": "postgresql://me@db:5432/x?sslmode=require", "timeout": "1h"},
        {"type": "postgres", "dsn": "host=db dbname=plant", "dsnEnv": "D", "table": "plant.results_2"},
        {"type": "postgres", "secretRef": "factory-db"},
        {"type": "webhook", "url": "http://[::1]:8080/b@c?d=e", "headersEnv": {"X-B": "B", "Accept": "A"}},
        {"type": "webhook", "url": "https://a:65535", "timeout": "1ms"},
    ):
        yield f"sink {sink}"[:60], small(spec__root__sinks=[sink])
    folders = [{"type": "jsonlines", "path": path} for path in ("a", "ab", "./b/a")]
    yield "folders of their own", small(spec__root__sinks=[*folders, {"type": "console"}])
    one = small()["spec"]["queries"][0]
    yield "256 queries", small(spec__queries=[{**one, "id": f"q{n}", "keyBy": "k"} for n in range(256)])
    asked_for: tuple[dict[str, Any], ...] = (
        *({"id": id} for id in ("a", "Temp_avg.v2", "die Größe", "ä" * 126, "q[1].x", "*")),
        *({"aggregate": name} for name in ("variance(ddof=1)", "quantile(0.99)", "top(1000)", "bottom(1)")),
        {"aggregate": ["sum", "count", "median", "top(3)"]},
        {"keyBy": "k" * 253, "scope": "local", "deduplicate": True},
        {"emitEmpty": True, "scope": "global"},
        {"where": {"above": 5, "below": 5.5, "keys": ["", "k", "k"]}},
        {"where": {"atLeast": -5, "atMost": -5}},
        {"window": {"type": "tumbling", "length": "1h30m", "offset": "-1d"}},
        {"window": {"type": "tumbling", "count": 1}, "scheme": "central", "allowInexact": True},
        {"window": {"type": "tumbling", "count": 5, "offset": "0s"}},
        {"window": {"type": "sliding", "length": "1000s", "slide": "1ms"}},
        {"window": {"type": "sliding", "length": "1m", "slide": "60s"}},
        {"window": {"type": "sliding", "length": "1020ms", "slide": "0.017m"}},
        {"window": {"type": "sliding", "count": 5, "every": 5}, "scheme": "auto"},
        {"window": {"type": "session", "gap": "1us"}},
        {"window": {"type": "punctuation", "start": "S", "merge": "order", "maxOpen": 1}},
        {"window": {"type": "punctuation", "start": "S", "end": "E", "merge": "overlap"}},
        {"window": {"type": "punctuation", "start": "S", "end": "S", "merge": "bounds"}},
    )
    for query in asked_for:
        yield f"query {query}"[:60], asked(**query)
    yield "query object", query_object()
    yield "query object with the longest name", query_object(metadata={"name": ("a" * 62 + ".") * 4 + "b"})
