"""A root that is killed between what a sink writes and its cursor: every window is in every sink once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import psycopg

from headwater.machines.root import Settings
from headwater_root.runtime import RootRuntime
from headwater_wire.failpoints import VARIABLE
from tests.programs import Program, until
from tests.root.pump import QUERIES, Pump
from tests.root.receiver import receiving
from tests.tree.processes import document

SECRET = "hush-hush"


class Root:
    """A root on a directory, in this process to make results, and as a program of its own to deliver them."""

    def __init__(self, directory: Path, sinks: list[dict[str, Any]], environment: Mapping[str, str]) -> None:
        self._directory, self._environment = directory, environment
        self._manifest, self._log = directory / "topology.json", directory / "log"
        query = {"id": "q", "aggregate": ["sum", "count"], "window": {"type": "tumbling", "length": "10us"}}
        self._manifest.write_text(json.dumps(document([query], sinks=sinks)))
        self._pump, self.windows = Pump(), -1

    def more(self, windows: int) -> None:
        root = RootRuntime(QUERIES, self._directory / "root", Settings(), keep_results=True)
        try:
            if self.windows < 0:
                self._pump.introduce(root)
            self._pump.send(root, windows)
            self.windows += windows
        finally:
            asyncio.run(root.stop())

    @property
    def _command(self) -> list[object]:
        return ["headwater_root", "--topology", self._manifest, "--directory", self._directory / "root"]

    def dies_at(self, failpoint: str) -> None:
        with self._log.open("ab") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", *map(str, self._command), "--keep-results", "--status"],
                env={**os.environ, **self._environment, VARIABLE: failpoint},
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        try:
            assert process.wait(60) == -signal.SIGKILL, self.said
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not come to {failpoint}: {self.said}") from None
        finally:
            process.kill()
            process.wait()

    @contextmanager
    def running(self) -> Iterator[Program]:
        command = [*self._command, "--metrics", "127.0.0.1:0"]
        with Program(self._log.with_name("last"), *command, environment=self._environment) as program:
            yield program

    @property
    def said(self) -> str:
        return self._log.read_text()


def lags(program: Program) -> list[float]:
    _, shown = program.get("/metrics")
    lines = [line for line in shown.splitlines() if line.startswith("headwater_root_sink_lag_positions{")]
    return [float(line.split()[-1]) for line in lines]


def expected(windows: int) -> list[tuple[int, float, int]]:
    """A window of ten microseconds with one event each: its start, its sum and its count."""
    return [(10 * n, float(n), 1) for n in range(1, windows + 1)]


def plain(row: dict[str, Any]) -> tuple[int, float, int]:
    return row["start"], row["values"]["sum"], row["count"]


def test_kills_between_write_and_cursor(tmp_path: Path, database: str) -> None:
    with receiving() as receiver:
        sinks: list[dict[str, Any]] = [
            {"type": "postgres", "dsnEnv": "PLANT_DSN"},
            {"type": "parquet", "path": "tables"},
            {"type": "jsonlines", "path": "lines"},
            {
                "type": "webhook",
                "url": f"http://127.0.0.1:{receiver.port}/",
                "headersEnv": {"Authorization": "PLANT_TOKEN"},
            },
        ]
        environment = {"PLANT_DSN": f"{database} password={SECRET}", "PLANT_TOKEN": SECRET}
        root = Root(tmp_path, sinks, environment)
        # Each of the sinks comes by once at least, so the fourth time is reached, whoever is first.
        for failpoint in ("root.sink.written", "root.sink.done"):
            for time in range(1, len(sinks) + 1):
                root.more(3)
                root.dies_at(f"{failpoint}:{time}")
        # Until the receiver was told something twice: who comes by second is not the same each time.
        for _ in range(20):
            if len(receiver.requests) > len(receiver.taken):
                break
            root.more(3)
            root.dies_at("root.sink.written:2")
        root.more(3)
        with root.running() as program:
            until(lambda: lags(program) == [0.0] * 4, "the sinks have everything")
            assert program.end(signal.SIGTERM) == 0
        wanted, results = expected(root.windows), tmp_path / "root" / "sinks"
        lines = (results / "lines" / "results.jsonl").read_bytes().splitlines()
        assert [plain(json.loads(line)) for line in lines] == wanted
        with psycopg.connect(database) as connection:
            found = connection.execute(
                "SELECT start, (\"values\"->>'sum')::float8, count FROM headwater_results ORDER BY start"
            ).fetchall()
        assert found == wanted
        table = f"'{results}/tables/results/*.parquet'"
        columns = 'start, "values"[\'sum\'], "count"'
        assert duckdb.execute(f"SELECT {columns} FROM {table} ORDER BY start").fetchall() == wanted
        # Some came more often, and the key told the receiver so.
        assert [plain(row) for row in receiver.rows] == wanted
        assert len(receiver.requests) > len(receiver.taken)
    assert SECRET not in root.said
    assert "a sink fails" not in root.said


def test_a_root_whose_sink_cannot_be_had_says_so_and_ends(tmp_path: Path) -> None:
    root = Root(tmp_path, [{"type": "postgres", "dsnEnv": "PLANT_DSN"}], {})
    done = subprocess.run(
        [sys.executable, "-m", *map(str, root._command)], capture_output=True, text=True, env=os.environ
    )
    assert done.returncode == 2
    told = json.loads(done.stderr.splitlines()[-1])["message"]
    assert "spec.root.sinks[0].dsnEnv: PLANT_DSN is not set in the environment; put the address" in told
