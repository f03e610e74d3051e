"""What the images hold is all that their programs need, also of what they need only now and then."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import pytest

from e2e import imports
from e2e.images import NODE, OPERATOR, ROOT
from e2e.kubectl import kubectl, namespace

# Left out of an image, and said where it is missing: an archive of raw events, manifests as YAML.
OPTIONAL = {"node": ["pyarrow"], "root": ["yaml"], "operator": []}
IMAGES = {"node": NODE, "root": ROOT, "operator": OPERATOR}


@pytest.mark.promise("an image starts, and has all that its program imports")
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("program", IMAGES)
def test_an_image_knows_its_release_and_has_what_it_imports(program: str) -> None:
    container = {
        "name": program,
        "image": IMAGES[program],
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", Path(imports.__file__).read_text()],
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "nodeSelector": {"headwater.dev/tier": "cloud"},
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65_532},
        "volumes": [{"name": "tmp", "emptyDir": {}}],
        "containers": [container],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": program}, "spec": spec}
    with namespace(f"image-of-{program}") as space:
        kubectl("--namespace", space, "apply", "--filename", "-", given=pod)
        ended = "--for=jsonpath={.status.containerStatuses[0].state.terminated}"
        kubectl("--namespace", space, "wait", ended, f"pod/{program}", "--timeout=240s")
        said = kubectl("--namespace", space, "logs", program)
    assert json.loads(said) == {"release": version("headwater"), "missing": OPTIONAL[program]}, said
