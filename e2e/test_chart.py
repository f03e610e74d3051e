"""The chart: what it renders, and that definitions are installed, upgraded and outlive the release."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
import yaml

from e2e import helm
from e2e.api import DEFINITIONS, SERVED, Api
from headwater_operator import names
from headwater_operator.access import CERTIFYING
from headwater_operator.crds import definitions
from headwater_operator.crds.definitions import GROUP, VERSION
from headwater_operator.rendering import executors
from tests.manifests import small
from tests.operator.trees import nodes, rendered

pytestmark = [
    pytest.mark.alone,
    pytest.mark.promise(
        "the chart is installed, upgraded and uninstalled, with no more rights than it needs"
    ),
]

# Those that these tests make.
OURS = ("plain", "quiet", "orphan", "heir")
# Where it is installed the second time.
ELSEWHERE = {"release": "plant-operator", "namespace": "plant-system"}
TOPOLOGIES = f"/apis/{GROUP}/{VERSION}/namespaces/default/aggregationtopologies"


def _rendered(*arguments: object) -> list[dict[str, Any]]:
    found = yaml.safe_load_all(helm.helm("template", helm.RELEASE, helm.CHART, *arguments))
    return [document for document in found if document]


def test_helm_finds_nothing_wrong() -> None:
    assert "0 chart(s) failed" in helm.helm("lint", helm.CHART, "--strict")


def _kind(found: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [each for each in found if each["kind"] in kinds]


def test_it_renders_the_definitions() -> None:
    found = _kind(_rendered(), "CustomResourceDefinition")
    assert {each["spec"]["names"]["plural"]: each for each in found} == definitions()
    assert _kind(_rendered("--set", "crds.install=false"), "CustomResourceDefinition") == []


def _environment(*arguments: object) -> dict[str, Any]:
    (operator,) = _kind(_rendered(*arguments), "Deployment")
    (container,) = operator["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each.get("value") for each in container["env"]}


def test_the_operator_has_the_labels_by_which_policies_know_it() -> None:
    (operator,) = _kind(_rendered(), "Deployment")
    assert operator["spec"]["replicas"] == 2
    assert names.OPERATOR_LABELS.items() <= operator["spec"]["template"]["metadata"]["labels"].items()
    pod = operator["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"]


def test_images_are_those_of_the_chart_unless_others_are_named() -> None:
    found = _environment()
    assert (found["NODE_IMAGE"], found["ROOT_IMAGE"]) == ("headwater/node:0.1.0", "headwater/root:0.1.0")
    given = (
        "image.repository=example.org/hw",
        "image.root=other/root@sha256:00",
        "imagePullSecrets[0].name=a",
    )
    found = _environment(*(part for each in given for part in ("--set", each)))
    assert (found["NODE_IMAGE"], found["ROOT_IMAGE"]) == ("example.org/hw/node:0.1.0", "other/root@sha256:00")
    assert found["IMAGE_PULL_SECRETS"] == "a"


@pytest.mark.parametrize(
    "given, watched",
    [
        ((), ["headwater-system"]),
        (("--set", "watchNamespaces={plant,lab}"), ["plant", "lab"]),
        (("--set-json", "watchNamespaces=[]"), []),
    ],
)
def test_rights_are_where_topologies_are(given: tuple[str, ...], watched: list[str]) -> None:
    asked = ("--namespace", helm.NAMESPACE, *given)
    found = _rendered(*asked)
    assert _environment(*asked)["WATCH_NAMESPACES"] == ",".join(watched)
    named = f"{helm.NAMESPACE}-headwater"
    roles = [each for each in _kind(found, "Role") if each["metadata"]["name"] == named]
    assert [each["metadata"]["namespace"] for each in roles] == watched
    everywhere = [each for each in _kind(found, "ClusterRole") if each["metadata"]["name"] == named]
    assert len(everywhere) == (not watched)
    (account,) = _kind(found, "ServiceAccount")
    for binding in _kind(found, "RoleBinding", "ClusterRoleBinding"):
        (subject,) = binding["subjects"]
        assert (subject["name"], subject["namespace"]) == (account["metadata"]["name"], helm.NAMESPACE)
        role = {**binding["metadata"], "name": binding["roleRef"]["name"]}
        assert any(
            each["kind"] == binding["roleRef"]["kind"]
            and each["metadata"]["name"] == role["name"]
            and each["metadata"].get("namespace") == role.get("namespace")
            for each in found
        )


def _granted(rules: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _rules(*arguments: object) -> list[dict[str, Any]]:
    name = f"{helm.NAMESPACE}-headwater"
    roles = _kind(_rendered("--namespace", helm.NAMESPACE, *arguments), "Role")
    (role,) = [each for each in roles if each["metadata"]["name"] == name]
    found: list[dict[str, Any]] = role["rules"]
    return found


def test_no_right_is_for_everything() -> None:
    for role in _kind(_rendered("--set-json", "watchNamespaces=[]"), "Role", "ClusterRole"):
        for part in (part for right in _granted(role["rules"]) for part in right):
            assert "*" not in part
        assert not {"escalate", "bind", "impersonate"} & {verb for _, _, verb in _granted(role["rules"])}


def test_the_operator_may_make_whatever_it_renders() -> None:
    spark = small(spec__root={"engine": "spark", "spark": {"executors": 1}})
    plurals = {"NetworkPolicy": "networkpolicies"}
    granted = _granted(_rules())
    for each in rendered(spark, nodes("small", 2, 1), monitored=True):
        group = each["apiVersion"].rpartition("/")[0]
        plural = plurals.get(each["kind"], each["kind"].lower() + "s")
        for verb in ("get", "list", "create", "patch", "delete"):
            assert (group, plural, verb) in granted


def test_the_operator_has_what_it_grants_to_drivers_and_only_where_it_does() -> None:
    assert _granted(executors.RULES) <= _granted(_rules())
    without = _granted(_rules("--set", "spark.executors.rbac=false"))
    assert ("", "pods", "create") not in without
    assert not {resource for _, resource, _ in without} & {"roles", "rolebindings", "serviceaccounts"}
    assert ("", "pods", "delete") in without


def test_certificates_of_cert_manager_are_a_right_only_where_it_is_wanted() -> None:
    wanted = {(kind.group, kind.plural, verb) for (kind, _), verbs in CERTIFYING.items() for verb in verbs}
    assert _granted(_rules("--set", "certManager.rbac=true")) - _granted(_rules()) == wanted
    assert not {group for group, _, _ in _granted(_rules())} & {"cert-manager.io"}


def test_nodes_and_monitoring_can_be_left_out() -> None:
    def resources(*arguments: object) -> set[str]:
        roles = _kind(_rendered(*arguments), "Role", "ClusterRole")
        return {resource for role in roles for _, resource, _ in _granted(role["rules"])}

    assert {"nodes", "podmonitors"} <= resources()
    assert "nodes" not in resources("--set", "nodes.rbac=false")
    assert "podmonitors" not in resources("--set", "alerts.enabled=false")


def test_the_operator_is_monitored_where_somebody_understands_it() -> None:
    kinds = ("PodMonitor", "PrometheusRule")
    has = [part for kind in kinds for part in ("--api-versions", f"monitoring.coreos.com/v1/{kind}")]
    assert _kind(_rendered(), *kinds) == []
    assert {each["kind"] for each in _kind(_rendered(*has), *kinds)} == set(kinds)
    assert _kind(_rendered(*has, "--set", "alerts.enabled=false"), *kinds) == []
    (rule,) = _kind(_rendered(*has), "PrometheusRule")
    assert rule["spec"] == yaml.safe_load((helm.CHART / "files" / "alerts.yaml").read_text())


def test_the_values_for_k3s_are_taken() -> None:
    found = _rendered("--values", helm.CHART / "values-k3s.yaml")
    (operator,) = _kind(found, "Deployment")
    assert operator["spec"]["replicas"] == 1


@pytest.mark.parametrize(
    "given, said",
    [
        ("crd.install=true", "'crd' not allowed"),
        ("crds.install=maybe", "got string, want boolean"),
        ("crds.keep=true", "'keep' not allowed"),
        ("watchNamespaces=plant", "got string, want null or array"),
        ("watchNamespaces={Plant}", "does not match pattern"),
        ("image.pullPolicy=Sometimes", "value must be one of"),
        ("image.registry=example.org", "'registry' not allowed"),
        ("replicas=none", "got string, want integer"),
        ("spark.executors.rbc=true", "'rbc' not allowed"),
        ("certManager.rbac=yes", "got string, want boolean"),
        ("certManager.install=true", "'install' not allowed"),
    ],
)
def test_values_that_nobody_knows_are_refused(given: str, said: str) -> None:
    done = helm.said("template", helm.RELEASE, helm.CHART, "--set", given)
    assert done.returncode != 0
    assert said in done.stderr


@pytest.fixture
def bare(cluster: Api) -> Iterator[Api]:
    """A cluster on which there is nothing of ours; afterwards too."""
    _clear(cluster)
    yield cluster
    _clear(cluster)


def _clear(cluster: Api) -> None:
    found = cluster.get(f"/apis/{GROUP}/{VERSION}/aggregationtopologies") or {"items": []}
    others = [each["metadata"]["name"] for each in found["items"] if each["metadata"]["name"] not in OURS]
    assert not others, f"the topologies {others} would be deleted with their definition: take another cluster"
    helm.uninstall()
    helm.uninstall(**ELSEWHERE)
    # It stays when its topology goes.
    cluster.delete("/api/v1/namespaces/default/persistentvolumeclaims/heir-root")
    cluster.delete(f"/api/v1/namespaces/{ELSEWHERE['namespace']}")
    for name in definitions():
        cluster.delete(f"{DEFINITIONS}/{name}.{GROUP}")


def _older(directory: Path) -> Path:
    """The chart as it was before topologies had spec.suspend."""
    chart = directory / "headwater"
    shutil.copytree(helm.CHART, chart)
    path = chart / "files" / "crds" / "aggregationtopologies.yaml"
    document = yaml.safe_load(path.read_text())
    schema = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["spec"]["properties"]["suspend"]
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return chart


def test_an_upgrade_brings_new_fields_and_leaves_topologies_alone(bare: Api, tmp_path: Path) -> None:
    helm.install(_older(tmp_path))
    plain, suspended = small(metadata__name="plain"), small(metadata__name="quiet", spec__suspend=True)
    made = bare.until(lambda: bare.call("POST", TOPOLOGIES, plain, fieldValidation="Strict"))
    refused = bare.call("POST", TOPOLOGIES, suspended, fieldValidation="Strict")
    assert (refused.code, "spec.suspend" in refused.message) == (400, True), refused

    assert not bare.knows("suspend")
    helm.install()
    assert bare.knows("suspend")
    bare.until(lambda: bare.call("POST", TOPOLOGIES, suspended, fieldValidation="Strict"))
    after = bare.get(f"{TOPOLOGIES}/plain")
    assert after is not None
    assert after["metadata"]["uid"] == made.answer["metadata"]["uid"]
    assert after["metadata"]["generation"] == 1
    assert after["spec"] == made.answer["spec"]
    assert [found["chart"] for found in helm.releases()] == ["headwater-0.1.0"]


def test_topologies_outlive_the_release_and_can_be_deleted_without_it(bare: Api) -> None:
    helm.install()
    bare.until(lambda: bare.call("POST", TOPOLOGIES, small(metadata__name="orphan")))
    helm.uninstall()
    assert helm.releases() == []
    assert bare.knows("sources")
    assert bare.get(f"{TOPOLOGIES}/orphan") is not None
    bare.delete(f"{TOPOLOGIES}/orphan")
    # And it is installed again over the definitions that stayed.
    helm.install()
    assert len(helm.releases()) == 1


def test_a_release_of_another_name_elsewhere_takes_over_what_stayed(bare: Api) -> None:
    everywhere = ("--set-json", "watchNamespaces=[]")
    helm.install(helm.CHART, *everywhere, *helm.WAIT)
    heir = {"metadata__name": "heir", "spec__node": {"ingestLimit": 1_000}}
    made = bare.until(lambda: bare.call("POST", TOPOLOGIES, small(**heir)))
    deployment = "/apis/apps/v1/namespaces/default/deployments/heir-l1-0"
    before = _until(lambda: _seen(bare, "heir", 1) and bare.get(deployment))
    helm.uninstall()
    refused = helm.install_said(helm.CHART, *everywhere, **ELSEWHERE)
    assert refused.returncode != 0
    assert "invalid ownership metadata" in refused.stderr
    helm.install(helm.CHART, *everywhere, "--take-ownership", *helm.WAIT, **ELSEWHERE)
    owner = {
        "meta.helm.sh/release-name": ELSEWHERE["release"],
        "meta.helm.sh/release-namespace": ELSEWHERE["namespace"],
    }
    for name in definitions():
        found = bare.get(f"{DEFINITIONS}/{name}.{GROUP}")
        assert found is not None
        assert owner.items() <= found["metadata"]["annotations"].items()
    # Nobody but the new operator sees to what is asked for now.
    changed = small(**heir, spec__limits={"maxNodes": 5})
    bare.until(lambda: bare.call("PATCH", f"{TOPOLOGIES}/heir", changed, fieldManager="test", force=True))
    _until(lambda: _seen(bare, "heir", 2))
    after = bare.get(f"{TOPOLOGIES}/heir")
    assert after is not None
    assert after["metadata"]["uid"] == made.answer["metadata"]["uid"]
    there = bare.get(deployment)
    assert there is not None
    assert there["metadata"]["uid"] == before["metadata"]["uid"]
    assert there["spec"]["template"] == before["spec"]["template"], "no pod is begun anew"
    # From here on it is a release like any other.
    helm.install(helm.CHART, *everywhere, **ELSEWHERE)
    assert [found["revision"] for found in helm.releases(ELSEWHERE["namespace"])] == ["2"]
    bare.delete(f"{TOPOLOGIES}/heir")


def _seen(cluster: Api, name: str, generation: int) -> bool:
    """Whether an operator has planned a generation of a topology."""
    status = ((cluster.get(f"{TOPOLOGIES}/{name}") or {}).get("status")) or {}
    planned = (each for each in status.get("conditions", ()) if each["type"] == "Planned")
    return any(each["status"] == "True" and each["observedGeneration"] == generation for each in planned)


def _until(reached: Callable[[], Any]) -> Any:
    end = monotonic() + SERVED
    while not (found := reached()):
        assert monotonic() < end
        sleep(0.2)
    return found
