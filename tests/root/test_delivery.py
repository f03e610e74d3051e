"""Sinks beside each other: who fails is told once, by a name of its own, and so is that it works again."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from headwater.topology import Sink
from headwater_root.delivery import Deliveries, sinks_of
from headwater_root.outbox import Outbox


def test_one_of_two_sinks_of_a_type_fails_and_recovers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    asked = [Sink("jsonlines", "one"), Sink("jsonlines", "two")]
    outbox, sinks = Outbox(tmp_path / "outbox"), sinks_of(asked, tmp_path / "sinks")
    outbox.write(1, 1, b"{}\n")
    deliver, healed = sinks[0].deliver, False

    def broken(position: int, rows: bytes) -> None:
        if not healed:
            raise OSError(28, "No space left on device")
        deliver(position, rows)

    sinks[0].deliver = broken  # type: ignore[method-assign]  # the fault

    async def run() -> None:
        nonlocal healed
        deliveries = Deliveries(outbox, sinks)
        deliveries.start()
        async with asyncio.timeout(20):
            while not deliveries.failing or deliveries.lags["1-jsonlines"]:
                await asyncio.sleep(0.01)
            assert list(deliveries.failing) == ["0-jsonlines"]
            assert deliveries.lags == {"0-jsonlines": 1, "1-jsonlines": 0}
            assert deliveries.behind == 1
            # Tried several times by then.
            await asyncio.sleep(0.5)
            healed = True
            while deliveries.failing:
                await asyncio.sleep(0.01)
        await deliveries.stop()

    asyncio.run(run())
    told = [(record.getMessage(), vars(record)["sink"]) for record in caplog.records]
    assert told == [("a sink fails", "0-jsonlines"), ("a sink has recovered", "0-jsonlines")]
    assert (tmp_path / "sinks" / "one" / "results.jsonl").read_bytes() == b"{}\n"
