"""The windows that a run shows: some of every query."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headwater.queries import Query
from headwater.windows import Sliding, Tumbling
from headwater_cli.latency import Latency
from headwater_cli.results import LATEST, Results
from tests.cli.test_first_screen import row


def _write(outbox: Path, position: int, *rows: dict[str, Any]) -> None:
    (outbox / f"{position:020}-00000001").write_text("".join(json.dumps(each) + "\n" for each in rows))


def test_one_query_with_many_keys_leaves_room_for_others(tmp_path: Path) -> None:
    queries = [
        Query("trend", Tumbling("10s"), "avg", key_by="machine"),
        Query("load", Tumbling("10s"), "avg"),
    ]
    results = Results(tmp_path, queries, Latency(1))
    _write(tmp_path, 1, row(query="load", key=None))
    _write(tmp_path, 2, *(row(key=f"k{number}") for number in range(50)))
    assert results.look() == 51
    shown = results.mixed()
    assert len(shown) == LATEST
    assert shown[0].startswith("load")
    assert [line.split()[1] for line in shown[1:]] == [f"machine=k{n}" for n in range(51 - LATEST, 50)]
    # A query that has few windows has all of them there, whenever they came.
    _write(tmp_path, 3, row(query="load", key=None))
    results.look()
    assert sum(line.startswith("load") for line in results.mixed()) == 2


def test_of_windows_that_come_at_once_some_of_every_query_are_printed(tmp_path: Path) -> None:
    queries = [Query(id, Tumbling("10s"), "avg") for id in ("load", "trend")]
    results = Results(tmp_path, queries, Latency(1))
    _write(tmp_path, 1, row(query="load", key=None))
    assert results.look() == 1
    _write(tmp_path, 2, row(query="load", key=None), *(row() for _ in range(20)))
    found = results.look()
    assert [line.split()[0] for line in results.mixed(3, found)] == ["load", "trend", "trend"]
    # Windows of looks before were printed then.
    assert [line.split()[0] for line in results.mixed(12, found)].count("load") == 1
    assert results.mixed(12, results.look()) == []


def test_empty_windows_that_are_left_out_are_counted(tmp_path: Path) -> None:
    queries = [
        Query("pulse", Tumbling("1s"), "count", emit_empty=True),
        Query("load", Tumbling("1s"), "count"),
        Query("slow", Sliding("10s", "5s"), "count", emit_empty=True),
    ]
    results = Results(tmp_path, queries, Latency(1))
    starts = {"pulse": [7, 8, 20, 21, 24], "load": [7, 20], "slow": [0, 5, 10]}
    for position in range(5):
        found = [
            row(query=query, key=None, start=times[position] * 1_000_000, end=times[position] * 1_000_000 + 1)
            for query, times in starts.items()
            if position < len(times)
        ]
        _write(tmp_path, position + 1, *found)
        results.look()
    assert results.left_out == {"pulse": 11 + 2}


def test_a_query_that_is_added_is_known_from_then_on(tmp_path: Path) -> None:
    results = Results(tmp_path, [Query("load", Tumbling("1s"), "count")], Latency(1))
    _write(tmp_path, 1, row(query="peak", key="washer"))
    results.look()
    assert results.has_unknown
    assert "peak  key=washer" in results.mixed()[0]
    results.add([Query("peak", Tumbling("1s"), "max", key_by="machine")])
    assert not results.has_unknown
    assert "peak  machine=washer" in results.mixed()[0]
