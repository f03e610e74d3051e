"""`headwater run` with a Spark root: every kind of window at once, and equal to the oracle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


def everything() -> dict[str, Any]:
    """A topology with the queries of all examples that need no function of one's own; an event has one key,
    whatever an example calls it."""
    documents = [yaml.safe_load(path.read_text()) for path in EXAMPLES]
    queries = [
        {
            **query,
            "id": f"{document['metadata']['name']}-{query['id']}",
            **({"keyBy": "key"} if "keyBy" in query else {}),
        }
        for document in documents
        for query in document["spec"]["queries"]
        if "function:" not in str(query["aggregate"])
    ]
    (whole,) = (each for each in documents if each["metadata"]["name"] == "factory")
    assert len(queries) > 20
    return {**whole, "spec": {**whole["spec"], "queries": queries}}


def test_every_window_of_every_kind_equals_the_oracle(tmp_path: Path) -> None:
    path = tmp_path / "everything.yaml"
    path.write_text(yaml.safe_dump(everything()))
    command: list[str | Path] = [sys.executable, "-m", "headwater_cli", "run", path, "--engine", "spark"]
    done = subprocess.run(
        [*command, "--verify", "--json", "--events", "8000", "--children", "2", "--layers", "1"],
        capture_output=True,
        text=True,
        env={**os.environ, "HEADWATER_LOG_LEVEL": "error"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout)
    assert summary["differing"] == 0
    assert summary["windows"] > 500
    # What is told while it starts, and nothing of Spark's own words.
    lines = done.stderr.splitlines()
    assert lines[0].startswith("Spark is starting")
    assert any(line.startswith("Spark is up after") for line in lines)
    # On a busy machine Spark may take a while for the last windows, and that is told too.
    assert not [
        line for line in lines if not line.startswith(("Spark is ", "waiting for Spark", "waiting for sinks"))
    ]
