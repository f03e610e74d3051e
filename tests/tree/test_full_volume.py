"""A root whose volume takes nothing more: it halts, nothing is lost, and with room all goes on exactly."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

from tests.tree.test_moves import at, counted, ended, grove, reached


def test_a_root_that_cannot_write_halts_and_is_exact_when_there_is_room_again(tmp_path: Path) -> None:
    with grove(tmp_path) as grown:
        child, spool = grown.node("c"), grown.spool("s")
        full, port = grown.top, grown.top.port

        async def run() -> None:
            async with grown.client("s", spool, at(child)) as client:
                grown.append("s", spool, 1_000)
                await reached(lambda: spool.counted or client.done, "nothing is counted")
                log = max(path.stat().st_size for path in (tmp_path / "root" / "inbox").glob("*.log"))
                # No file of the root may grow further than that: a write fails after half of it was taken.
                resource.prlimit(full.pid, resource.RLIMIT_FSIZE, (log + 10_000, log + 10_000))
                for _ in range(20):
                    grown.append("s", spool, 1_000)
                grown.end("s", spool)
                client.push()
                assert await ended(full) == 4
                (line,) = full.said("halted")
                assert "failed (File too large); records up to" in line["problem"]
                assert "start the root again" in line["problem"]
                assert not client.done
                before = spool.counted
                grown.top = await asyncio.to_thread(grown.root, port)
                await counted(client)
                assert before < spool.counted

        asyncio.run(run())
        grown.assert_exact()
