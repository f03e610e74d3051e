"""Ids of results: no two have the same one, whatever the query, and a replay gives the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from headwater.events import Batch
from headwater.queries import Query
from headwater.results import Result
from headwater.root import Root
from headwater.sources import SourceId
from headwater.topology import topology_of
from headwater.windows import Punctuation
from headwater_cli.generator import KEYS, MARKS, START, sensors
from headwater_cli.heartbeats import AFTER
from headwater_root import resultlines
from tests.packages import EXAMPLES, example_function

MANIFESTS = sorted(EXAMPLES.glob("*.yaml"))
SECONDS = 2


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_every_result_of_every_example_has_an_id_of_its_own(path: Path) -> None:
    topology = topology_of(yaml.safe_load(path.read_text()), example_function)
    root = Root(topology.queries, expected=topology.expected)
    # Each sensor comes in two incarnations: their labels are all that tells some windows apart.
    sources = [(sensor, str(SourceId(sensor.name, n))) for sensor in sensors(topology)[:8] for n in (1, 2)]
    for sensor, name in sources:
        root.admit(name, lateness=sensor.lateness, site=sensor.site)
    root.start()
    last = START + SECONDS * 1_000_000 + AFTER
    for sensor, name in sources:
        first = 1
        for second in sensor.seconds(SECONDS):
            batch = Batch(
                name,
                first,
                np.array(second.ts),
                np.array(second.value),
                key=np.array(second.key),
                keys=KEYS,
                mark=np.array(second.mark),
                marks=MARKS,
            )
            assert root.push(batch) == len(batch)
            first += len(batch)
        root.push(Batch.from_records(name, first, [(last, None, None, None)]))
    found = list(root.take())
    assert {result.query for result in found} == {query.id for query in topology.queries}
    ids = [row["id"] for row in resultlines.decode(resultlines.encode(found))]
    assert ids == [resultlines.id_of(result) for result in found]
    assert len(set(ids)) == len(ids)
    assert all(id.isascii() and id.isprintable() and id.count("/") == 4 for id in ids)


def test_windows_that_begin_together_and_end_apart() -> None:
    root = Root([Query("q 1", Punctuation("S", "E", merge="bounds"))], expected=2)
    for name in ("a", "b"):
        root.admit(name, lateness=0)
    for name, end in (("a", 3), ("b", 5)):
        records = [(0, None, 1.0, "S"), (end, None, 1.0, "E"), (9, None, None, None)]
        root.push(Batch.from_records(name, 1, records))
    assert [resultlines.id_of(result) for result in root.take()] == ["q%201/1//*/0..3", "q%201/1//*/0..5"]


def test_a_query_that_comes_again_has_other_ids() -> None:
    one = Result("q", "", None, 0, 5, 1, {})
    two = Result("q", "", None, 0, 5, 1, {}, incarnation=2)
    assert [resultlines.id_of(one), resultlines.id_of(two)] == ["q/1//*/0", "q/2//*/0"]


NAMES = st.text("a/*%#2.\ud800\n", max_size=3)
RESULTS = st.builds(
    lambda query, site, key, start, incarnation: Result(
        query, site, key, start, 9, 1, {}, incarnation=incarnation
    ),
    NAMES,
    NAMES,
    st.none() | NAMES,
    st.integers(-2, 2),
    st.integers(1, 2),
)


@given(RESULTS, RESULTS)
def test_ids_differ_as_identities_do(one: Result, two: Result) -> None:
    assert (resultlines.id_of(one) == resultlines.id_of(two)) == (one.identity == two.identity)
