"""Commands that speak to a tree with certificates: a source's sends, an operator's asks and decides."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headwater_cli.app import main
from headwater_wire.credentials import FIELDS, Credentials
from tests.certificates import Authority
from tests.programs import Program, until
from tests.tree.processes import QUERIES, document


@dataclass(frozen=True, slots=True)
class Guarded:
    """A root and a child that ask for certificates, and who issues them."""

    directory: Path
    authority: Authority
    root: Program
    child: Program

    def said(self, credentials: Credentials | None, *arguments: object) -> Result:
        options: list[object] = []
        if credentials is not None:
            options = [each for name, file in files(credentials).items() for each in (f"--tls-{name}", file)]
        return CliRunner().invoke(main, list(map(str, [*arguments, *options])))

    def asked(self, credentials: Credentials | None, *arguments: object) -> Result:
        return self.said(credentials, *arguments, "--root", f"127.0.0.1:{self.root.port}")

    def sent(
        self, credentials: Credentials | None, name: str, *options: object, child: str | None = "c"
    ) -> Result:
        path = self.directory / "x.csv"
        path.write_text("ts,value,key\n1000000,1,a\n1500000,2,a\n9000000,4,a\n")
        to, spool = f"127.0.0.1:{self.child.port}", self.directory / "spools"
        given = ["--to", to, "--name", name, "--spool", spool, "--time-unit", "us", "--json", *options]
        if child is not None:
            given += ["--child", child]
        return self.said(credentials, "send", path, *given)

    def refused(self, credentials: Credentials | None, name: str, child: str | None = "c") -> Result:
        """Nothing can be sent, and why is told, however long it takes to find that out."""
        for seconds in (1, 5, 30):
            done = self.sent(credentials, name, "--timeout", f"{seconds}s", child=child)
            assert done.exit_code == 3, done.output
            if "no answer yet" not in done.stderr:
                break
        return done


def files(credentials: Credentials) -> dict[str, str]:
    return {field: str(getattr(credentials, field)) for field in FIELDS}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory = tmp_path_factory.mktemp("guarded")
    authority = Authority(directory)
    manifest, node = directory / "topology.json", directory / "c.json"
    manifest.write_text(json.dumps(document(QUERIES)))
    command: list[object] = ["headwater_root", "--topology", manifest, "--directory", directory / "root"]
    for field, path in files(authority.issue("root", role="node")).items():
        command += [f"--tls-{field}", path]
    with ExitStack() as stack:
        root = stack.enter_context(Program(directory / "root.log", *command))
        given = {
            "name": "c",
            "role": "child",
            "listen": "127.0.0.1:0",
            "parent": "root",
            "parent_address": f"127.0.0.1:{root.port}",
            "flush_interval": 0.03,
            "metrics": "127.0.0.1:0",
            "tls": files(authority.issue("c", role="node")),
        }
        node.write_text(json.dumps(given))
        child = stack.enter_context(Program(directory / "c.log", "headwater_node", "--config", node))
        until(lambda: child.get("/readyz")[0] == 200, "the child is not ready")
        yield Guarded(directory, authority, root, child)


@pytest.fixture(scope="module")
def operator(guarded: Guarded) -> Credentials:
    return guarded.authority.issue("alice", role="operator")


def test_a_source_sends_with_its_certificate(guarded: Guarded, operator: Credentials) -> None:
    done = guarded.sent(guarded.authority.issue("s"), "s")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["counted"] == 3
    told = guarded.asked(operator, "status", "--json")
    assert told.exit_code == 0, told.output
    (source,) = [each for each in json.loads(told.stdout)["sources"] if each["name"] == "s"]
    assert (source["position"], source["state"]) == (3, "live")


def test_a_source_whose_certificate_bears_another_name_is_told(guarded: Guarded) -> None:
    done = guarded.refused(guarded.authority.issue("other"), "t")
    assert "'t' does not stand in the certificate" in done.stderr
    assert json.loads(done.stdout)["left"] == 3


def test_the_environment_names_the_files(
    guarded: Guarded, operator: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    for field, path in files(operator).items():
        monkeypatch.setenv(f"HEADWATER_TLS_{field.upper()}", path)
    monkeypatch.setenv("HEADWATER_ROOT", f"127.0.0.1:{guarded.root.port}")
    done = guarded.said(None, "query", "list", "--json")
    assert done.exit_code == 0, done.output
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["t", "k"]
    for field, path in files(guarded.authority.issue("u")).items():
        monkeypatch.setenv(f"HEADWATER_TLS_{field.upper()}", path)
    done = guarded.sent(None, "u")
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    "command",
    [
        ("status",),
        ("query", "list"),
        ("query", "remove", "t"),
        ("source", "retire", "s"),
        ("source", "skip", "s", "9"),
    ],
)
def test_only_an_operator_asks_and_decides(guarded: Guarded, command: tuple[str, ...]) -> None:
    done = guarded.asked(guarded.authority.issue("s", file="device"), *command)
    assert done.exit_code == 1
    assert "s is no operator; use a certificate with the URI headwater:role:operator" in done.output


def test_an_operator_adds_and_removes_queries(guarded: Guarded, operator: Credentials) -> None:
    path = guarded.directory / "load.yaml"
    path.write_text("{id: load, aggregate: sum, window: {type: tumbling, length: 1s}}")
    for command in (("add", path), ("remove", "load")):
        done = guarded.asked(operator, "query", *command)
        assert done.exit_code == 0, done.output


def test_who_has_no_certificate_is_told_what_to_give(guarded: Guarded, operator: Credentials) -> None:
    done = guarded.asked(None, "status")
    assert done.exit_code == 1
    assert "give --tls-certificate, --tls-key and --tls-ca if it asks for certificates" in done.output
    done = guarded.said(None, "status", "--root", "127.0.0.1:1", "--tls-key", operator.key)
    assert done.exit_code == 1
    assert "tls.certificate: is missing; give all three files, or none" in done.output


def test_a_source_that_calls_the_child_by_another_name_is_told_of_child(guarded: Guarded) -> None:
    mine = guarded.authority.issue("v")
    said = "the certificate there bears another name; "
    remedy = "give the name of the node there with --child NAME (in a cluster: TOPOLOGY-ingest)"
    assert said + remedy in guarded.refused(mine, "v", child=None).stderr
    assert said + "'d' is what --child says; give the name" in guarded.refused(mine, "v", child="d").stderr


def test_a_certificate_of_another_authority_is_told(guarded: Guarded, tmp_path: Path) -> None:
    theirs = Authority(tmp_path)
    remedy = "its certificate does not pass with --tls-ca; give the file of the CA that has issued it"
    done = guarded.asked(theirs.issue("alice", role="operator"), "status")
    assert done.exit_code == 1
    assert remedy in done.output
    assert remedy in guarded.refused(theirs.issue("w"), "w").stderr


def test_a_certificate_that_the_other_side_does_not_know_is_told(guarded: Guarded, tmp_path: Path) -> None:
    """One's own is of another authority; that of the other side passes."""
    theirs = Authority(tmp_path)
    remedy = "it hangs up; see that --tls-certificate is of the CA that it knows"
    alice = replace(theirs.issue("alice", role="operator"), ca=guarded.authority.file)
    done = guarded.asked(alice, "status")
    assert done.exit_code == 1
    assert remedy in done.output
    assert remedy in guarded.refused(replace(theirs.issue("x"), ca=guarded.authority.file), "x").stderr


def test_plain_text_to_who_asks_for_certificates_is_told(guarded: Guarded) -> None:
    remedy = "it hangs up; give --tls-certificate, --tls-key and --tls-ca if it asks for certificates"
    for command in (("status",), ("query", "list")):
        done = guarded.asked(None, *command)
        assert done.exit_code == 1
        assert remedy in done.output
    assert remedy in guarded.refused(None, "y", child=None).stderr


def test_certificates_to_who_speaks_plain_text_are_told(
    guarded: Guarded, operator: Credentials, tmp_path: Path
) -> None:
    manifest = tmp_path / "topology.json"
    manifest.write_text(json.dumps(document(QUERIES)))
    with Program(
        tmp_path / "log", "headwater_root", "--topology", manifest, "--directory", tmp_path / "root"
    ) as root:
        done = guarded.said(operator, "status", "--root", f"127.0.0.1:{root.port}")
    assert done.exit_code == 1
    assert "it speaks plain text; leave out --tls-certificate" in done.output
