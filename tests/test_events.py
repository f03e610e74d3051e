"""Batches: columns that are taken as they are, converted where nothing is lost, and rows made columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headwater.events import NO_MARK, Batch


def test_columns_of_the_right_type_are_not_copied() -> None:
    ts, value, key = np.arange(3), np.ones(3), np.zeros(3, np.int32)
    batch = Batch("s", 1, ts, value, key=key, keys=("k",))
    assert batch.ts is ts
    assert batch.value is value
    assert batch.key is key
    assert len(batch) == 3


@pytest.mark.parametrize("ts", [[1, 2], (1, 2), np.array([1, 2], np.int8), np.array([1, 2], np.uint64)])
@pytest.mark.parametrize(
    "value", [[1, 2], [1.0, 2.0], np.array([1, 2], np.float32), np.array([1, 2], np.uint8)]
)
def test_other_types_are_converted_where_nothing_is_lost(ts: Any, value: Any) -> None:
    batch = Batch("s", 1, ts, value)
    assert (str(batch.ts.dtype), str(batch.value.dtype)) == ("int64", "float64")
    assert (batch.ts.tolist(), batch.value.tolist()) == ([1, 2], [1.0, 2.0])


def test_an_empty_batch_is_a_batch() -> None:
    assert len(Batch("s", 1, [], [])) == len(Batch.from_records("s", 1, [])) == 0


def test_rows_become_columns() -> None:
    batch = Batch.from_records(
        "s",
        7,
        [
            (10, "k", 1.5, None),
            (11, None, None, "S"),  # a mark of all keys
            (12, "l", 2.5, "S"),
            (13, None, None, None),  # a heartbeat
        ],
    )
    assert batch.first == 7
    assert batch.ts.tolist() == [10, 11, 12, 13]
    assert batch.key is not None
    assert [batch.keys[code] for code in batch.key] == ["k", "", "l", ""]
    assert batch.mark is not None
    assert [None if code == NO_MARK else batch.marks[code] for code in batch.mark] == [None, "S", "S", None]
    assert batch.bare is not None
    assert batch.bare.tolist() == [False, True, False, True]
    assert batch.value[~batch.bare].tolist() == [1.5, 2.5]


def test_a_name_at_the_limit_is_measured_in_bytes() -> None:
    assert Batch("s", 1, [1], [1.0], key=[0], keys=("é" * 512,)).keys == ("é" * 512,)
