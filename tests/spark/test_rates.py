"""Rates from an archive: by source and by site, each record once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from headwater import Batch
from headwater.prefix import NO_SKIPS
from headwater_node.accepted import Portion
from headwater_node.archive import encoded
from headwater_spark.rates import HOUR, MINUTE, rates

SECOND = 1_000_000


def portion(source: str, site: str, ts: object, bare: bool = False) -> Portion:
    size = len(np.asarray(ts))
    batch = Batch(source, 1, ts, np.ones(size), bare=np.full(size, bare))
    return Portion(batch, "o", site, 0, None, NO_SKIPS)


def test_rates_by_hour(spark: SparkSession, tmp_path: Path) -> None:
    # 10 a second for two minutes; 1 a second over an edge of hours; nothing but heartbeats.
    steady = np.arange(1_200) * (SECOND // 10)
    slow = HOUR - 30 * SECOND + np.arange(90) * SECOND
    portions = [
        portion("a", "east", steady),
        portion("b", "east", slow),
        portion("c", "west", steady, bare=True),
    ]
    for number in range(2):
        # Twice, as after a move.
        (tmp_path / f"{number}.parquet").write_bytes(encoded(portions, number))
    found = [(r.start, r.site, r.source, r.events, round(r.mean, 6), r.peak) for r in rates(spark, tmp_path)]
    assert found == [
        (0, "east", "a", 1_200, 10.0, 10.0),
        (0, "east", "b", 30, 1.0, 1.0),
        (HOUR, "east", "b", 60, 1.0, 1.0),
    ]
    (first, second) = rates(spark, tmp_path, by_site=True)
    assert (first.source, first.events, first.peak) == (None, 1_230, 10.0)
    assert (second.start, second.events) == (HOUR, 60)
    assert len(rates(spark, tmp_path, MINUTE)) == 4


def test_a_burst_is_the_peak(spark: SparkSession, tmp_path: Path) -> None:
    ts = np.concatenate([np.arange(600) * (SECOND // 10), np.array([600 * SECOND])])
    (tmp_path / "0.parquet").write_bytes(encoded([portion("a", "east", ts)], 0))
    (rate,) = rates(spark, tmp_path)
    assert (rate.mean, rate.peak) == (1.0, 10.0)
