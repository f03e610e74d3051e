"""Large envelopes come in pieces, and nobody can make a party hold more of them than it wants to."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater_wire import outgoing
from headwater_wire.errors import Malformed
from headwater_wire.outgoing import Assemblies, Assembly, Outgoing, parsed
from headwater_wire.v1 import tree_pb2 as pb


def envelope(size: int, sender: str = "c") -> pb.Envelope:
    return pb.Envelope(sender=sender, to="root", delivery=pb.Delivery(id="x" * size))


def piece(data: bytes, *, last: bool = False, sender: str = "c") -> pb.Envelope:
    return pb.Envelope(sender=sender, to="root", piece=pb.Piece(data=data, last=last))


def taken(assembly: Assembly, message: pb.Envelope) -> tuple[pb.Envelope, bytes] | None:
    return assembly.take(message, message.SerializeToString())


@given(sizes=st.lists(st.integers(0, 400), max_size=8, unique=True))
def test_what_is_put_in_comes_out_in_its_order(sizes: list[int]) -> None:
    async def run() -> list[pb.Envelope]:
        queue, shared, found = Outgoing(), Assemblies(), []
        assembly = shared.assembly()
        for size in sizes:
            assert queue.put(envelope(size), envelope(size).SerializeToString())
        for _ in sizes:
            for data in await queue.get():
                assert len(data) <= 100
                whole = assembly.take(parsed(data), data)
                if whole is not None:
                    assert whole[1] == whole[0].SerializeToString()
                    found.append(whole[0])
        assert shared.bytes == 0
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outgoing, "MESSAGE_LIMIT", 100)
        patch.setattr(outgoing, "PIECE_BYTES", 80)
        assert asyncio.run(run()) == [envelope(size) for size in sizes]


def delivery(id: str, stream: int = 1) -> tuple[pb.Envelope, bytes]:
    sent = pb.Delivery(id=id, stream=pb.StreamId(number=stream))
    found = pb.Envelope(sender="c", to="root", delivery=sent)
    return found, found.SerializeToString()


def test_what_is_said_again_takes_the_place_of_what_still_waits() -> None:
    async def run() -> None:
        queue = Outgoing()
        for each in (delivery("1"), delivery("2"), delivery("1"), delivery("2", stream=2), delivery("3")):
            assert queue.put(*each)
        assert await queue.get() == [delivery("1")[1]]
        # It is being written: the same again would only follow it; on another stream it is another.
        assert queue.put(*delivery("1"))
        assert await queue.get() == [delivery("2", stream=2)[1]]
        assert queue.put(*delivery("2", stream=3))
        assert await queue.get() == [delivery("3")[1]]
        assert await queue.get() == [delivery("2", stream=3)[1]]
        # It was written and is not answered: it may have got lost behind here.
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        assert queue.put(*delivery("2", stream=3))
        assert await waiting == [delivery("2", stream=3)[1]]

    asyncio.run(run())


def test_a_probe_takes_the_place_of_no_other() -> None:
    async def run() -> None:
        queue = Outgoing()
        for brief in (False, True):
            probe = pb.Envelope(sender="c", to="root", probe=pb.Probe(id="1", brief=brief))
            assert queue.put(probe, probe.SerializeToString())
        found = [parsed((await queue.get())[0]).probe.brief for _ in range(2)]
        assert found == [False, True]

    asyncio.run(run())


def test_a_stream_that_is_over_takes_nothing_from_the_next_one() -> None:
    async def run() -> None:
        queue = Outgoing()
        before = asyncio.create_task(queue.get(queue.turn()))
        await asyncio.sleep(0)
        after = asyncio.create_task(queue.get(queue.turn()))
        await asyncio.sleep(0)
        data = envelope(1).SerializeToString()
        assert queue.put(envelope(1), data)
        assert await before == []
        assert await after == [data]

    asyncio.run(run())


def test_one_envelope_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "ENVELOPE_LIMIT", 25)
    shared = Assemblies()
    assembly = shared.assembly()
    assert taken(assembly, piece(b"x" * 20)) is None
    with pytest.raises(Malformed, match="makes more than 25 bytes"):
        taken(assembly, piece(b"x" * 6))
    assert shared.bytes == 0
    # The rest of it is passed over, and what comes behind it is heard.
    assert taken(assembly, piece(b"x" * 6)) is None
    assert taken(assembly, piece(b"x" * 6, last=True)) is None
    assert shared.bytes == 0
    assert taken(assembly, envelope(3)) is not None


def test_all_streams_share_a_bound_and_those_who_were_first_go_on() -> None:
    shared, whole = Assemblies(limit=100), envelope(60).SerializeToString()
    first, second = shared.assembly(), shared.assembly()
    assert taken(first, piece(whole[:40])) is None
    assert taken(second, piece(whole[:40])) is None
    with pytest.raises(Malformed, match="comes while 80 bytes of others are not complete"):
        taken(second, piece(whole[40:], last=True))
    assert shared.bytes == 40
    assert taken(first, piece(whole[40:], last=True)) == (envelope(60), whole)
    # It is sent again, and there is room.
    assert taken(second, piece(whole[:40])) is None
    assert taken(second, piece(whole[40:], last=True)) == (envelope(60), whole)
    assert taken(first, piece(whole[:40])) is None
    # A stream that ends leaves nothing behind.
    first.close()
    assert shared.bytes == 0


def test_pieces_do_not_hide_who_speaks() -> None:
    assembly = Assemblies().assembly()
    with pytest.raises(Malformed, match="makes an envelope of somebody else"):
        taken(assembly, piece(envelope(5, "d").SerializeToString(), last=True))
