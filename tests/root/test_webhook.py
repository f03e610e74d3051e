"""The webhook sink, with a real receiver: each row once where the key is minded, and none lost."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import topology
from headwater.errors import Invalid
from headwater.results import Result
from headwater_root import resultlines
from headwater_root.delivery import Deliveries, groups, sinks_of
from headwater_root.files import Damaged
from headwater_root.outbox import Outbox
from headwater_root.sinks.webhook import NotTaken, Webhook, parts
from headwater_root.sinks.writer import Writer
from tests.certificates import Authority
from tests.patience import PATIENCE
from tests.programs import until
from tests.root.disk import Died, Disk
from tests.root.receiver import Fault, Receiver, receiving

SECRET = "hush-hush"
WRITER = Writer("plant", 1)


def rows(*numbers: int) -> bytes:
    return resultlines.encode(
        Result("q", "", f"k{n}", 10 * n, 10 * n + 10, 1, {"sum": n / 7}) for n in numbers
    )


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


def opened(directory: Path, receiver: Receiver, **options: Any) -> Webhook:
    return Webhook(directory, f"http://127.0.0.1:{receiver.port}/in?of=plant", WRITER, **options)


def numbers(receiver: Receiver) -> list[int]:
    return [row["start"] // 10 for row in receiver.rows]


def test_rows_come_as_lines_with_a_key(tmp_path: Path, receiver: Receiver) -> None:
    sink = opened(tmp_path, receiver, headers={"Authorization": f"Bearer {SECRET}"})
    sink.deliver(3, rows(1, 2))
    sink.deliver(4, b"")
    sink.deliver(4, rows(9))
    sink.deliver(6, rows(3))
    sink.close()
    assert (sink.cursor, numbers(receiver)) == (6, [1, 2, 3])
    (first, headers, body), (second, _, _) = receiver.requests
    assert body == rows(1, 2)
    assert (headers["Content-Type"], headers["Authorization"]) == ("application/x-ndjson", f"Bearer {SECRET}")
    word = (tmp_path / "word").read_text().strip()
    assert first == f"plant:{word}:0:0-{len(body)}"
    assert second == f"plant:{word}:4:0-{len(rows(3))}"
    # One connection is enough.
    assert receiver.connections == 1


@given(st.lists(st.integers(0, 30)), st.integers(1, 40))
def test_parts_are_whole_lines(lengths: list[int], limit: int) -> None:
    lines = b"".join(b"x" * length + b"\n" for length in lengths)
    found = [lines[begin:end] for begin, end in parts(lines, 0, limit)]
    assert b"".join(found) == lines
    assert all(part.endswith(b"\n") for part in found)
    assert all(len(part) <= limit or part.count(b"\n") == 1 for part in found)


FAULTS: list[Fault] = [500, 404, 429, (302, {"Location": "http://127.0.0.1:1/"}), "reset", "lost"]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_request_that_failed_is_repeated_with_the_same_key(
    tmp_path: Path, receiver: Receiver, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "__defaults__", (200,))
    sink = opened(tmp_path, receiver)
    # A connection that was kept and breaks is opened again at once, so it must break twice.
    receiver.faults = deque([200, fault, fault] if fault in ("reset", "lost") else [200, fault])
    with pytest.raises(NotTaken):
        sink.deliver(3, rows(1, 2, 3))
    assert sink.cursor == 0
    sink.close()
    # Another process, which finds that there is more by now.
    sink = opened(tmp_path, receiver)
    sink.deliver(5, rows(1, 2, 3, 4, 5))
    sink.close()
    assert (sink.cursor, numbers(receiver)) == (5, [1, 2, 3, 4, 5])
    keys = [key for key, _, _ in receiver.requests]
    assert keys[1] == keys[2]
    assert len(set(keys)) == 5


def test_a_receiver_that_is_silent(tmp_path: Path, receiver: Receiver) -> None:
    sink = opened(tmp_path, receiver, timeout=0.3)
    receiver.faults.append("hang")
    with pytest.raises(NotTaken, match=r"no answer within 0\.3 s|timed out"):
        sink.deliver(1, rows(1))
    until(lambda: receiver.requests, "the request has come")
    sink.close()
    sink = opened(tmp_path, receiver)
    sink.deliver(2, rows(1, 2))
    sink.close()
    assert numbers(receiver) == [1, 2]
    assert receiver.requests[0][0] == receiver.requests[1][0]


def test_what_is_told_of_a_refusal(tmp_path: Path, receiver: Receiver) -> None:
    sink = opened(tmp_path, receiver)
    for fault, told in [
        (401, "401 Unauthorized; see to what headersEnv names"),
        (422, "nothing behind it is sent before it is taken"),
        ((307, {"Location": "http://example.org/"}), "redirects are not followed"),
        (503, "answers 503 Service Unavailable"),
    ]:
        receiver.faults.append(fault)  # type: ignore[arg-type]  # a list of several kinds
        with pytest.raises(NotTaken, match=told) as caught:
            sink.deliver(1, rows(1))
        assert str(caught.value).startswith(f"http://127.0.0.1:{receiver.port}/in: ")
        assert caught.value.wait == 0
    for asked, wait in [("7", 7.0), ("100000", 300.0), ("Wed, 21 Oct 2026 07:28:00 GMT", 0.0)]:
        receiver.faults.append((429, {"Retry-After": asked}))
        with pytest.raises(NotTaken) as caught:
            sink.deliver(1, rows(1))
        assert caught.value.wait == wait
    sink.close()


def test_a_connection_that_was_idle_too_long_is_no_failure(tmp_path: Path, receiver: Receiver) -> None:
    sink = opened(tmp_path, receiver)
    receiver.faults = deque(["close", "close"])
    for position in (1, 2, 3):
        sink.deliver(position, rows(position))
    sink.close()
    assert (numbers(receiver), receiver.connections) == ([1, 2, 3], 3)


@pytest.mark.parametrize("together", [False, True])
def test_a_crash_at_any_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: bool, receiver: Receiver
) -> None:
    monkeypatch.setattr(parts, "__defaults__", (200,))
    files = {1: rows(1, 2), 4: rows(3), 5: b"", 9: rows(4, 5, 6)}

    def offer(sink: Webhook) -> None:
        left = ((position, found) for position, found in files.items() if position > sink.cursor)
        for position, found in groups(left) if together else left:
            sink.deliver(position, found)

    for step in range(1, 200):
        directory = tmp_path / str(step)
        directory.mkdir()
        receiver.taken.clear()
        disk = Disk(monkeypatch, directory, dies_at=step)
        sink = None
        with suppress(Died):
            sink = opened(directory, receiver)
            offer(sink)
        died = disk.died
        disk.recover(monkeypatch, "process")
        monkeypatch.setattr(parts, "__defaults__", (200,))
        if sink is not None:
            sink.close()
        sink = opened(directory, receiver)
        offer(sink)
        sink.close()
        assert (sink.cursor, sorted(numbers(receiver))) == (9, [1, 2, 3, 4, 5, 6])
        if not died:
            return
    raise AssertionError("it never came to an end")


def test_certificates_are_verified(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("localhost")
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(issued.certificate, issued.key)
    with receiving(tls=served) as receiver:
        address = f"https://localhost:{receiver.port}/"
        stranger = Webhook(tmp_path / "1", address, WRITER)
        with pytest.raises(NotTaken, match="certificate verify failed"):
            stranger.deliver(1, rows(1))
        assert receiver.requests == []
        trusted = ssl.create_default_context(cafile=str(authority.file))
        sink = Webhook(tmp_path / "2", address, WRITER, trusted=trusted)
        sink.deliver(1, rows(1))
        sink.close()
        assert numbers(receiver) == [1]
        other = Webhook(tmp_path / "3", f"https://127.0.0.1:{receiver.port}/", WRITER, trusted=trusted)
        with pytest.raises(NotTaken, match="certificate verify failed"):
            other.deliver(1, rows(1))


def test_a_receiver_that_is_not_there_yet_holds_nobody_back(tmp_path: Path) -> None:
    with receiving() as gone:
        port = gone.port
    outbox = Outbox(tmp_path / "outbox")
    wanted = [
        topology.Sink("webhook", url=f"http://127.0.0.1:{port}/?token={SECRET}"),
        topology.Sink("jsonlines", "lines"),
    ]
    deliveries = Deliveries(outbox, sinks_of(wanted, tmp_path / "sinks", WRITER, {}))
    for position in range(1, 6):
        outbox.write(position, 1, rows(position))

    async def run() -> None:
        deliveries.start()
        async with asyncio.timeout(PATIENCE):
            while deliveries.failures["0-webhook"] < 2 or deliveries.lags["1-jsonlines"]:
                await asyncio.sleep(0.01)
            assert deliveries.lags["0-webhook"] == 5
            told = str(deliveries.failing["0-webhook"])
            assert "Connection refused" in told
            assert SECRET not in told
            with receiving(port) as back:
                while deliveries.behind:
                    await asyncio.sleep(0.01)
                assert numbers(back) == [1, 2, 3, 4, 5]
                # What had come together was sent together.
                assert len(back.requests) == 1
        await deliveries.stop()

    asyncio.run(run())


@pytest.mark.parametrize(
    "sink, field, told",
    [
        (topology.Sink("webhook", url="http://a", secret_ref="s"), "secretRef", "give headersEnv"),
        (
            topology.Sink("webhook", url="http://a", headers_env=(("X", "NONE"),)),
            "headersEnv[X]",
            "NONE is not set",
        ),
        (
            topology.Sink("webhook", url="http://a", headers_env=(("X", "BAD"),)),
            "headersEnv[X]",
            "printable ASCII",
        ),
    ],
)
def test_headers_that_are_none(tmp_path: Path, sink: topology.Sink, field: str, told: str) -> None:
    with pytest.raises(Invalid) as caught:
        sinks_of([sink], tmp_path, WRITER, {"BAD": f"{SECRET}\r\nHost: x"})
    (problem,) = caught.value.problems
    assert problem.field == f"spec.root.sinks[0].{field}"
    assert told in f"{problem.message}; {problem.remedy}"
    assert SECRET not in str(caught.value)


def test_headers_come_from_the_environment(tmp_path: Path, receiver: Receiver) -> None:
    asked = topology.Sink(
        "webhook", url=f"http://127.0.0.1:{receiver.port}", headers_env=(("X-Token", "TOKEN"),)
    )
    (sink,) = sinks_of([asked], tmp_path, WRITER, {"TOKEN": SECRET})
    sink.deliver(1, rows(1))
    sink.close()
    assert receiver.requests[0][1]["X-Token"] == SECRET
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes()


def test_with_another_order_of_sinks_each_keeps_its_cursor(tmp_path: Path, receiver: Receiver) -> None:
    asked = [topology.Sink("webhook", url=f"http://127.0.0.1:{receiver.port}/{n}") for n in (1, 2)]
    one, two = sinks_of(asked, tmp_path, WRITER, {})
    one.deliver(5, rows(1))
    two.deliver(1, rows(1))
    one.close()
    two.close()
    found = sinks_of(asked[::-1], tmp_path, WRITER, {})
    assert [(sink.name, sink.cursor) for sink in found] == [("0-webhook", 1), ("1-webhook", 5)]


@pytest.mark.parametrize("found", ["", "[]", "{", '{"position": "x"}', '{"place": 5}'])
def test_a_cursor_that_is_none(tmp_path: Path, receiver: Receiver, found: str) -> None:
    (tmp_path / "cursor.json").write_text(found)
    with pytest.raises(Damaged, match="this is no cursor; put it back, or remove it"):
        opened(tmp_path, receiver)
