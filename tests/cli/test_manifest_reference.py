"""docs/manifest.md: its examples can be used, and no field that is read is left out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from click.testing import CliRunner

from headwater import aggregates
from headwater.topology import InvalidTopology, query_of, topology_of
from headwater.topology.tree import SinkType
from headwater.windows import MERGES
from headwater_cli.app import main

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "manifest.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
# Mappings whose names are the user's, or an API server's.
NOT_OURS = ("selector", "nodeSelector", "metadata", "headersEnv")


def test_the_examples_are_accepted(tmp_path: Path) -> None:
    files = []
    for number, example in enumerate(EXAMPLES):
        files.append(tmp_path / f"{number}.yaml")
        files[-1].write_text(example)
    done = CliRunner().invoke(main, ["validate", *map(str, files)])
    assert done.exit_code == 0, done.output
    assert "mill, 7 sources, 11 queries" in done.output
    assert "peak, a query for mill" in done.output


def asking(given: Any) -> Any:
    """The same with a field that nobody knows in every mapping: the answer names those that are known."""
    if isinstance(given, list):
        return [asking(each) for each in given]
    if not isinstance(given, dict):
        return given
    asked = {name: value if name in NOT_OURS else asking(value) for name, value in given.items()}
    return asked | {"zzqqzz": 1}


@pytest.mark.parametrize("example, read", [*zip(EXAMPLES, (topology_of, query_of), strict=True)])
def test_every_field_that_is_read_stands_there(example: str, read: Any) -> None:
    with pytest.raises(InvalidTopology) as raised:
        read(asking(yaml.safe_load(example)))
    lists = [each.remedy.removeprefix("known are ") for each in raised.value.problems]
    known = {name for each in lists for name in each.split(", ")}
    assert [each for each in lists if len(set(each.split(", "))) < len(each.split(", "))] == []
    assert {"apiVersion", "topologyRef" if read is query_of else "expected", "merge"} <= known
    assert {name for name in known if not re.search(rf"[`.]{name}\b[^`|]*`", TEXT)} == set()


def test_every_function_sink_and_merge_stands_there() -> None:
    words = {*aggregates.NAMES, *get_args(SinkType), *MERGES}
    assert {word for word in words if f"`{word}`" not in TEXT} == set()
