"""The HTTP endpoint beside a program."""

from __future__ import annotations

import asyncio
import threading

import pytest

from headwater.errors import Invalid
from headwater_wire import monitor
from headwater_wire.monitor import Monitor, address_of
from tests.programs import get


def test_a_program_is_ready_when_it_says_so() -> None:
    async def run() -> None:
        why: list[str | None] = ["the log is being replayed"]
        shown = Monitor(lambda: why[0])
        port = shown.start("127.0.0.1:0")
        try:
            assert await asyncio.to_thread(get, port, "/readyz") == (
                503,
                "not ready: the log is being replayed\n",
            )
            assert await asyncio.to_thread(get, port, "/healthz") == (200, "alive\n")
            why[0] = None
            assert await asyncio.to_thread(get, port, "/readyz?verbose") == (200, "ready\n")
            status, text = await asyncio.to_thread(get, port, "/metrics")
            assert (status, "process_resident_memory_bytes" in text) == (200, True)
            with pytest.raises(Invalid, match="cannot be listened on"):
                Monitor(lambda: None).start(f"127.0.0.1:{port}")
        finally:
            await shown.stop()

    asyncio.run(run())


def test_a_program_may_know_itself_that_it_is_not_alive() -> None:
    async def run() -> None:
        why: list[str | None] = ["a watch has been silent for 181 s"]
        shown = Monitor(lambda: None, alive=lambda: why[0])
        port = shown.start("127.0.0.1:0")
        try:
            told = await asyncio.to_thread(get, port, "/healthz")
            assert told == (503, "not alive: a watch has been silent for 181 s\n")
            why[0] = None
            assert await asyncio.to_thread(get, port, "/healthz") == (200, "alive\n")
        finally:
            await shown.stop()

    asyncio.run(run())


def test_a_loop_that_hangs_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        shown = Monitor(lambda: None)
        port = shown.start("127.0.0.1:0")
        try:
            answers: list[tuple[int, str]] = []
            asking = threading.Thread(target=lambda: answers.append(get(port, "/healthz")))
            with monkeypatch.context() as patch:
                # Of this question alone: nothing else has to be answered that soon.
                patch.setattr(monitor, "PATIENCE", 0.5)
                asking.start()
                # On purpose not asyncio's: nothing else runs until the answer is there.
                asking.join(20)
            assert answers == [(503, "the program does not answer\n")]
            assert await asyncio.to_thread(get, port, "/healthz") == (200, "alive\n")
        finally:
            await shown.stop()

    asyncio.run(run())


def test_addresses() -> None:
    assert address_of("127.0.0.1:9100", "metrics") == ("127.0.0.1", 9100)
    assert address_of("[::1]:9100", "metrics") == ("::1", 9100)
    assert address_of(":0", "metrics") == ("", 0)
    for wrong in ("", "localhost", "9100", "a:b", "a:99999", "a:1/x", "u@a:1", "[::1:9"):
        with pytest.raises(Invalid, match=r"metrics: is .* give host and port"):
            address_of(wrong, "metrics")


def test_a_loop_that_waits_for_its_disk_is_alive() -> None:
    async def run() -> None:
        writing = True
        shown = Monitor(lambda: None, lambda: writing)
        port = shown.start("127.0.0.1:0")
        try:
            answers: list[tuple[int, str]] = []
            asking = threading.Thread(target=lambda: answers.append(get(port, "/healthz")))
            asking.start()
            # On purpose not asyncio's: nothing else runs until the answer is there.
            asking.join(20)
            assert answers == [(200, "alive, and waiting for the disk\n")]
            writing = False
            assert await asyncio.to_thread(get, port, "/healthz") == (200, "alive\n")
        finally:
            await shown.stop()

    asyncio.run(run())
