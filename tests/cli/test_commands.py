"""The commands as a whole: help at once, Ctrl-C without a trace, and files that hold something else."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from unittest.mock import patch

import pytest
from click import Context
from click.testing import CliRunner, Result

from headwater_cli import addresses, demo, runs
from headwater_cli.app import COMMANDS, main
from headwater_cli.processes import Process
from headwater_cli.run import Run

EXAMPLES = Path(__file__).parents[2] / "examples"

# Ctrl-C comes when a module is looked for.
INTERRUPTED = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

module = sys.argv.pop(1)
sys.meta_path.insert(0, Interrupting())
from headwater_cli.__main__ import main
main()
"""


def say(*arguments: object, given: str | bytes = "") -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)), input=given)


@pytest.mark.parametrize("module", ["click", "numpy", "yaml", "grpc", "headwater_cli.launch"])
def test_ctrl_c_while_it_is_imported_leaves_no_trace(module: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED, module, "run", str(EXAMPLES / "factory.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_in_a_command_ends_it_with_the_same_code() -> None:
    with patch.object(runs, "found", side_effect=KeyboardInterrupt):
        done = say("status")
    assert (done.exit_code, done.stderr) == (130, "stopped\n")


def test_help_imports_nothing_that_is_slow() -> None:
    code = (
        "import sys\n"
        "from headwater_cli.app import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "slow = {'asyncio', 'google', 'grpc', 'numpy', 'pyarrow', 'rich', 'yaml'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(slow)) or None)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_of_a_command_what_it_says_itself(name: str) -> None:
    command = main.get_command(Context(main), name)
    assert command is not None
    assert command.name == name
    assert command.help is not None
    assert command.help.partition("\n")[0] == COMMANDS[name][1]


def test_it_says_its_version() -> None:
    assert say("--version").stdout == f"headwater {version('headwater')}\n"


@pytest.mark.parametrize("layers", ["x", "0", "1000", ",".join("1" * 9)])
def test_widths_that_no_machine_bears_are_refused(layers: str) -> None:
    done = say("run", "--layers", layers)
    assert done.exit_code == 2
    assert "at most 8 widths of 1 to 64" in " ".join(done.stderr.split())


def test_a_node_that_does_not_start_leaves_no_other_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = Process.start

    async def start(process: Process) -> None:
        if process.name == "l1-0":
            raise RuntimeError("it does not start")
        await begun(process)

    monkeypatch.setattr(Process, "start", start)
    work = Run(demo.topology(), demo.DOCUMENT, 3, [], 1)
    try:
        with pytest.raises(RuntimeError, match="it does not start"):
            asyncio.run(work.run(verify=False))
    finally:
        work.clean()
    # Those that were about to start too are ended, or never began.
    assert work.root.ended is not None
    assert not [name for name in map(_command, Path("/proc").iterdir()) if str(work.directory) in name]


def _command(entry: Path) -> str:
    try:
        return (entry / "cmdline").read_text() if entry.name.isdigit() else ""
    except OSError:
        return ""


def test_a_command_that_is_not_there_is_told() -> None:
    done = say("stats")
    assert done.exit_code == 2
    assert "No such command 'stats'. Did you mean 'status'?" in done.stderr


@pytest.mark.parametrize("address", ["localhost", "a b:1", "127.0.0.1:99999", "10.0.0.4:1,10.0.0.5", ":"])
@pytest.mark.parametrize("command", [("status", "--root"), ("send", "--resume", "--name", "s", "--to")])
def test_an_address_without_a_port_is_refused(command: tuple[str, ...], address: str) -> None:
    done = say(*command, address)
    assert done.exit_code == 2
    assert "has no port; give HOST:PORT" in " ".join(done.stderr.split())


@pytest.mark.parametrize("address", ["[::1]:7", "ipv4:10.0.0.4:70,10.0.0.5:70", "unix:/run/x", "dns:///a:1"])
def test_addresses_that_are_taken(address: str) -> None:
    assert addresses.taken(Context(main), main.params[0], address) == address


def test_a_picture_that_cannot_be_saved_is_told_before_the_run(tmp_path: Path) -> None:
    done = say("run", "--svg", tmp_path / "missing" / "x.svg")
    assert done.exit_code == 2
    assert "nothing can be written to" in done.stderr


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    "content, said",
    [
        ("", "is empty; give"),
        ("# nothing\n---\n", "is empty; give"),
        ("just words", "holds only 'just words'; give"),
        ("[{id: a}, {id: b}]", "holds a list of 2; give"),
        (DEEP, "cannot be used: line 1, column 65: lists or mappings stand more than 64 deep in each other"),
        ("a:\n  b: " + DEEP, "cannot be used: line 2, column 68: lists or mappings stand more than"),
        ("a: 1\nb: 2\na: 3\n", "cannot be used: line 1, column 1: the key 'a' stands twice; give it once"),
        ("a: [1, 2\nb: 3", "is no YAML: line 2, column 2: while parsing a flow sequence"),
        ("a: 1\n--- \nb: 2\n", "is no YAML: line 2, column 1: expected a single document"),
        (b"\xff\xfe", "is no YAML: byte 0 is no UTF-8; save it as UTF-8"),
        ("a: \x00", "is no YAML: unacceptable character"),
    ],
    ids=["empty", "comment", "scalar", "list", "deep", "deeper", "twice", "open", "two", "bytes", "control"],
)
@pytest.mark.parametrize(
    "command", [("validate",), ("run", "--json"), ("query", "add")], ids=["validate", "run", "add"]
)
def test_a_file_that_holds_something_else_is_told_what(
    tmp_path: Path, command: tuple[str, ...], content: str | bytes, said: str
) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = say(*command, path)
    assert done.exit_code == 1, done.output
    assert isinstance(done.exception, SystemExit)
    assert f"Error: {path} {said}" in done.stderr
    if said.endswith("give"):
        wanted = "AggregationQuery, or an entry" if command[0] == "query" else "an AggregationTopology"
        assert wanted in done.stderr
    if command[0] == "run":
        assert f"{path} {said}" in json.loads(done.stdout)["problems"][0]
    else:
        assert done.stdout == ""


@pytest.mark.parametrize(
    "content, said",
    [
        ((EXAMPLES / "factory.yaml").read_text(), "holds a whole AggregationTopology; give one query"),
        ("{2026-01-31: x}", "is more than JSON can say (keys must be"),
        ("id: &a [*a]", "is more than JSON can say (Circular"),
    ],
    ids=["topology", "date", "circle"],
)
def test_what_is_no_query_is_not_added(content: str, said: str) -> None:
    done = say("query", "add", "-", given=content)
    assert done.exit_code == 1
    assert isinstance(done.exception, SystemExit)
    assert f"Error: standard input {said}" in done.stderr


def test_a_directory_is_no_manifest(tmp_path: Path) -> None:
    for command in ("validate", "run"):
        for path, said in ((tmp_path, "Is a directory"), (tmp_path / "x", "No such file or directory")):
            done = say(command, path)
            assert done.exit_code == 1
            assert f"Error: {path}: {said}; name a file that can be read" in done.stderr


def test_every_manifest_is_judged_and_queries_too(tmp_path: Path) -> None:
    query = tmp_path / "load.yaml"
    query.write_text(
        "apiVersion: headwater.dev/v1alpha1\nkind: AggregationQuery\nmetadata: {name: load}\n"
        "spec: {topologyRef: factory, aggregate: sum, window: {type: tumbling, length: 1s}}"
    )
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(query.read_text().replace("sum", "som"))
    good = EXAMPLES / "tumbling.yaml"
    done = say("validate", wrong, query, tmp_path / "missing.yaml", good)
    assert done.exit_code == 1
    assert done.stdout.splitlines()[0] == f"{query}: load, a query for factory: tumbling 1s"
    assert done.stdout.splitlines()[1].startswith(f"{good}: tumbling, ")
    assert done.stderr.count("Error: ") == 2
    assert "spec.aggregate" in done.stderr
    assert say("validate", query, good).exit_code == 0


def test_a_run_that_cannot_begin_says_so_as_json(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text((EXAMPLES / "tumbling.yaml").read_text().replace("lateness:", "lateness_:"))
    done = say("run", path, "--json")
    assert done.exit_code == 1
    summary = json.loads(done.stdout)
    assert not summary["ok"]
    (problem,) = summary["problems"]
    assert "lateness" in problem
    assert f"Error: {problem}" in done.stderr
