"""Whoever offends is counted and told of, and cannot make figures or lines without end."""

from __future__ import annotations

import logging

import pytest

from headwater_wire.handshakes import Handshakes
from headwater_wire.hosts import host_of
from headwater_wire.offences import LINES, NAME_LENGTH, NAMES, OTHERS, PAUSE, TOLD, Offence, Offences


def test_an_offence_is_counted_each_time_and_told_of_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    moment = [0]
    offences = Offences(lambda: moment[0])
    for _ in range(5):
        offences.note(Offence.UNREADABLE, "s", "sender: is wrong; send a name", more={"forwarded": "t"})
    moment[0] = PAUSE
    offences.note(Offence.UNREADABLE, "s", "again")
    assert list(offences.counts()) == [("unreadable", "s", 6)]
    first, second = map(vars, caplog.records)
    assert (first["msg"], first["offence"], first["sender"]) == ("refused a message", "unreadable", "s")
    assert (first["problem"], first["times"], first["forwarded"]) == ("sender: is wrong; send a name", 1, "t")
    # With those that were not told of.
    assert (second["problem"], second["times"]) == ("again", 5)


def test_ever_new_names_make_neither_figures_nor_lines_without_end(caplog: pytest.LogCaptureFixture) -> None:
    moment = [0]
    offences = Offences(lambda: moment[0])
    for number in range(3 * TOLD):
        offences.note(Offence.IDENTITY, f"{number}-" + "x" * 1_000_000, "y" * 1_000_000)
    counts = list(offences.counts())
    assert len(counts) == NAMES + 1
    assert max(len(offender) for _, offender, _ in counts) == NAME_LENGTH
    assert ("identity", OTHERS, 3 * TOLD - NAMES) in counts
    assert len(caplog.records) == LINES
    assert max(len(vars(record)["problem"]) for record in caplog.records) < 1_000
    assert len(offences._told) <= TOLD
    # Whoever had no line because there were too many gets one when there is room again.
    moment[0] = PAUSE
    offences.note(Offence.IDENTITY, f"{3 * TOLD - 1}-" + "x" * 1_000_000, "again")
    assert vars(caplog.records[-1])["times"] == 2


def test_what_sound_parties_do_too_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    offences = Offences()
    for offence in (Offence.SEQUENCE, Offence.STALE, Offence.BATCH):
        offences.note(offence, "n", "does not fit")
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO", "WARNING"]


@pytest.mark.parametrize(
    "peer, host",
    [("ipv4:10.0.0.4:51324", "10.0.0.4"), ("ipv6:%5B::1%5D:51324", "::1"), ("unix:", "unix:"), ("", "")],
)
def test_the_host_of_a_peer(peer: str, host: str) -> None:
    assert host_of(peer) == host


def test_only_handshakes_of_the_server_are_told_of() -> None:
    begins = b"I1116 18:44:19.942013   23349 handshaker.cc:155] CallNextHandshakerLocked: error="
    failed = (
        begins + b"UNKNOWN: Ssl handshake failed: SSL routines:OPENSSL_internal:WRONG_VERSION_NUMBER: x: OK\n"
    )
    arguments = b" shutdown=false args={grpc.internal.endpoint_peer_address=ipv4:10.0.0.4:5, "
    handshakes = Handshakes()
    assert handshakes.take(failed) is None
    found = handshakes.take(arguments + b"grpc.internal.server_credentials=0x1}\n")
    assert found == ("10.0.0.4", "WRONG_VERSION_NUMBER: x; it speaks no TLS here: give it certificates")
    # One that is done, and one of a client.
    assert handshakes.take(begins + b"OK shutdown=false\n") is None
    assert handshakes.take(arguments + b"grpc.internal.server_credentials=0x1}\n") is None
    assert handshakes.take(failed) is None
    assert handshakes.take(arguments + b"grpc.primary_user_agent=x}\n") is None
    assert handshakes.take(arguments + b"grpc.internal.server_credentials=0x1}\n") is None
