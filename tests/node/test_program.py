"""`headwater-node` as an operator meets it: exit codes, readiness, certificates, logs, drain."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from headwater_source.client import SourceClient
from headwater_source.spool import Spool
from headwater_wire.credentials import Credentials
from tests.certificates import Authority
from tests.patience import PATIENCE
from tests.programs import Program, until

SECOND = 1_000_000
QUERY = {"id": "q", "aggregate": "sum", "window": {"type": "tumbling", "length": "1s"}}
QUERIES = [QUERY]
TOPOLOGY: dict[str, Any] = {
    "apiVersion": "headwater.dev/v1alpha1",
    "kind": "AggregationTopology",
    "metadata": {"name": "t"},
    "spec": {
        "sources": [{"class": "s", "site": "x", "expected": 1, "rate": 1, "lateness": "0s"}],
        "queries": QUERIES,
        "root": {"engine": "embedded"},
    },
}


def files(credentials: Credentials | None) -> dict[str, str]:
    if credentials is None:
        return {}
    return {field: str(getattr(credentials, field)) for field in ("certificate", "key", "ca")}


def root(directory: Path, credentials: Credentials | None = None) -> Program:
    manifest = directory / "topology.json"
    manifest.write_text(json.dumps(TOPOLOGY))
    command: list[object] = ["--topology", manifest, "--directory", directory / "root"]
    command += ["--metrics", "127.0.0.1:0"]
    for field, path in files(credentials).items():
        command += [f"--tls-{field}", path]
    return Program(directory / "root.log", "headwater_root", *command)


def node(directory: Path, parent: int, credentials: Credentials | None = None, **changes: Any) -> Program:
    given = {
        "name": "c",
        "role": "child",
        "listen": "127.0.0.1:0",
        "parent": "root",
        "parent_address": f"127.0.0.1:{parent}",
        "flush_interval": 0.05,
        "metrics": "127.0.0.1:0",
        "tls": files(credentials),
        **changes,
    }
    path = directory / "c.json"
    path.write_text(json.dumps(given))
    return Program(directory / "c.log", "headwater_node", "--config", path)


def health(port: int, credentials: Credentials | None = None) -> str:
    """What the node says of the tree's service."""
    if credentials is None:
        channel: AbstractContextManager[grpc.Channel] = grpc.insecure_channel(f"127.0.0.1:{port}")
    else:
        options = [("grpc.ssl_target_name_override", "c")]
        channel = grpc.secure_channel(f"127.0.0.1:{port}", credentials.channel(), options)
    with channel as opened:
        asked = health_pb2.HealthCheckRequest(service="headwater.v1.Tree")
        answer = health_pb2_grpc.HealthStub(opened).Check(asked, timeout=PATIENCE)
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


@contextmanager
def filled(directory: Path) -> Iterator[Spool]:
    spool = Spool.open(directory, limit_bytes=1 << 20)
    spool.append([0, SECOND, 2 * SECOND, 60 * SECOND], [1.0, 2.0, 4.0, 8.0])
    yield spool
    spool.close()


def sent(spool: Spool, port: int, credentials: Credentials | None = None) -> None:
    """Send everything and wait until the root has counted it."""

    async def send() -> None:
        client = SourceClient("s", "c", spool, credentials=credentials)
        client.start(f"127.0.0.1:{port}")
        try:
            async with asyncio.timeout(PATIENCE):
                while not client.done:
                    await asyncio.sleep(0.02)
        finally:
            await client.stop()

    asyncio.run(send())


@pytest.mark.parametrize("tls", [False, True])
def test_a_tree_from_its_start_to_its_end(tmp_path: Path, tls: bool) -> None:
    authority = Authority(tmp_path)
    of = {name: authority.issue(name, role="node") if tls else None for name in ("root", "c")}
    source = authority.issue("s") if tls else None
    with ExitStack() as stack:
        top = stack.enter_context(root(tmp_path, of["root"]))
        child = stack.enter_context(node(tmp_path, top.port, of["c"]))
        spool = stack.enter_context(filled(tmp_path / "spool"))
        until(lambda: child.get("/readyz")[0] == 200, "the node is not ready")
        assert top.get("/readyz") == (200, "ready\n")
        assert child.get("/healthz") == (200, "alive\n")
        assert child.get("/other")[0] == 404
        until(lambda: health(child.port, source) == "SERVING", "the health does not follow")
        sent(spool, child.port, source)
        figures = dict(line.rsplit(" ", 1) for line in top.get("/metrics")[1].splitlines() if line[0] != "#")
        assert figures['headwater_root_records_counted_total{topology="t"}'] == "4.0"
        assert figures["headwater_root_watermark_seconds"] == "60.0"
        assert float(figures["headwater_root_log_sync_seconds_count"]) >= 2
        assert "headwater_node_records_read_total 4.0" in child.get("/metrics")[1]
        # The parent goes: alive, but not ready, and told once however often it is tried.
        assert top.end(signal.SIGTERM) == 0
        until(lambda: child.get("/readyz")[0] == 503, "the node is ready without a parent")
        assert "no stream to root" in child.get("/readyz")[1]
        assert child.get("/healthz")[0] == 200
        until(lambda: health(child.port, source) == "NOT_SERVING", "the health does not follow")
        assert child.end(signal.SIGTERM) == 0
        for message in ("started", "parent connected", "parent lost", "drain begun", "drain ended"):
            assert len(child.said(message)) == 1, child.lines
        assert [line["tls"] for line in (*child.said("started"), *top.said("started"))] == [tls, tls]
        assert len(top.said("ended")) == 1


def test_a_node_whose_name_is_not_in_its_certificate_is_refused_and_says_so(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with (
        root(tmp_path, authority.issue("root")) as top,
        node(tmp_path, top.port, authority.issue("other", role="node")) as child,
    ):
        until(lambda: child.said("the parent refuses"), "it does not say so")
        assert "'c' does not stand in the certificate" in child.get("/readyz")[1]
        assert child.end(signal.SIGTERM) == 0


def test_records_that_the_parent_has_not_taken_are_told_by_the_exit_code(tmp_path: Path) -> None:
    with root(tmp_path) as top, node(tmp_path, top.port) as child, filled(tmp_path / "spool") as spool:

        async def send() -> None:
            client = SourceClient("s", "c", spool)
            client.start(f"127.0.0.1:{child.port}")
            try:
                async with asyncio.timeout(PATIENCE):
                    while not client.done:
                        await asyncio.sleep(0.02)
                    top.kill()
                    spool.append([61 * SECOND], [1.0])
                    while "headwater_node_held_bytes 0.0" in child.get("/metrics")[1]:
                        await asyncio.sleep(0.05)
            finally:
                await client.stop()

        asyncio.run(send())
        child.signal(signal.SIGTERM)
        until(lambda: child.said("drain begun"), "it does not drain")
        # The second signal is whoever does not want to wait.
        assert child.end(signal.SIGTERM) == 3


def install(directory: Path, name: str, lift: str) -> None:
    """A package with one function, for whoever has the directory on its path."""
    metadata = directory / f"{name}_functions-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}_functions\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[headwater.functions]\n{name} = {name}_functions:found\n")
    (directory / f"{name}_functions.py").write_text(
        "from headwater.aggregates import UserDefined\n"
        f"found = UserDefined({name!r}, lambda v: {lift}, max, str)\n"
    )


def test_a_node_without_the_package_of_a_function_halts_with_4_and_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", "mine", "v")
    queries = [{**QUERY, "aggregate": "function:mine"}]
    monkeypatch.setitem(TOPOLOGY["spec"], "queries", queries)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    with root(tmp_path) as top:
        monkeypatch.delenv("PYTHONPATH")
        with node(tmp_path, top.port) as child:
            assert child.end() == 4
            (line,) = child.said("halted")
            assert "'mine' is no function of an installed package" in line["problem"]
            assert "install the package whose entry point has that name" in line["problem"]
            # Once, and nothing else is complained of.
            assert [each["level"] for each in child.lines if each["level"] != "info"] == ["error"]
        # With the package, nothing more is needed.
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
        with node(tmp_path, top.port) as child:
            until(lambda: child.get("/readyz")[0] == 200, "the node is not ready")
            assert child.end(signal.SIGTERM) == 0
        assert top.end(signal.SIGTERM) == 0


def test_a_function_that_raises_halts_the_node_with_4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", "bad", "1 / 0")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    queries = [{**QUERY, "aggregate": "function:bad"}]
    monkeypatch.setitem(TOPOLOGY["spec"], "queries", queries)
    with (
        root(tmp_path) as top,
        node(tmp_path, top.port) as child,
        filled(tmp_path / "spool") as spool,
    ):

        async def send() -> None:
            client = SourceClient("s", "c", spool)
            client.start(f"127.0.0.1:{child.port}")
            try:
                async with asyncio.timeout(PATIENCE):
                    while not child.said("halted"):
                        await asyncio.sleep(0.05)
            finally:
                await client.stop()

        asyncio.run(send())
        assert child.end() == 4
        (line,) = child.said("halted")
        assert "the lift of 'bad' raised" in line["problem"]
        assert top.end(signal.SIGTERM) == 0


@pytest.mark.parametrize(
    "environment, said",
    [
        ({"HEADWATER_ROLE": "leaf"}, "role: is 'leaf'; give one of child, intermediate"),
        ({"HEADWATER_LOG_LEVEL": "loud"}, "HEADWATER_LOG_LEVEL: is 'loud'"),
        ({"HEADWATER_TLS_CA": "/none"}, "tls.certificate: is missing"),
        ({"HEADWATER_LISTEN": "127.0.0.1:x"}, "listen: 127.0.0.1:x cannot be listened on"),
        ({"HEADWATER_METRICS": "192.0.2.1:80"}, "metrics: 192.0.2.1:80 cannot be listened on"),
    ],
)
def test_a_configuration_that_cannot_be_used_ends_with_2(
    tmp_path: Path, environment: dict[str, str], said: str
) -> None:
    given = {
        "HEADWATER_NAME": "c",
        "HEADWATER_ROLE": "child",
        "HEADWATER_LISTEN": "127.0.0.1:0",
        "HEADWATER_PARENT": "root",
        "HEADWATER_PARENT_ADDRESS": "127.0.0.1:1",
        **environment,
    }
    command = [sys.executable, "-m", "headwater_node"]
    done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 2
    (line,) = [json.loads(line) for line in done.stderr.splitlines()]
    assert line["level"] == "error"
    assert said in line["message"]


@pytest.mark.parametrize("program", ["headwater_node", "headwater_root"])
def test_help_says_what_exit_codes_mean(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", program, "--help"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert "exit codes:" in done.stdout
    assert "the configuration cannot be used" in done.stdout


def test_another_parent_holds_at_once_when_the_configuration_is_read_again(tmp_path: Path) -> None:
    with root(tmp_path) as top, node(tmp_path, 1) as child:
        until(lambda: "no stream to root" in child.get("/readyz")[1], "it has a parent")
        path = tmp_path / "c.json"
        path.write_text("no JSON")
        child.signal(signal.SIGHUP)
        until(lambda: bool(child.said("the configuration is not taken")), "it says nothing")
        assert child.get("/readyz")[0] == 503
        given = {"name": "c", "role": "child", "listen": "127.0.0.1:0", "parent": "root"}
        path.write_text(json.dumps({**given, "parent_address": f"127.0.0.1:{top.port}"}))
        child.signal(signal.SIGHUP)
        until(lambda: child.get("/readyz")[0] == 200, "it has not turned")
        assert child.end(signal.SIGTERM) == 0
