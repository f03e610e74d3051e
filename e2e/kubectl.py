"""kubectl, as a user runs it."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SECONDS = 600.0
# What an API server says that is asked for too much, or that is not there for a moment.
_BUSY = re.compile(
    "handshake timeout|connection (refused|lost|reset)|i/o timeout|EOF|"
    "server is currently unable|request timed out|too many requests",
    re.IGNORECASE,
)
_DONE = {"create": "AlreadyExists", "delete": "NotFound"}
TRIES = 5


def kubectl(*arguments: object, given: Any = None) -> str:
    """What a command prints; fails with what it complains of. What is `given` goes to its input as JSON."""
    done = said(*arguments, given=given)
    for _ in range(TRIES):
        if done.returncode == 0 or not _BUSY.search(done.stderr):
            break
        time.sleep(2)
        done = said(*arguments, given=given)
        # What was not answered may have been done.
        if any(verb in arguments and why in done.stderr for verb, why in _DONE.items()):
            return done.stdout
    assert done.returncode == 0, done.stderr
    return done.stdout


def said(*arguments: object, given: Any = None) -> subprocess.CompletedProcess[str]:
    """The same, whether it succeeds or not."""
    return subprocess.run(
        ["kubectl", *map(str, arguments)],
        input=None if given is None else json.dumps(given),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


# Those that are deleted and may not be gone yet.
_going: list[str] = []


@contextmanager
def namespace(name: str) -> Iterator[str]:
    """One of a test's own; it goes afterwards, with all that is in it, while others go on."""
    kubectl("create", "namespace", name)
    try:
        # No pod is let in before it.
        kubectl("wait", "--namespace", name, "--for=create", "serviceaccount/default", "--timeout=120s")
        yield name
    finally:
        kubectl("delete", "namespace", name, "--wait=false")
        _going.append(name)


def namespaces_gone() -> None:
    """Wait until those of tests are."""
    while _going:
        kubectl("wait", "--for=delete", f"namespace/{_going.pop()}", f"--timeout={SECONDS - 30:.0f}s")


@contextmanager
def forwarded(space: str, pod: str, port: int) -> Iterator[str]:
    """A port of a pod as an address of this machine."""
    command = ["kubectl", "--namespace", space, "port-forward", f"pod/{pod}", f":{port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            found = re.search(r"127\.0\.0\.1:\d+", running.stdout.readline())
            assert found is not None, "it is not forwarded"
            yield found[0]
        finally:
            running.terminate()
