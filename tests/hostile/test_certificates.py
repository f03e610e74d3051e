"""What somebody sends to a tree with certificates who has none, a wrong one, or one that does not allow
it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from headwater_wire.credentials import Credentials
from headwater_wire.v1 import control_pb2, control_pb2_grpc
from headwater_wire.v1 import tree_pb2 as pb
from tests.certificates import Authority
from tests.hostile import steady
from tests.hostile.ground import PATIENCE, Ground, Talker, columns, first, ground
from tests.hostile.test_messages import events
from tests.programs import until

HOST = "127.0.0.1"
SECOND = 1_000_000


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with ground(tmp_path_factory.mktemp("tls"), tls=True) as found:
        yield found
        found.assert_exact()


@pytest.fixture(scope="module")
def authority(tree: Ground) -> Authority:
    assert tree.authority is not None
    return tree.authority


# Who is not let in at all: no call is made, so it is the connection that fails


def refused(port: int, credentials: Credentials | grpc.ChannelCredentials | None) -> grpc.StatusCode:
    """The status that a client sees."""
    address, options = f"{HOST}:{port}", [("grpc.ssl_target_name_override", "leaf")]
    if credentials is None:
        channel = grpc.insecure_channel(address)
    else:
        held = credentials.channel() if isinstance(credentials, Credentials) else credentials
        channel = grpc.secure_channel(address, held, options)
    with channel:
        call: Any = channel.stream_stream("/headwater.v1.Tree/Link", None, None)
        try:
            next(call(iter([first("x")]), timeout=PATIENCE))
        except grpc.RpcError as error:
            held_error: Any = error
            return held_error.code()  # type: ignore[no-any-return]
    pytest.fail("it was let in")


@pytest.mark.parametrize("kind", ["plain text", "none", "expired", "self-signed", "foreign", "no TLS at all"])
@pytest.mark.parametrize("victim", ["leaf", "root"])
def test_whoever_has_no_valid_certificate_is_not_let_in(
    tree: Ground, authority: Authority, tmp_path: Path, victim: str, kind: str
) -> None:
    port = tree.programs[victim].port
    with tree.attacked(victim, "handshake", HOST):
        if kind == "no TLS at all":
            with socket.create_connection((HOST, port)) as raw:
                raw.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
                raw.settimeout(PATIENCE)
                with suppress(ConnectionError):
                    # Until it is closed from there.
                    while raw.recv(4_096):
                        pass
            return
        other = Authority(tmp_path, "other")
        given: Credentials | grpc.ChannelCredentials | None
        if kind == "none":
            given = grpc.ssl_channel_credentials(authority.file.read_bytes())
        elif kind == "expired":
            given = authority.issue("x", lasts=timedelta(hours=-1))
        elif kind == "foreign":
            issued = other.issue("x")
            given = Credentials(issued.certificate, issued.key, authority.file)
        elif kind == "self-signed":
            # The other authority's own certificate is signed by itself.
            given = Credentials(other.file, other.key_file, authority.file)
        else:
            given = None
        assert refused(port, given) is grpc.StatusCode.UNAVAILABLE


# Who is let in, and says what they may not


def test_a_name_that_does_not_stand_in_the_certificate(tree: Ground, authority: Authority) -> None:
    held = authority.issue("x-name")
    port = tree.programs["leaf"].port
    with (
        tree.attacked("leaf", "identity", "x-name"),
        Talker(port, credentials=held, parent="leaf") as talker,
    ):
        talker.say(first(steady.NAME))
        code, sentence = talker.status()
        assert code is grpc.StatusCode.UNAUTHENTICATED
        assert "does not stand in the certificate" in sentence


def test_the_id_of_another_node(tree: Ground, authority: Authority) -> None:
    held = authority.issue("x-node", role="node")
    port = tree.programs["root"].port
    with (
        tree.attacked("root", "identity", "x-node", times=2),
        Talker(port, credentials=held, parent="root") as talker,
        Talker(port, credentials=held, parent="root") as other,
    ):
        talker.say(first("mid"))
        assert talker.status()[0] is grpc.StatusCode.UNAUTHENTICATED
        # As itself at first, then in the name of the root.
        other.begin("x-node")
        other.say(pb.Envelope(sender="root", to="root", register=pb.Register(node="root")))
        code, sentence = other.status()
        assert code is grpc.StatusCode.PERMISSION_DENIED
        assert "speaks as 'root', which is not below it" in sentence


def test_what_is_passed_on_of_a_node_with_a_stream_of_its_own_is_dropped(
    tree: Ground, authority: Authority
) -> None:
    held = authority.issue("x-relay", role="node")
    port = tree.programs["root"].port
    with (
        tree.attacked("root", "forwarded", "x-relay"),
        Talker(port, credentials=held, parent="root") as talker,
    ):
        talker.begin("x-relay")
        # It would take the name over, and end the real one.
        talker.say(pb.Envelope(sender="mid", to="root", register=pb.Register(node="mid", token="other")))
        until(lambda: ("forwarded", "x-relay") in tree.offences("root"), "nothing has come")


@pytest.mark.parametrize(
    "said, sentence",
    [
        (
            columns("x-source", "leaf", events(steady.NAME, [SECOND], [1e9])),
            f"says columns of '{steady.NAME}', which is not itself",
        ),
        (
            pb.Envelope(
                sender="x-source",
                to="leaf",
                probe=pb.Probe(heads=[pb.Standing(name=steady.NAME, incarnation=1)]),
            ),
            f"says probe of '{steady.NAME}', which is not itself",
        ),
        (
            pb.Envelope(sender="x-source", to="leaf", delivery=pb.Delivery()),
            "says delivery, but its certificate is no node's",
        ),
        (
            pb.Envelope(sender=steady.NAME, to="leaf", hello=pb.Hello(name=steady.NAME)),
            f"speaks as '{steady.NAME}', but its certificate is no node's",
        ),
    ],
)
def test_a_source_that_speaks_for_others(
    tree: Ground, authority: Authority, said: pb.Envelope, sentence: str
) -> None:
    held = authority.issue("x-source")
    port = tree.programs["leaf"].port
    with (
        tree.attacked("leaf", "identity", "x-source"),
        Talker(port, credentials=held, parent="leaf") as talker,
    ):
        talker.begin("x-source")
        talker.say(said)
        code, told = talker.status()
        assert code is grpc.StatusCode.PERMISSION_DENIED
        assert sentence in told


def test_commands_of_somebody_who_is_no_operator(tree: Ground, authority: Authority) -> None:
    held, port = authority.issue("x-device"), tree.programs["root"].port
    options = [("grpc.ssl_target_name_override", "root")]
    with (
        tree.attacked("root", "permission", "x-device"),
        grpc.secure_channel(f"{HOST}:{port}", held.channel(), options) as channel,
    ):
        control: Any = control_pb2_grpc.ControlStub(channel)  # type: ignore[no-untyped-call]  # generated
        with pytest.raises(grpc.RpcError) as caught:
            control.Retire(control_pb2.RetireRequest(source=pb.Named(name=steady.NAME)), timeout=PATIENCE)
        error: Any = caught.value
        assert error.code() is grpc.StatusCode.PERMISSION_DENIED
