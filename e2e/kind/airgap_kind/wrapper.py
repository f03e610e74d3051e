"""runc, less what this machine cannot grant.

A container asked for with `--privileged` gets every capability, and runc fails if one of them is not in its
own bounding set. Docker is started with this file as its runtime: it takes out of the container's
specification what cannot be had, and becomes runc. It runs alone, copied out of this package, so it imports
nothing of it.
"""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# In the order of their bits (linux/capability.h).
CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
    "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
    "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
    "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
    "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
    "CHECKPOINT_RESTORE",
)  # fmt: skip


def bounding_set(status: str) -> frozenset[str]:
    """The capabilities that /proc/PID/status says a process may ever have."""
    mask = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapBnd:"))
    return frozenset(f"CAP_{name}" for bit, name in enumerate(CAPABILITIES) if mask >> bit & 1)


def fit(process: dict[str, Any], allowed: frozenset[str], oom_score_adj: int) -> None:
    """Takes out of a process's specification what is beyond us: a score below our own needs SYS_RESOURCE."""
    for kind, names in (process.get("capabilities") or {}).items():
        process["capabilities"][kind] = [name for name in names or [] if name in allowed]
    wanted = process.get("oomScoreAdj")
    if wanted is not None and wanted < oom_score_adj and "CAP_SYS_RESOURCE" not in allowed:
        process["oomScoreAdj"] = oom_score_adj


def option(args: Sequence[str], *names: str) -> str | None:
    """The value of an option, as `--name value` or `--name=value`."""
    for at, arg in enumerate(args):
        if arg in names and at + 1 < len(args):
            return args[at + 1]
        for name in names:
            if arg.startswith(f"{name}="):
                return arg.removeprefix(f"{name}=")
    return None


def specification(args: Sequence[str]) -> tuple[Path, bool] | None:
    """The file that holds the process's specification, and whether it is that of a whole container."""
    command = next((arg for arg in args if arg in ("create", "run", "exec")), None)
    if command in ("create", "run"):
        return Path(option(args, "--bundle", "-b") or ".") / "config.json", True
    given = option(args, "--process", "-p") if command == "exec" else None
    return (Path(given), False) if given else None


def main() -> None:
    args = sys.argv[1:]
    found = specification(args)
    if found:
        path, whole = found
        document = json.loads(path.read_text(encoding="utf-8"))
        fit(
            document["process"] if whole else document,
            bounding_set(Path("/proc/self/status").read_text(encoding="utf-8")),
            int(Path("/proc/self/oom_score_adj").read_text(encoding="utf-8")),
        )
        path.write_text(json.dumps(document), encoding="utf-8")
    os.execvp("runc", ["runc", *args])


if __name__ == "__main__":
    main()
