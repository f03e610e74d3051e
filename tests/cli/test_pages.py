"""The pages about a tree of one's own: their commands and units, as they stand there, on real processes."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from headwater import oracle
from headwater.topology import queries_of
from tests.harness import expected_rows

TOP = Path(__file__).parents[2]
PROGRAMS = Path(sys.executable).parent
# In seconds; a machine that is busy may need them.
LIMIT = 240.0
GATEWAY = TOP / "examples" / "gateway" / "gateway.yaml"


class Place:
    """A directory in which commands of a page run, with ports of its own in place of those of the page."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports = {"7070": free_port(), "7071": free_port()}
        self.environment = {**os.environ, "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"}

    def localized(self, text: str) -> str:
        for port, here in self.ports.items():
            text = text.replace(f":{port}", f":{here}")
        return text

    def run(self, commands: str) -> str:
        """What commands of a page print; each has to succeed."""
        done = subprocess.run(
            ["sh", "-eu", "-c", self.localized(commands)],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == 0, (commands, done.stdout, done.stderr)
        return done.stdout

    @contextmanager
    def service(self, unit: str) -> Iterator[subprocess.Popen[str]]:
        """What a unit starts, once it listens."""
        # As systemd reads it: a line that ends with a backslash goes on.
        (line,) = re.findall(r"^ExecStart=(.*)$", unit.replace("\\\n", " "), re.MULTILINE)
        program, *arguments = shlex.split(self.localized(line))
        command = [str(PROGRAMS / Path(program).name), *arguments]
        with subprocess.Popen(command, cwd=self.directory, stdout=subprocess.PIPE, text=True) as running:
            try:
                assert running.stdout is not None
                assert json.loads(running.stdout.readline())["port"] in self.ports.values()
                yield running
            finally:
                running.terminate()
                try:
                    running.wait(60)
                except subprocess.TimeoutExpired:
                    running.kill()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def blocks(page: str, language: str) -> list[str]:
    """The blocks of a page in one language, in their order, without the indentation of a list."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```", (TOP / "docs" / page).read_text(), re.M | re.S)
    return [re.sub(f"^{indent}", "", block, flags=re.M) for indent, block in found]


def rows(directory: Path) -> list[dict[str, Any]]:
    path = directory / "root" / "sinks" / "lines" / "results.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_for_rows(directory: Path, count: int) -> dict[str, dict[str, float]]:
    """The values of results by key, as soon as there are so many."""
    until = time.monotonic() + LIMIT
    while len(rows(directory)) < count:
        assert time.monotonic() < until, rows(directory)
        time.sleep(0.05)
    found = rows(directory)
    assert len(found) == count
    return {f"{row['key']} {row['start']}": row["values"] for row in found}


def test_a_tree_stands_by_the_page_and_a_device_is_connected_by_the_page(tmp_path: Path) -> None:
    place = Place(tmp_path)
    certificates, manifest, child_file, status = blocks("standing-tree.md", "sh")
    root_unit, child_unit = blocks("standing-tree.md", "ini")
    issued, sent = blocks("connect.md", "sh")
    for commands in (certificates, manifest, child_file):
        place.run(commands)
    begin = 1_769_860_800_000_000
    with place.service(root_unit):
        with place.service(child_unit) as child:
            assert "plant" in place.run(status)
            assert "boiler-7.crt: OK" in place.run(issued)
            place.run(sent)
            assert wait_for_rows(tmp_path, 2) == {
                f"inlet {begin}": {"avg": 21.0, "max": 21.5, "count": 2},
                f"outlet {begin + 10_000_000}": {"avg": 70.0, "max": 70.0, "count": 1},
            }
            # Another name than that of the certificate is refused.
            other = sent.replace("--name boiler-7", "--name boiler-8 --timeout 3s")
            refused = subprocess.run(
                ["sh", "-eu", "-c", place.localized(other)],
                cwd=tmp_path,
                env=place.environment,
                capture_output=True,
                text=True,
                timeout=LIMIT,
                check=False,
            )
            assert refused.returncode == 3, refused.stderr
            child.kill()
            child.wait()
        # systemd starts it again.
        with place.service(child_unit):
            later = re.sub("T12:00:", "T14:00:", sent)
            place.run(later)
            assert wait_for_rows(tmp_path, 4)[f"inlet {begin + 7_200_000_000}"]["avg"] == 21.0
    # And the root, with what it knows: nothing is written twice.
    with place.service(root_unit):
        assert "plant" in place.run(status)
    assert len(rows(tmp_path)) == 4


def write_day(directory: Path, hour: int, first: int, count: int) -> list[oracle.Event]:
    """Readings of an hour, in place of those of the page; `first` is the number of the first one.

    `--end` closes windows for an hour behind them: what follows has to be later than that.
    """
    begin = 1_769_860_800_000_000 + hour * 3_600_000_000
    events = [
        oracle.Event("boiler-7", first + n, begin + n * 1_500_000, "in" if n % 2 else "out", 20.0 + n % 7)
        for n in range(count)
    ]
    lines = ["ts,value,key", *(f"{event.ts},{event.value},{event.key}" for event in events)]
    (directory / "day.csv").write_text("\n".join(lines) + "\n")
    return events


def assert_exact(directory: Path, events: list[oracle.Event]) -> None:
    """The results are the oracle's for these events, each window once."""
    queries = queries_of(yaml.safe_load((directory / "plant.yaml").read_text())["spec"]["queries"])
    source = oracle.Source("boiler-7", 2_000_000, "hall-1")
    expected = {f"{row.key} {row.start}": row.values for row in expected_rows(queries, [(source, events)])}
    found = wait_for_rows(directory, len(expected))
    assert found.keys() == expected.keys()
    for window, values in expected.items():
        assert found[window] == pytest.approx(values), window


def test_a_root_is_copied_and_restored_by_the_page(tmp_path: Path) -> None:
    place = Place(tmp_path)
    certificates, manifest, child_file, _ = blocks("standing-tree.md", "sh")
    root_unit, child_unit = blocks("standing-tree.md", "ini")
    issued, sent = blocks("connect.md", "sh")
    send = sent[sent.index("headwater send") :].replace("day.csv", "day.csv --time-unit us")
    copy, restore, *_ = blocks("backup.md", "sh")
    for commands in (certificates, manifest, child_file, issued):
        place.run(commands)
    with place.service(child_unit):
        with place.service(root_unit):
            events = write_day(tmp_path, 0, 1, 40)
            place.run(send)
            assert_exact(tmp_path, events)
        place.run(copy)
        shutil.rmtree(tmp_path / "root")
        place.run(restore)
        with place.service(root_unit):
            # The child has run on, and has heard of nothing that the copy does not have.
            events += write_day(tmp_path, 3, 41, 40)
            place.run(send)
            assert_exact(tmp_path, events)
        place.run(restore)
        assert list(tmp_path.glob("root.lost.*"))
        with place.service(root_unit) as root:
            # This copy is older than what was acknowledged: it is refused by whoever knows better.
            assert root.wait(LIMIT) == 4
    # Without the nodes that knew better it goes on, and takes what the spool still holds: here, all of it.
    with place.service(root_unit), place.service(child_unit):
        events += write_day(tmp_path, 6, 81, 40)
        place.run(send)
        assert_exact(tmp_path, events)


def test_units_restart_what_ends_but_not_what_a_person_must_see_to() -> None:
    for unit in blocks("standing-tree.md", "ini"):
        assert re.search(r"^Restart=always$", unit, re.MULTILINE)
        assert re.search(r"^RestartPreventExitStatus=2 4$", unit, re.MULTILINE)


def test_the_gateway_sends_what_its_reader_writes_with_options_that_there_are() -> None:
    found = yaml.safe_load(GATEWAY.read_text())
    spec = found["spec"]["template"]["spec"]
    for container in [*spec["initContainers"], *spec["containers"]]:
        # What a namespace with the policy `restricted` asks of each.
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False, container["name"]
        assert context["capabilities"] == {"drop": ["ALL"]}, container["name"]
    send, reader = found["spec"]["template"]["spec"]["containers"]
    (script,) = send["args"]
    options = set(re.findall(r"--[a-z-]+", script))
    shown = subprocess.run(
        [PROGRAMS / "headwater", "send", "--help"], capture_output=True, text=True, timeout=LIMIT, check=True
    )
    assert options <= set(re.findall(r"--[a-z-]+", shown.stdout))
    # A record that cannot be read is no reason to stop sending those behind it.
    assert "--skip-bad" in options
    compile(reader["args"][0], "reader", "exec")
    assert {mount["mountPath"] for mount in send["volumeMounts"]} >= {"/spool", "/tmp", "/readings"}
