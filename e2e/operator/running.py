"""The operator as a process, with what it was called for and what it has logged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from e2e.operator.spaces import Rules, rule
from headwater_operator import access, kinds
from headwater_operator.kinds import Kind
from tests.programs import get

# A lease that nobody loses on a busy machine, and a brief one for tests that wait for its end. Watches are
# shorter than the operator's own, so that tests take seconds.
LEASE = {"duration": 60, "deadline": 40.0, "retry": 0.5}
BRIEF = {"duration": 10, "deadline": 7.0, "retry": 0.5}
WATCH = {"server": 2, "client": 4, "silence": 8.0}
PATIENCE = 120.0
NODES: Rules = [rule(kinds.NODE, "list", "watch")]


def rights(*without: Kind) -> list[Mapping[str, Sequence[str]]]:
    """All that the operator asks for in a namespace, but for some kinds."""
    found = [rule(kind, "list", "watch") for kind in access.WATCHED if kind not in without]
    return found + [
        rule(kind, *verbs, subresource=subresource)
        for (kind, subresource), verbs in {**access.WORK, **access.MONITORING, **access.LEADING}.items()
        if kind not in without
    ]


class Operator:
    """One that serves a namespace; it ends with the block."""

    def __init__(
        self,
        folder: Path,
        kubeconfig: Path,
        space: str,
        *,
        name: str = "operator",
        program: str = "e2e.operator.recorder",
        watch: Mapping[str, float] = WATCH,
        lease: Mapping[str, float] = LEASE,
        **environment: str,
    ) -> None:
        self._log = folder / f"{name}.log"
        self._calls: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self.began = time.time()
        given = {
            "KUBECONFIG": str(kubeconfig),
            "WATCH_NAMESPACES": space,
            "POD_NAMESPACE": space,
            "POD_NAME": name,
            "NODE_IMAGE": "node",
            "ROOT_IMAGE": "root",
            "METRICS_ADDRESS": "127.0.0.1:0",
            "TIMING": json.dumps({"lease": lease, "watch": watch}),
            **environment,
        }
        with self._log.open("wb") as errors:
            self._running = subprocess.Popen(
                [sys.executable, "-m", program],
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **given},
                text=True,
            )
        self._port = 0
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Operator:
        assert self._running.stdout is not None
        try:
            line = self._running.stdout.readline()
            assert line, self._log.read_text()
            self._port = int(json.loads(line)["metrics"])
        except BaseException:
            # Nobody else ends what was not entered.
            self.__exit__()
            raise
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.kill()
        self._running.wait()
        if self._reader.ident is not None:
            self._reader.join()
        assert self._running.stdout is not None
        self._running.stdout.close()

    def calls(self, key: str | None = None, since: float = 0.0) -> list[dict[str, Any]]:
        """What it was called for, as `namespace/name`."""
        with self._changed:
            return [each for each in self._calls if key in (None, each["reconciled"]) and each["at"] >= since]

    def called(self, key: str, since: float = 0.0, patience: float = PATIENCE) -> float:
        """Wait until it is called for a topology; gives when that was."""
        until = time.monotonic() + patience
        with self._changed:
            while True:
                for each in self._calls:
                    if each["reconciled"] == key and each["at"] >= since:
                        return float(each["at"])
                left = until - time.monotonic()
                assert left > 0, f"it is not called for {key}:\n{self.log}"
                self._changed.wait(left)

    def quiet(self, seconds: float) -> None:
        """Wait until it has not been called for so long."""
        self.until(lambda: not self.calls(since=time.time() - seconds))

    def until(self, reached: Callable[[], object], patience: float = PATIENCE) -> None:
        end = time.monotonic() + patience
        while not reached():
            assert time.monotonic() < end, self.log
            time.sleep(0.05)

    def signal(self, given: signal.Signals) -> None:
        self._running.send_signal(given)

    def ended(self, patience: float = PATIENCE) -> int:
        """Wait for its exit code."""
        return self._running.wait(patience)

    @property
    def runs(self) -> bool:
        return self._running.poll() is None

    def get(self, path: str) -> tuple[int, str]:
        return get(self._port, path)

    def figure(self, name: str) -> float | None:
        """Of its metrics, by name and labels as they are shown."""
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith(f"headwater_operator_{name} "):
                return float(line.rsplit(" ", 1)[1])
        return None

    @property
    def leads(self) -> bool:
        return bool(self.said("this process leads"))

    @property
    def log(self) -> str:
        return self._log.read_text()

    def said(self, message: str) -> list[dict[str, Any]]:
        # The last line may be half written.
        lines = [json.loads(line) for line in self.log.splitlines(keepends=True) if line.endswith("\n")]
        return [line for line in lines if line["message"] == message]

    def _read(self) -> None:
        assert self._running.stdout is not None
        for line in self._running.stdout:
            with self._changed:
                self._calls.append(json.loads(line))
                self._changed.notify_all()
