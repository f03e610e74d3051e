"""Streams between parties with certificates, over real TLS on the loopback."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import grpc
import grpc.aio
import pytest

from headwater.errors import Invalid
from headwater.machines.messages import Ask, Hello, Send, Stream
from headwater_wire.credentials import Credentials
from tests.certificates import Authority
from tests.wire.parties import Party, parties, until


async def talked(above: Credentials | None, below: Credentials | None, name: str = "c") -> str | None:
    """What is wrong between two parties; None if they have heard each other."""
    parent, child = Party("root", above), Party(name, below)
    async with parties(parent, child):
        port = await parent.exchange.serve("127.0.0.1:0")
        child.exchange.connect(f"127.0.0.1:{port}", "root", "root")
        child.hello("root", name)
        await until(lambda: child.heard or child.exchange.uplink.problem)
        assert bool(child.heard) == bool(parent.heard)
        return child.exchange.uplink.problem


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_parties_with_certificates_of_one_authority_hear_each_other(authority: Authority) -> None:
    assert asyncio.run(talked(authority.issue("root"), authority.issue("c", role="node"))) is None
    assert asyncio.run(talked(None, None)) is None


def test_who_has_no_certificate_with_its_name_is_told_so(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    problem = asyncio.run(talked(authority.issue("root"), authority.issue("other", "more", role="node")))
    assert problem is not None
    assert problem.startswith("UNAUTHENTICATED: 'c' does not stand in the certificate")
    assert "more, other" in problem
    (told,) = [record for record in caplog.records if record.getMessage() == "the parent refuses"]
    assert vars(told)["problem"] == problem


def test_a_parent_must_have_the_name_of_the_parent(authority: Authority) -> None:
    problem = asyncio.run(talked(authority.issue("other"), authority.issue("c", role="node")))
    assert problem is not None
    assert "Hostname Verification Check failed" in problem


def test_certificates_of_another_authority_are_worth_nothing(authority: Authority, tmp_path: Path) -> None:
    theirs = Authority(tmp_path, "theirs")
    mine = authority.issue("root", file="mine")
    stranger = theirs.issue("c", role="node")
    # It trusts the parent, but the parent does not trust it; and the other way round.
    assert asyncio.run(talked(mine, Credentials(stranger.certificate, stranger.key, authority.file)))
    impostor = theirs.issue("root")
    pretends = Credentials(impostor.certificate, impostor.key, authority.file)
    assert asyncio.run(talked(pretends, authority.issue("c", role="node")))


def test_plain_text_and_certificates_do_not_mix(authority: Authority) -> None:
    assert asyncio.run(talked(authority.issue("root"), None))
    assert asyncio.run(talked(None, authority.issue("c", role="node")))


def test_a_source_that_speaks_as_another_is_cut_off_and_nothing_of_it_is_heard(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        parent, source = Party("root", authority.issue("root")), Party("s1", authority.issue("s1"))
        async with parties(parent, source):
            port = await parent.exchange.serve("127.0.0.1:0")
            source.exchange.connect(f"127.0.0.1:{port}", "root", "root")
            source.hello("root", "s1")
            await until(lambda: source.heard)
            source.hello("root", "s2")
            source.exchange.send([Send("root", Ask(Stream("s1", 0, 1), 0, ("s2",), 0))])
            await until(lambda: source.exchange.uplink.problem)
        told = [vars(record).get("problem", "") for record in caplog.records]
        assert any(each.startswith("'s1' says hello of 's2', which is not itself") for each in told)
        assert {(sender, type(message)) for sender, message in parent.heard} == {("s1", Hello)}
        assert {message.name for _, message in parent.heard if isinstance(message, Hello)} == {"s1"}

    asyncio.run(run())


def test_what_a_node_passes_on_reaches_the_root_and_comes_back(authority: Authority) -> None:
    async def run() -> None:
        root = Party("root", authority.issue("root"))
        node = Party("c", authority.issue("c", role="node"))
        below_it = Party("d", authority.issue("d", role="node"))
        async with parties(root, node, below_it):
            port = await root.exchange.serve("127.0.0.1:0")
            node.exchange.connect(f"127.0.0.1:{port}", "root", "root")
            port_below = await node.exchange.serve("127.0.0.1:0")
            below_it.exchange.connect(f"127.0.0.1:{port_below}", "c", "root")
            below_it.hello("root", "d")
            await until(lambda: below_it.heard)
        assert [sender for sender, _ in root.heard] == ["d"]
        assert [sender for sender, _ in below_it.heard] == ["root"]
        assert node.heard == []

    asyncio.run(run())


def copied(credentials: Credentials, to: Credentials) -> None:
    shutil.copy(credentials.key, to.key)
    shutil.copy(credentials.certificate, to.certificate)
    shutil.copy(credentials.ca, to.ca)


def test_certificates_that_change_are_taken_without_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for folder in ("old", "new", "root", "c"):
        (tmp_path / folder).mkdir()
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    files = {
        name: Credentials(tmp_path / name / "crt", tmp_path / name / "key", tmp_path / name / "ca")
        for name in ("root", "c")
    }
    for name, held in files.items():
        copied(old.issue(name, role="node"), held)

    async def connected(port: int, held: Credentials) -> str | None:
        child = Party("c", held)
        async with parties(child):
            child.exchange.connect(f"127.0.0.1:{port}", "root", "root")
            child.hello("root", "c")
            await until(lambda: child.heard or child.exchange.uplink.problem)
            return child.exchange.uplink.problem

    async def run() -> None:
        root = Party("root", files["root"])
        async with parties(root):
            port = await root.exchange.serve("127.0.0.1:0")
            assert await connected(port, files["c"]) is None
            # Half of a new pair changes nothing: who is right goes on being right.
            renewed = new.issue("root", role="node")
            shutil.copy(renewed.key, files["root"].key)
            assert await connected(port, files["c"]) is None
            copied(renewed, files["root"])
            assert await connected(port, files["c"]) is not None
            copied(new.issue("c", role="node"), files["c"])
            assert await connected(port, files["c"]) is None

    asyncio.run(run())
    said = [record.getMessage() for record in caplog.records]
    assert said.count("the certificates stay as they were") == 1
    assert said.count("certificates read again") == 1


def test_health_is_told_by_service(authority: Authority) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    async def run() -> None:
        root = Party("root", None)
        async with parties(root):
            port = await root.exchange.serve("127.0.0.1:0")
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                stub = health_pb2_grpc.HealthStub(channel)

                async def told(service: str) -> str:
                    answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
                    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))

                assert [await told(""), await told("headwater.v1.Tree")] == ["SERVING", "NOT_SERVING"]
                await root.exchange.ready(True)
                assert await told("headwater.v1.Tree") == "SERVING"

    asyncio.run(run())


def test_files_that_cannot_be_used_are_told_with_field_and_remedy(
    authority: Authority, tmp_path: Path
) -> None:
    good, other = authority.issue("c"), authority.issue("d")
    broken = tmp_path / "broken"
    broken.write_text("no PEM")
    asked = {field: str(getattr(good, field)) for field in ("certificate", "key", "ca")}
    assert Credentials.of(asked) == good
    assert Credentials.of({}) is None
    assert Credentials.of({"certificate": None, "key": None, "ca": None}) is None
    for change, field, problem in (
        ({"key": None}, "tls.key", "is missing"),
        ({"key": str(tmp_path / "none")}, "tls.key", "cannot be read"),
        ({"key": str(other.key)}, "tls.certificate", "are no pair"),
        ({"certificate": str(broken)}, "tls.certificate", "are no pair"),
        ({"ca": str(broken)}, "tls.ca", "holds no certificate"),
        ({"ca": 1}, "tls.ca", "is 1"),
        ({"cert": "x"}, "tls.cert", "is not known"),
    ):
        with pytest.raises(Invalid) as error:
            Credentials.of({**asked, **change})
        (found,) = error.value.problems
        assert (found.field, problem in found.message) == (field, True), found
        assert found.remedy
