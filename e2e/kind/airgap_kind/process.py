"""Other programs: run to their end, and never longer than we are there."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from airgap_kind.errors import Failure
from airgap_kind.progress import Progress

PR_SET_PDEATHSIG = 1
TAIL = 15
# Before a command: its mounts and all its processes end with it, however it ends.
CONTAINED = (
    *("unshare", "--mount", "--propagation", "private"),
    *("--pid", "--fork", "--kill-child", "--mount-proc"),
)
# A long step is heard of once a minute.
PULSE = 60.0


def die_with_us() -> Callable[[], None] | None:
    """Ends the child when we are killed: nothing goes on being made beside what the next run makes."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)

    def set_signal() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    return set_signal


def run(
    args: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
    stdin: str | None = None,
    lasting: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Runs a short command and keeps what it prints; the caller looks at the return code.

    One that is `lasting` had better come to its end even when we are killed.
    """
    try:
        return subprocess.run(
            [str(arg) for arg in args],
            env=merged(env),
            cwd=cwd,
            timeout=timeout,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=None if lasting else die_with_us(),
        )
    except FileNotFoundError:
        return subprocess.CompletedProcess([str(arg) for arg in args], 127, "", f"{args[0]}: not found")
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(
            [str(arg) for arg in args], 124, "", f"no answer within {timeout:.0f} s"
        )


def output(
    args: Sequence[str | Path],
    what: str,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
    stdin: str | None = None,
    lasting: bool = False,
    remedy: str = "",
) -> str:
    """What a short command prints, or a Failure that says `what` could not be done."""
    done = run(args, env=env, cwd=cwd, timeout=timeout, stdin=stdin, lasting=lasting)
    if done.returncode:
        raise Failure(what, remedy, tail(done.stderr or done.stdout))
    return done.stdout


def run_logged(
    args: Sequence[str | Path],
    what: str,
    log: Path,
    progress: Progress,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    remedy: str = "",
) -> None:
    """Runs a long command with its output in a file, of which a Failure shows the end."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as out:
        out.write(f"$ {' '.join(str(arg) for arg in args)}\n")
        out.flush()
        started = time.monotonic()
        with subprocess.Popen(
            [str(arg) for arg in args],
            env=merged(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_us(),
        ) as child:
            try:
                while True:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        child.wait(PULSE)
                        break
                    progress.say(f"    ... {time.monotonic() - started:.0f} s so far (log: {log})")
            except BaseException:
                child.kill()
                raise
    if child.returncode:
        raise Failure(f"{what} (log: {log})", remedy, tail(log.read_text(encoding="utf-8", errors="replace")))


def tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-TAIL:])


def merged(env: Mapping[str, str] | None) -> dict[str, str]:
    return {**os.environ, **(env or {})}
