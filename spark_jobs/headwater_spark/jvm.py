"""The JVM behind a session: Spark's own start script, as a process of ours.

pyspark would start it too, but with Python code between fork and exec. In a process that serves gRPC such a
fork runs gRPC's handlers, and now and then the child dies of them before it is a JVM at all.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import IO

# How often it is asked whether the JVM is there yet.
PAUSE = 0.02
# A JVM that does not listen by then hangs, in seconds.
PATIENCE = 300.0
# What it tells: its port, and a secret behind its length.
_HEAD = struct.Struct(">ii")


class Exited(Exception):
    """It does not listen, and never will."""


@dataclass(frozen=True, slots=True)
class Listening:
    """A JVM, and how Python reaches it: as pyspark wants to be told of a JVM that is there already."""

    process: subprocess.Popen[bytes]
    port: int
    secret: str

    @property
    def environment(self) -> dict[str, str]:
        return {"PYSPARK_GATEWAY_PORT": str(self.port), "PYSPARK_GATEWAY_SECRET": self.secret}


def started(
    home: Path,
    settings: Mapping[str, str],
    environment: Mapping[str, str],
    out: IO[bytes],
    inherited: Sequence[int] = (),
    unwanted: Callable[[], bool] = lambda: False,
) -> Listening:
    """Spark of `home` with these settings, once it listens; as soon as it is `unwanted`, it ends.

    In a session of its own, which Ctrl-C in a terminal does not reach; it ends when its standard input does.
    """
    command = [str(home / "bin" / "spark-submit")]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    with tempfile.TemporaryDirectory(prefix="headwater-jvm-") as directory:
        told = Path(directory) / "told"
        process = subprocess.Popen(
            [*command, "pyspark-shell"],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**environment, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told)},
            start_new_session=True,
            pass_fds=tuple(inherited),
        )
        try:
            # It is written elsewhere and renamed: what is there is whole.
            until = monotonic() + PATIENCE
            while not told.exists():
                if monotonic() > until:
                    raise Exited(f"its JVM did not listen within {PATIENCE:.0f} s")
                if unwanted():
                    raise Exited("it is not wanted any more")
                if process.poll() is not None:
                    raise Exited(f"its JVM ended with code {process.returncode} before it listened")
                sleep(PAUSE)
            port, length = _HEAD.unpack_from(said := told.read_bytes())
            secret = said[_HEAD.size : _HEAD.size + length].decode()
        except BaseException:
            ended(process, 0.0)
            raise
    return Listening(process, port, secret)


def ended(process: subprocess.Popen[bytes], patience: float) -> None:
    """Returns when it is gone; it is killed after so many seconds."""
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        # With the script's own helpers, while it is no JVM yet.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
