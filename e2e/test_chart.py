"""The chart: what it renders, and that definitions are installed, upgraded and outlive the release."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e import helm
from e2e.api import DEFINITIONS, Api
from headwater_operator.crds import definitions
from headwater_operator.crds.definitions import GROUP, VERSION
from tests.manifests import small

# Those that these tests make.
OURS = ("plain", "quiet", "orphan")
TOPOLOGIES = f"/apis/{GROUP}/{VERSION}/namespaces/default/aggregationtopologies"


def _rendered(*arguments: object) -> list[dict[str, Any]]:
    found = yaml.safe_load_all(helm.helm("template", helm.RELEASE, helm.CHART, *arguments))
    return [document for document in found if document]


def test_helm_finds_nothing_wrong() -> None:
    assert "0 chart(s) failed" in helm.helm("lint", helm.CHART, "--strict")


def test_it_renders_the_definitions() -> None:
    found = {each["spec"]["names"]["plural"]: each for each in _rendered()}
    assert found == definitions()
    assert _rendered("--set", "crds.install=false") == []


@pytest.mark.parametrize(
    "given, said",
    [
        ("crd.install=true", "'crd' not allowed"),
        ("crds.install=maybe", "got string, want boolean"),
        ("crds.keep=true", "'keep' not allowed"),
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
