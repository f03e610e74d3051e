"""A source of a later incarnation begins behind a number of its spool: what it sends is what it should be."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from headwater.machines.messages import Ack, Columns, Resync, Standing, Welcome
from headwater.machines.source import Settings, SourceMachine
from headwater.prefix import Prefix
from headwater.sources import SourceId
from headwater_source.spool import Spool


def append(spool: Spool, size: int) -> None:
    number = np.arange(spool.head + 1, spool.head + size + 1)
    spool.append(number, number.astype(float))


@pytest.mark.parametrize("seed", range(12))
def test_what_is_sent_bears_its_own_number_however_often_it_rewinds(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    spool = Spool.open(tmp_path, limit_bytes=1 << 26)
    for _ in range(4):
        append(spool, rng.choice([1, 3, 10, 50]))
    offset, source = spool.head, str(SourceId("s", 2))
    machine = SourceMachine("s", spool, Settings(), "c")
    machine.step("c", Welcome(spool.opening, source, offset, "c"), 1)
    sent, acknowledged = 0, 0
    for now in range(2, 62):
        for _ in range(rng.randint(0, 3)):
            append(spool, rng.choice([1, 3, 10, 50]))
        under_way = []
        for send in machine.send(now):
            assert isinstance(send.message, Columns)
            batch = send.message.batch
            expected = np.arange(batch.first, batch.first + len(batch)) + offset
            assert batch.ts.tolist() == expected.tolist()
            assert batch.value.tolist() == expected.tolist()
            under_way.append(send.message)
            sent += len(batch)
        if not under_way:
            continue
        message = rng.choice(under_way)
        if rng.random() < 0.6:
            machine.step("c", Ack(message.stream, message.id), now)
            acknowledged = message.batch.first + len(message.batch) - 1
        else:
            standing = Standing(Prefix(rng.randint(0, acknowledged)), 0, "")
            machine.step("c", Resync(message.stream, message.id, 0, {source: standing}), now)
    spool.close()
    assert sent > 100
