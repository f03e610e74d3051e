"""The command line, where no API server is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from headwater.errors import Invalid
from headwater_operator.connection import configured
from headwater_operator.settings import VARIABLES


def ran(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headwater_operator", *arguments],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_help_names_every_variable_and_every_exit_code() -> None:
    told = ran("--help")
    assert told.returncode == 0
    for variable in VARIABLES:
        assert variable in told.stdout
    for code in ("  0  ", "  1  ", "  2  ", "  3  "):
        assert code in told.stdout


def test_wrong_settings_end_it_with_each_remedy() -> None:
    done = ran(WORKERS="none", NODE_IMAGE="node", LOG_LEVEL="loud")
    assert done.returncode == 2
    [line] = map(json.loads, done.stderr.splitlines())
    assert line["level"] == "error"
    for part in ("ROOT_IMAGE: is missing", "WORKERS: is 'none'; give a whole number", "LOG_LEVEL"):
        assert part in line["message"]


@pytest.mark.parametrize("content", [None, "", "no: kubeconfig"])
def test_without_an_api_server_it_says_how_to_name_one(
    content: str | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("kube") / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(Invalid, match="run in a pod with a service account, or name the file"):
        configured({"KUBECONFIG": str(path)})


def test_in_a_pod_the_cluster_around_is_the_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # Half of what a pod has: it is looked for there, and not in a user's file.
    monkeypatch.delenv("KUBERNETES_SERVICE_PORT", raising=False)
    with pytest.raises(Invalid, match="Service host/port is not set"):
        configured({"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
