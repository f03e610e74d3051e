"""What a cluster has to hold for a tree.

`snapshots` has whole trees as they are rendered. A change that is meant is written there with

    HEADWATER_SNAPSHOTS=write make test ARGS=tests/operator/test_rendering.py

and looked at before it is committed.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from kubernetes import client

from headwater.topology import archive_of, topology_of
from headwater_node.configuration import Configuration
from headwater_operator import names
from headwater_operator.certificates import Authority, Pair, authority
from headwater_operator.layout import TreeNode
from headwater_operator.rendering import (
    Images,
    Manifest,
    authority_of,
    bootstrap,
    executors,
    pair_of,
    parties,
    provide,
)
from headwater_operator.rendering.identities import Material, certificates
from headwater_root.sinks import postgres, webhook
from tests.manifests import DESIGN, accepted, small
from tests.operator.trees import IMAGES, every, nodes, one, owner, rendered, templates

SNAPSHOTS = Path(__file__).parent / "snapshots"
WRITE = os.environ.get("HEADWATER_SNAPSHOTS") == "write"
KINDS_WITHOUT_MODEL = ("PodMonitor", "PrometheusRule", "Certificate")


# Trees


def _plain() -> list[Manifest]:
    return rendered(small(), nodes("small", 2))


def _factory() -> list[Manifest]:
    document = yaml.safe_load(DESIGN)
    pi = (("headwater.dev/device", "pi4"),)
    tree = nodes("factory", 3, 2, selectors={2: pi}, hosts={0: "edge-a", 1: "edge-b", 2: "edge-c"})
    images = Images("example.org/node:1", "example.org/root:1", "Always", ("pull",))
    return rendered(document, tree, images=images, restart="2030-05-01", monitored=True)


def _exposed() -> list[Manifest]:
    pods: dict[str, Any] = {
        "nodeSelector": {"headwater.dev/tier": "edge"},
        "tolerations": [
            {"operator": "Exists", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "operator": "Exists"},
        ],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]},
                    ]
                }
            },
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []},
        },
        "priorityClassName": "edge",
        "imagePullSecrets": [{"name": "pull"}],
        "env": [{"name": "TZ", "value": "UTC"}],
        "annotations": {"example.org/team": "quality"},
        "resources": {"requests": {"memory": "1Gi"}, "limits": {"cpu": "500m"}},
    }
    document = small(
        metadata__name="exposed",
        spec__ingest={"expose": "loadBalancer", "auth": {"caSecretRef": "devices"}},
        spec__placement={"child": pods},
        spec__archive={"path": "/var/lib/headwater/archive", "maxBytes": "1GiB"},
        spec__root__sinks=[
            {"type": "postgres", "secretRef": "db.main"},
            {"type": "webhook", "url": "https://example.org", "secretRef": "hook"},
        ],
        spec__root__storage={"deletionPolicy": "Delete", "size": "50Gi", "storageClass": "fast-ssd"},
        spec__root__failover="auto",
        spec__root__snapshotAfter="1MiB",
    )
    advertised = {"exposed-l1-0": "203.0.113.7:7070"}
    tree = nodes("exposed", 2, 1)
    return rendered(document, tree, replicas=0, advertised=advertised, devices=b"devices\n", monitored=True)


def _issued() -> list[Manifest]:
    document = small(
        metadata__name="issued",
        spec__ingest={"expose": "loadBalancer", "auth": {"caSecretRef": "devices"}},
        spec__certificates={"issuerRef": {"name": "plant-ca", "kind": "ClusterIssuer"}},
    )
    pi = (("headwater.dev/device", "pi4"),)
    tree = nodes("issued", 1, 1, selectors={0: pi})
    advertised = {"issued-l1-0": "203.0.113.7:7070"}
    return rendered(document, tree, advertised=advertised, devices=b"devices\n")


TREES = {"plain": _plain, "factory": _factory, "exposed": _exposed, "issued": _issued}


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


# Long texts by lines, so that a difference is seen.
_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    ),
)


@pytest.mark.parametrize("name", TREES)
def test_a_tree_is_rendered_as_the_snapshot_says(name: str) -> None:
    found = yaml.dump_all(TREES[name](), Dumper=_Dumper, sort_keys=False, width=110)
    path = SNAPSHOTS / f"{name}.yaml"
    if WRITE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(found)
    assert found == path.read_text()


@pytest.mark.parametrize("name", TREES)
def test_a_tree_is_rendered_the_same_again(name: str) -> None:
    assert TREES[name]() == TREES[name]()


# Every object


def _model(kind: str, api_version: str) -> str:
    version = api_version.rpartition("/")[2]
    return f"{version[0].upper()}{version[1:]}{kind}"


def _unknown(value: Any, model: str, path: str) -> Iterator[str]:
    """Fields that the API does not have, and values of another type than it has."""
    if found := re.fullmatch(r"[Ll]ist\[(.*)\]", model):
        if not isinstance(value, list):
            yield f"{path} is no list"
            return
        for place, each in enumerate(value):
            yield from _unknown(each, found[1], f"{path}[{place}]")
    elif found := re.fullmatch(r"[Dd]ict[\[(](\w+), (.*)[\])]", model):
        for name, each in value.items():
            if not isinstance(name, str):
                yield f"{path} has the name {name!r}"
            yield from _unknown(each, found[2], f"{path}[{name}]")
    elif hasattr(client, model):
        kind = getattr(client, model)
        known = {kind.attribute_map[name]: kind.openapi_types[name] for name in kind.attribute_map}
        if not isinstance(value, dict):
            yield f"{path} is no mapping"
            return
        for name, each in value.items():
            if name not in known:
                yield f"{path}.{name} is not known"
            else:
                yield from _unknown(each, known[name], f"{path}.{name}")
        # The model itself refuses what lacks a required field.
        plain = {name: value.get(field) for name, field in kind.attribute_map.items()}
        kind(**{name: each for name, each in plain.items() if each is not None})
    else:
        types = {"str": str, "int": int, "bool": bool, "object": object, "bytes": str}
        if (type(value) is bool and model == "int") or not isinstance(value, types[model]):
            yield f"{path} is {value!r}, not {model}"


@pytest.mark.parametrize("name", TREES)
def test_the_api_knows_every_field(name: str) -> None:
    for each in TREES[name]():
        if each["kind"] not in KINDS_WITHOUT_MODEL:
            model = _model(each["kind"], each["apiVersion"])
            assert hasattr(client, model), model
            problems = list(_unknown(each, model, each["kind"]))
            assert problems == [], problems


DOCUMENTS = [
    pytest.param(document, id=id) for id, document in accepted() if document["kind"] == "AggregationTopology"
]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_manifest_that_is_taken_can_be_rendered(document: dict[str, Any]) -> None:
    name = document["metadata"]["name"]
    tree = nodes(name, 12, 3, 2)
    found = rendered(document, tree, monitored=True)
    keys = [(each["kind"], each["metadata"]["name"]) for each in found]
    assert len(set(keys)) == len(keys)
    for each in found:
        if each["kind"] not in KINDS_WITHOUT_MODEL:
            model = _model(each["kind"], each["apiVersion"])
            assert list(_unknown(each, model, each["kind"])) == []
        _assert_names(each)
        metadata = each["metadata"]
        assert metadata["namespace"] == "plant"
        assert names.labels(name).items() <= metadata["labels"].items()
        assert "finalizers" not in metadata
        kept = each["kind"] == "PersistentVolumeClaim" and "ownerReferences" not in metadata
        if not kept:
            (reference,) = metadata["ownerReferences"]
            # What cert-manager fills goes with its Certificate, and that with the topology.
            filled = each["kind"] == "Secret" and "data" not in each
            uid = f"uid of {metadata['name']}" if filled else owner(document).uid
            assert (reference["uid"], reference["controller"]) == (uid, not filled)
            assert reference["blockOwnerDeletion"] is False


def _assert_names(given: Manifest) -> None:
    """Lengths of names and labels, which an API server would refuse."""
    label = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
    assert label.fullmatch(given["metadata"]["name"])
    template = given["spec"]["template"] if given["kind"] in ("Deployment", "StatefulSet") else None
    held = [given["metadata"], *([] if template is None else [template["metadata"]])]
    for each in held:
        for value in each["labels"].values():
            assert re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", value)
    if template is not None:
        # What a controller makes of the name and puts into a label.
        assert len(given["metadata"]["name"]) + len("-0123456789") <= 63
        for field in ("hostname", "subdomain"):
            assert label.fullmatch(template["spec"].get(field, "a"))
        paths = [each["mountPath"] for each in template["spec"]["containers"][0]["volumeMounts"]]
        assert len(set(paths)) == len(paths)
        variables = [each["name"] for each in template["spec"]["containers"][0]["env"]]
        assert len(set(variables)) == len(variables)


# A rescale restarts nobody


@given(
    st.lists(st.integers(1, 8), min_size=1, max_size=3),
    st.lists(st.integers(1, 8), min_size=1, max_size=3),
    st.sampled_from(["embedded", "spark"]),
)
def test_another_width_changes_no_pod_that_stays(one: list[int], other: list[int], engine: str) -> None:
    document = small(spec__root={"engine": engine})
    before = templates(rendered(document, nodes("small", *one)))
    after = templates(rendered(document, nodes("small", *other)))
    for name in before.keys() & after.keys():
        assert before[name] == after[name]
    assert "small-root" in before.keys() & after.keys()


@pytest.mark.parametrize(
    "changes",
    [
        {"spec__sources__0__expected": 400, "spec__sources__0__rate": 3},
        {"spec__queries": ...},
        {"spec__queries__0__aggregate": "max"},
        {"spec__node": {"ingestLimit": 900, "margin": 0.3}},
        {"spec__limits": {"minWidth": 3, "maxNodes": 50, "scaleDownAfter": "1m", "drainTimeout": "1m"}},
        {"spec__policies": {"disruptionBudgets": False, "networkPolicies": False}},
        {"spec__suspend": True},
        {"spec__root__storage": {"deletionPolicy": "Delete"}},
        {"metadata__labels": {"team": "quality"}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_is_told_to_the_root_restarts_nobody(changes: dict[str, Any]) -> None:
    tree = nodes("small", 5, 2)
    assert templates(rendered(small(**changes), tree)) == templates(rendered(small(), tree))


@pytest.mark.parametrize(
    "changes, restarted",
    [
        ({"spec__startTimeout": "9s"}, {"small-root"}),
        ({"spec__limits": {"keysPerSource": 9}}, {"small-root"}),
        ({"spec__root__engine": "spark"}, {"small-root"}),
        ({"spec__root__sinks": [{"type": "console"}]}, {"small-root"}),
        ({"spec__root__storage": {"claim": "mine"}}, {"small-root"}),
        ({"spec__placement": {"root": {"env": [{"name": "A", "value": "b"}]}}}, {"small-root"}),
        ({"spec__placement": {"intermediate": {"nodeSelector": {"a": "b"}}}}, {"small-l2-0"}),
        ({"spec__placement": {"child": {"priorityClassName": "a"}}}, {"small-l1-0", "small-l1-1"}),
        ({"spec__archive": {"path": "a"}}, {"small-l1-0", "small-l1-1"}),
        ({"spec__ingest": {"expose": "hostPort"}}, {"small-l1-0", "small-l1-1"}),
        ({"spec__flushInterval": "1s"}, {"small-l1-0", "small-l1-1", "small-l2-0"}),
        ({"spec__horizon": "3h"}, {"small-l1-0", "small-l1-1", "small-l2-0"}),
        ({"spec__sources__0__idleAfter": "9s"}, {"small-l1-0", "small-l1-1", "small-l2-0"}),
    ],
    ids=lambda given: next(iter(given)) if isinstance(given, dict) else None,
)
def test_what_a_pod_reads_when_it_starts_restarts_it(changes: dict[str, Any], restarted: set[str]) -> None:
    tree = nodes("small", 2, 1)
    before, after = templates(rendered(small(), tree)), templates(rendered(small(**changes), tree))
    assert {name for name in before if before[name] != after[name]} == restarted


def test_another_archive_restarts_the_children() -> None:
    tree = nodes("small", 1)
    found = [
        templates(rendered(small(spec__archive={"path": "/a", "rotate": rotate}), tree))["small-l1-0"]
        for rotate in ("1m", "60s", "2m")
    ]
    assert found[0] == found[1] != found[2]


def test_who_asks_for_a_restart_gets_one_of_all() -> None:
    tree = nodes("small", 2, 1)
    before = templates(rendered(small(), tree))
    after = templates(rendered(small(), tree, restart="now"))
    assert all(before[name] != after[name] for name in before)
    assert all(each["metadata"]["annotations"][names.RESTART] == "now" for each in after.values())


# Pods


def _container(manifests: list[Manifest], name: str) -> dict[str, Any]:
    (found,) = templates(manifests)[name]["spec"]["containers"]
    return dict(found)


def _environment(container: Mapping[str, Any]) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}


@pytest.mark.parametrize("name", TREES)
def test_pods_may_do_little(name: str) -> None:
    for template in templates(TREES[name]()).values():
        pod, (container,) = template["spec"], template["spec"]["containers"]
        held = pod["securityContext"]
        assert (held["runAsNonRoot"], held["runAsUser"], held["fsGroup"]) == (True, 65532, 65532)
        assert held["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        assert pod["automountServiceAccountToken"] is ("serviceAccountName" in pod)
        assert pod["enableServiceLinks"] is False
        assert {"name": "tmp", "emptyDir": {}} in pod["volumes"]
        assert "nodeName" not in pod
        assert all("subPath" not in mount for mount in container["volumeMounts"])
        probes = [
            container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")
        ]
        assert probes == ["/healthz", "/readyz", "/healthz"]
        assert container["resources"]["requests"]
        assert container["resources"]["limits"]


def test_a_node_is_started_with_what_it_reads(tmp_path: Path) -> None:
    # The parent and the credentials are looked at by the node itself.
    found = rendered(small(spec__archive={"path": "raw"}), nodes("small", 2, 1))
    child, middle = (_container(found, name) for name in ("small-l1-1", "small-l2-0"))
    told = _environment(child)
    assert told["HEADWATER_NAME"] == "small-l1-1"
    assert told["HEADWATER_ROOT_ADDRESS"] == "small-root.plant.svc:7070"
    assert told["HEADWATER_ADVERTISE"] == "small-l1-1.small-l1.plant.svc:7070"
    assert told["HEADWATER_INGEST_TLS"] == "off"
    assert "HEADWATER_INGEST_TLS" not in _environment(middle)
    assert _environment(middle)["HEADWATER_ROLE"] == "intermediate"
    known = {"name", "role", "listen", "metrics", "advertise", "flush_interval"}
    given = {name: told[f"HEADWATER_{name.upper()}"] for name in known}
    configured = Configuration.of({**given, "parent": "root", "parent_address": "a:1"})
    assert (configured.flush_interval, configured.advertise) == (100_000, told["HEADWATER_ADVERTISE"])
    path = child["args"][1]
    assert child["args"] == ["--config", f"{bootstrap.PATH}/{bootstrap.CHILD_FILE}"]
    config = one(found, "ConfigMap", "small-bootstrap")["data"][Path(path).name]
    archive = archive_of(json.loads(config)["archive"])
    assert archive.path == "/data/raw"
    assert {"name": "archive", "mountPath": "/data/raw"} in child["volumeMounts"]
    assert "args" not in middle


@pytest.mark.parametrize(
    "path, mounted",
    [
        ("/var/lib/headwater", "/var/lib/headwater"),
        ("/archive", "/archive"),
        ("a/b/", "/data/a/b"),
        (".", "/data"),
        ("/", "/data"),
        ("//", "/data"),
        ("//srv//raw", "/srv/raw"),
        ("/tmp", "/data/tmp"),
        ("/etc/headwater/tls", "/data/etc/headwater/tls"),
        ("/user/raw", "/user/raw"),
    ],
)
def test_an_archive_takes_the_place_of_nothing_that_a_pod_needs(path: str, mounted: str) -> None:
    archive = topology_of(small(spec__archive={"path": path})).archive
    assert archive is not None
    assert bootstrap.archive_path(archive) == mounted


def test_a_flush_interval_is_one_that_a_node_takes() -> None:
    for interval, told in (("1ms", "0.001"), ("1.234567s", "1.234567"), ("60s", "60"), ("5m", "60")):
        found = _container(rendered(small(spec__flushInterval=interval), nodes("small", 1)), "small-l1-0")
        assert _environment(found)["HEADWATER_FLUSH_INTERVAL"] == told


def test_children_advertise_where_devices_reach_them() -> None:
    tree = nodes("small", 2, 1)
    host = rendered(small(spec__ingest={"expose": "hostPort"}), tree)
    child = _container(host, "small-l1-0")
    assert _environment(child)["HEADWATER_ADVERTISE"] == "$(HEADWATER_HOST_IP):7070"
    assert [each["name"] for each in child["env"]].index("HEADWATER_HOST_IP") == 0
    assert child["ports"][0]["hostPort"] == 7070
    assert "hostPort" not in _container(host, "small-l2-0")["ports"][0]
    outside = rendered(
        small(spec__ingest={"expose": "nodePort"}), tree, advertised={"small-l1-1": "edge.example.org:31000"}
    )
    told = [_environment(_container(outside, f"small-l1-{n}"))["HEADWATER_ADVERTISE"] for n in (0, 1)]
    assert told == ["small-l1-0.small-l1.plant.svc:7070", "edge.example.org:31000"]


def test_nodes_are_pinned_by_affinity() -> None:
    selector = (("device", "pi4"), ("headwater.dev/tier", "fog"))
    node = TreeNode("small-l1-0", 1, 0, "child", "root", 9.0, selector, "edge-a")
    document = small(spec__placement={"child": {"nodeSelector": {"headwater.dev/tier": "edge", "a": "b"}}})
    pod = templates(rendered(document, [node]))["small-l1-0"]["spec"]
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    pinned = {each["key"]: each["values"] for each in term["matchExpressions"]}
    assert pinned == {
        "a": ["b"],
        "device": ["pi4"],
        "headwater.dev/tier": ["fog"],
        "kubernetes.io/hostname": ["edge-a"],
    }


def test_an_affinity_of_the_user_holds_beside_ours() -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    theirs: dict[str, Any] = {"nodeAffinity": {required: {"nodeSelectorTerms": [{}, {"matchFields": []}]}}}
    document = small(spec__placement={"root": {"nodeSelector": {"a": "b"}, "affinity": theirs}})
    terms = templates(rendered(document, []))["small-root"]["spec"]["affinity"]["nodeAffinity"][required]
    ours = [{"key": "a", "operator": "In", "values": ["b"]}]
    # An empty term matches nothing, and still does.
    assert terms == {"nodeSelectorTerms": [{}, {"matchFields": [], "matchExpressions": ours}]}
    assert theirs["nodeAffinity"][required]["nodeSelectorTerms"][1] == {"matchFields": []}


def test_pods_leave_a_machine_that_is_lost_soon_unless_the_user_says_otherwise() -> None:
    def lost(**placement: Any) -> dict[str | None, int | None]:
        document = small(spec__placement={"child": placement, "root": placement})
        found = templates(rendered(document, nodes("small", 1)))
        told = found["small-l1-0"]["spec"]["tolerations"]
        assert "tolerations" not in found["small-root"]["spec"] or placement
        return {each.get("key"): each.get("tolerationSeconds") for each in told}

    keys = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    assert lost() == dict.fromkeys(keys, 10)
    other = {"key": keys[1], "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 600}
    assert lost(tolerations=[other]) == {keys[0]: 10, keys[1]: 600}
    everything: dict[str | None, int | None] = {keys[0]: 10, keys[1]: 10, None: None}
    assert lost(tolerations=[{"operator": "Exists"}]) == everything


def test_resources_of_the_user_are_never_beside_amounts_of_ours_that_contradict_them() -> None:
    def asked(resources: dict[str, Any]) -> dict[str, Any]:
        document = small(spec__placement={"child": {"resources": resources}})
        found: dict[str, Any] = _container(rendered(document, nodes("small", 1)), "small-l1-0")["resources"]
        return found

    usual = asked({})
    assert usual == {
        "requests": {"cpu": "100m", "memory": "128Mi"},
        "limits": {"cpu": "2", "memory": "512Mi"},
    }
    assert asked({"requests": {"memory": "8Gi"}}) == {
        "requests": {"cpu": "100m", "memory": "8Gi"},
        "limits": {"cpu": "2"},
    }
    assert asked({"limits": {"cpu": "50m"}}) == {
        "requests": {"memory": "128Mi"},
        "limits": {"cpu": "50m", "memory": "512Mi"},
    }


# The root


def test_the_root_reads_the_manifest_without_its_queries() -> None:
    document = yaml.safe_load(DESIGN)
    found = rendered(document, nodes("factory", 3))
    told = json.loads(one(found, "ConfigMap", "factory-bootstrap")["data"]["topology.json"])
    read, asked = topology_of(told), topology_of(document)
    assert read.queries == ()
    assert (read.sources, read.limits, read.placement) == (asked.sources, asked.limits, asked.placement)
    assert told["metadata"] == {"name": "factory", "namespace": "plant"}


def test_sinks_find_their_secrets_in_the_environment() -> None:
    sinks = [
        {"type": "postgres", "secretRef": "db"},
        {"type": "postgres", "secretRef": "d-b.x", "table": "b"},
        {"type": "postgres", "secretRef": "db", "dsnEnv": "MILL_DSN", "table": "c"},
        {"type": "postgres", "dsnEnv": "THEIRS", "table": "d"},
        {"type": "webhook", "url": "https://a", "secretRef": "hook"},
        {"type": "webhook", "url": "https://b", "secretRef": "hook", "headersEnv": {"X-Key": "MILL_KEY"}},
    ]
    found = rendered(small(spec__root__sinks=sinks), [])
    told = json.loads(one(found, "ConfigMap", "small-bootstrap")["data"]["topology.json"])
    environment = _environment(_container(found, "small-root"))
    keys = {
        name: (each["secretKeyRef"]["name"], each["secretKeyRef"]["key"])
        for name, each in environment.items()
    }
    assert keys == {
        "HEADWATER_DSN_db": ("db", "dsn"),
        "HEADWATER_DSN_d_bDOTx": ("d-b.x", "dsn"),
        "MILL_DSN": ("db", "MILL_DSN"),
        "HEADWATER_HEADER_hook": ("hook", "authorization"),
        "MILL_KEY": ("hook", "MILL_KEY"),
    }
    # As the root opens them.
    held = {**{name: f"dbname={secret}" for name, (secret, _) in keys.items()}, "THEIRS": "dbname=e"}
    read = topology_of(told).root.sinks
    opened = [postgres.address_of(sink, "sink", held)["dbname"] for sink in read if sink.type == "postgres"]
    assert opened == ["db", "d-b.x", "db", "e"]
    headers = [webhook.headers_of(sink, "sink", held) for sink in read if sink.type == "webhook"]
    assert headers == [{"Authorization": "dbname=hook"}, {"X-Key": "dbname=hook"}]


def test_the_program_of_the_root_is_that_of_its_engine() -> None:
    embedded, spark = (
        _container(rendered(small(spec__root={"engine": engine}), []), "small-root")
        for engine in ("embedded", "spark")
    )
    assert embedded["command"] == ["python3", "-m", "headwater_root"]
    assert "command" not in spark
    assert embedded["args"] == spark["args"]
    assert "--managed" in spark["args"]
    paths = dict(zip(spark["args"][::2], spark["args"][1::2], strict=False))
    assert paths["--directory"] == "/data/state"
    mounts = {each["mountPath"] for each in spark["volumeMounts"]}
    assert {"/data", "/tmp", "/etc/headwater/tls", str(Path(paths["--topology"]).parent)} <= mounts


def test_the_volume_is_as_it_is_asked_for() -> None:
    asked = {"size": "20Gi", "storageClass": "fast-ssd", "accessMode": "ReadWriteOncePod"}
    for storage, expected in (
        ({}, {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}),
        (
            asked,
            {
                "accessModes": ["ReadWriteOncePod"],
                "resources": {"requests": {"storage": "20Gi"}},
                "storageClassName": "fast-ssd",
            },
        ),
    ):
        found = rendered(small(spec__root__storage=storage), [])
        assert one(found, "PersistentVolumeClaim", "small-root")["spec"] == expected


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_the_volume_goes_with_the_topology_only_if_asked(policy: str) -> None:
    found = rendered(small(spec__root__storage={"deletionPolicy": policy}), [])
    claim = one(found, "PersistentVolumeClaim", "small-root")
    assert ("ownerReferences" in claim["metadata"]) == (policy == "Delete")
    volumes = templates(found)["small-root"]["spec"]["volumes"]
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "small-root"}} in volumes
    assert "volumeClaimTemplates" not in one(found, "StatefulSet", "small-root")["spec"]


def test_a_claim_of_the_user_is_used_and_left_alone() -> None:
    found = rendered(small(spec__root__storage={"claim": "mine", "deletionPolicy": "Delete"}), [])
    assert every(found, "PersistentVolumeClaim") == {}
    volumes = templates(found)["small-root"]["spec"]["volumes"]
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "mine"}} in volumes


def test_a_root_without_executors_has_no_rights() -> None:
    kinds = ("ServiceAccount", "Role", "RoleBinding")
    none: dict[str, Any] = {"engine": "spark", "spark": {"executors": 0}}
    for root in ({"engine": "embedded"}, {"engine": "spark"}, none):
        found = rendered(small(spec__root=root), [])
        assert not {each["kind"] for each in found} & set(kinds)
        assert "serviceAccountName" not in templates(found)["small-root"]["spec"]
    found = rendered(small(spec__root={"engine": "spark", "spark": {"executors": 2}}), [])
    assert {each["kind"] for each in found} >= set(kinds)
    assert one(found, "Role", "small-root")["rules"] == executors.RULES
    root = _container(found, "small-root")
    template = f"{bootstrap.PATH}/executor.json"
    asked = ["--executors", "2", "--executor-image", IMAGES.root, "--executor-template", template]
    assert root["args"][-6:] == asked
    assert {"POD_IP", "POD_NAME", "POD_NAMESPACE"} <= _environment(root).keys()


def test_executors_see_the_volume_of_the_root_where_it_sees_it() -> None:
    spark = {"engine": "spark", "spark": {"executors": 2}}
    pods = {"nodeSelector": {"a": "b"}, "env": [{"name": "TZ", "value": "UTC"}]}
    document = small(spec__root=spark, spec__placement={"root": pods})

    def template(**storage: str) -> dict[str, Any]:
        found = rendered(
            {**document, "spec": {**document["spec"], "root": {**spark, "storage": storage}}}, []
        )
        told: dict[str, Any] = json.loads(one(found, "ConfigMap", "small-bootstrap")["data"]["executor.json"])
        (container,) = told["spec"]["containers"]
        root = _container(found, "small-root")
        for mounts in (container["volumeMounts"], root["volumeMounts"]):
            assert {"name": "data", "mountPath": "/data"} in mounts
        volumes = templates(found)["small-root"]["spec"]["volumes"]
        assert [each for each in volumes if each["name"] == "data"] == [told["spec"]["volumes"][1]]
        assert list(_unknown(told, "V1Pod", "Pod")) == []
        assert told["spec"]["securityContext"] == templates(found)["small-root"]["spec"]["securityContext"]
        assert container["securityContext"] == root["securityContext"]
        assert told["metadata"]["labels"] == {**names.labels("small"), names.ROLE: "executor"}
        return told

    # A claim of ours is for one machine; one of the user's is taken for one that many can mount.
    (beside,) = template()["spec"]["affinity"]["podAffinity"].values()
    assert beside[0]["topologyKey"] == "kubernetes.io/hostname"
    assert beside[0]["labelSelector"]["matchLabels"] == {names.TOPOLOGY: "small", names.ROLE: "root"}
    assert template(claim="shared")["spec"]["affinity"].keys() == {"nodeAffinity"}
    assert template(accessMode="ReadWriteMany")["spec"]["affinity"].keys() == {"nodeAffinity"}


def test_a_suspended_topology_keeps_its_names_and_its_volume() -> None:
    found = rendered(small(spec__suspend=True), [], replicas=0)
    assert one(found, "StatefulSet", "small-root")["spec"]["replicas"] == 0
    assert every(found, "Deployment") == {}
    assert {"small-root", "small-ingest"} <= every(found, "Service").keys()
    assert "small-root" in every(found, "PersistentVolumeClaim")


# Services and policies


def test_services_find_the_pods_that_they_are_for() -> None:
    found = _exposed()
    pods = {name: each["metadata"]["labels"] for name, each in templates(found).items()}
    reached = {
        name: {pod for pod, labels in pods.items() if each["spec"]["selector"].items() <= labels.items()}
        for name, each in every(found, "Service").items()
    }
    children = {"exposed-l1-0", "exposed-l1-1"}
    assert reached == {
        "exposed-root": {"exposed-root"},
        "exposed-l1": children,
        "exposed-l2": {"exposed-l2-0"},
        "exposed-ingest": children,
        "exposed-l1-0": {"exposed-l1-0"},
        "exposed-l1-1": {"exposed-l1-1"},
    }
    services = every(found, "Service")
    headless = {name for name, each in services.items() if each["spec"].get("clusterIP") == "None"}
    assert headless == {"exposed-root", "exposed-l1", "exposed-l2"}
    assert all(services[name]["spec"]["publishNotReadyAddresses"] for name in headless)
    assert {services[name]["spec"]["type"] for name in services.keys() - headless} == {"LoadBalancer"}


def test_a_pod_is_found_by_the_name_that_it_advertises() -> None:
    found = rendered(small(), nodes("small", 2, 1))
    for name, template in templates(found).items():
        if name != "small-root":
            pod = template["spec"]
            address = f"{pod['hostname']}.{pod['subdomain']}.plant.svc:7070"
            assert _environment(pod["containers"][0])["HEADWATER_ADVERTISE"] == address
            assert every(found, "Service")[pod["subdomain"]]["spec"]["clusterIP"] == "None"


def test_policies_can_be_off() -> None:
    tree = nodes("small", 2, 1)
    found = rendered(small(), tree)
    assert every(found, "PodDisruptionBudget").keys() == {"small-l1", "small-l2"}
    assert every(found, "NetworkPolicy").keys() == {"small-l1", "small-l2", "small-root"}
    off = {"disruptionBudgets": False, "networkPolicies": False}
    found = rendered(small(spec__policies=off), tree)
    assert every(found, "PodDisruptionBudget") == every(found, "NetworkPolicy") == {}


def test_only_children_are_open_to_devices() -> None:
    document = small(spec__root={"engine": "spark", "spark": {"executors": 1}})
    policies = every(rendered(document, nodes("small", 2, 1)), "NetworkPolicy")

    def peers(name: str, port: int) -> list[Any] | None:
        """Who may connect; None: everybody."""
        rules = policies[name]["spec"]["ingress"]
        (rule,) = [each for each in rules if {"protocol": "TCP", "port": port} in each.get("ports", ())]
        found: list[Any] | None = rule.get("from")
        return found

    assert all(peers(name, 9100) is None for name in ("small-l1", "small-l2", "small-root"))
    assert peers("small-l1", 7070) is None
    inside = [
        {"podSelector": {"matchLabels": {names.TOPOLOGY: "small"}}},
        {
            "namespaceSelector": {},
            "podSelector": {
                "matchLabels": {
                    "app.kubernetes.io/name": "headwater",
                    "app.kubernetes.io/component": "operator",
                }
            },
        },
    ]
    assert peers("small-l2", 7070) == peers("small-root", 7070) == inside
    executor = {"podSelector": {"matchLabels": {names.TOPOLOGY: "small", names.ROLE: "executor"}}}
    root = {"podSelector": {"matchLabels": {names.TOPOLOGY: "small", names.ROLE: "root"}}}
    assert [peers("small-root", port) for port in (7077, 7078, 7079)] == [[executor]] * 3
    assert peers("small-root-executors", 7079) == [root, executor]


# Certificates


def test_everybody_has_a_certificate_with_the_names_by_which_they_are_reached() -> None:
    document = small(spec__ingest={"expose": "nodePort"})
    topology, tree = topology_of(document), nodes("small", 1, 1)
    found = {
        party.id: party
        for party in parties(owner(document), topology, tree, {"small-l1-0": "[2001:db8::1]:31000"})
    }
    assert found.keys() == {"root", "operator", "small-l1-0", "small-l2-0"}
    assert {party.secret for party in found.values()} == {
        "small-root-tls",
        "small-operator-tls",
        "small-l1-0-tls",
        "small-l2-0-tls",
    }
    assert {"small-root.plant.svc", "small-root-0.small-root.plant.svc"} <= set(found["root"].names)
    child = set(found["small-l1-0"].names)
    assert {"small-l1-0.small-l1.plant.svc", "small-ingest.plant.svc", "2001:db8::1"} <= child
    assert not any("ingest" in name for name in found["small-l2-0"].names)
    assert {id: party.role for id, party in found.items()} == {
        "root": "root",
        "operator": "operator",
        "small-l1-0": "node",
        "small-l2-0": "node",
    }


def _data(manifest: Manifest) -> dict[str, bytes]:
    return {name: b64decode(text) for name, text in manifest["data"].items()}


def test_certificates_that_are_good_stay_and_others_are_made_anew() -> None:
    now = datetime(2030, 5, 1, tzinfo=UTC)
    by = authority("small", now)
    topology, tree = topology_of(small()), nodes("small", 2)
    everybody = parties(owner(small()), topology, tree, {})
    issued, reasons = provide(everybody, {}, by, now)
    assert issued.keys() == reasons.keys() == {party.secret for party in everybody}
    assert set(reasons.values()) == {"there is none"}
    assert provide(everybody, issued, by, now) == (issued, {})
    # As they are in the Secrets.
    manifests = certificates(owner(small()), everybody, tree, Material(by, issued))
    secrets = {each["metadata"]["name"]: _data(each) for each in manifests}
    assert authority_of(secrets.pop("small-ca")) == by
    assert {name: pair_of(data) for name, data in secrets.items()} == issued
    assert pair_of({"tls.crt": b""}) is None
    moved = parties(owner(small()), topology, tree, {"small-l1-1": "203.0.113.7:7070"})
    again, reasons = provide(moved, issued, by, now)
    assert reasons == {"small-l1-1-tls": "its names have changed"}
    assert {name for name in issued if issued[name] != again[name]} == set(reasons)


def test_children_alone_trust_the_authority_of_devices() -> None:
    found = every(_exposed(), "Secret")
    trusted = {name: _data(each)["ca.crt"] for name, each in found.items()}
    children = {"exposed-l1-0-tls", "exposed-l1-1-tls"}
    assert {name for name in trusted if b"devices" in trusted[name]} == children
    assert all(b"authority" in each for each in trusted.values())
    for name, template in templates(_exposed()).items():
        (secret,) = [each["secret"] for each in template["spec"]["volumes"] if "secret" in each]
        assert secret["secretName"] == f"{name}-tls"
        assert secret["secretName"] in found


@pytest.mark.parametrize(
    "held",
    [
        Authority(Pair(b"a\n", b"b\n")),
        Authority(Pair(b"a\n", b"b\n"), Pair(b"c\n", b"d\n")),
        Authority(Pair(b"a\n", b"b\n"), None, b"e\n"),
    ],
)
def test_an_authority_is_read_as_it_was_written(held: Authority) -> None:
    (secret,) = certificates(owner(small()), [], [], Material(held, {}))
    assert authority_of(_data(secret)) == held
    assert authority_of({"tls.crt": b"a"}) is None
