"""Hosts as network namespaces, in a row: leaf -- middle -- top; made by the test, and gone with it."""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import ClassVar

TOOLS = Path(__file__).resolve().parents[2] / "tools" / "network-tools"
_NAME = re.compile(r"headwater-(\d+)-\w+")


def ready() -> None:
    """See that there is what namespaces need; raises with what is missing."""
    found = subprocess.run([TOOLS], capture_output=True, text=True)
    if found.returncode:
        raise RuntimeError(found.stderr.strip())


class Network:
    """Three hosts. Traffic between neighbours can be dropped or slowed."""

    ADDRESSES: ClassVar = {"top": "10.77.1.1", "middle": "10.77.1.2", "leaf": "10.77.2.2"}
    # By host: its interface towards a neighbour, and its address there.
    _ENDS: ClassVar = {
        ("top", "middle"): ("below", "10.77.1.1"),
        ("middle", "top"): ("above", "10.77.1.2"),
        ("middle", "leaf"): ("below", "10.77.2.1"),
        ("leaf", "middle"): ("above", "10.77.2.2"),
    }

    def __enter__(self) -> Network:
        ready()
        _sweep()
        self._made: list[str] = []
        try:
            for host in self.ADDRESSES:
                _run("ip", "netns", "add", self.namespace(host))
                self._made.append(host)
                self._on(host, "ip", "link", "set", "lo", "up")
            for one, other in (("top", "middle"), ("middle", "leaf")):
                self._join(one, other)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def namespace(self, host: str) -> str:
        return f"headwater-{os.getpid()}-{host}"

    def address(self, host: str, seen_from: str) -> str:
        """Where a host is reached by a neighbour, or by itself."""
        return "127.0.0.1" if host == seen_from else self._ENDS[host, seen_from][1]

    def command(self, host: str) -> list[str]:
        """What stands before a command that runs there."""
        return ["ip", "netns", "exec", self.namespace(host)]

    # Faults

    def drop(self, host: str, neighbour: str, *, inwards: bool = True, outwards: bool = True) -> None:
        """Lose every packet that comes from a neighbour, goes there, or both."""
        name, _ = self._ENDS[host, neighbour]
        if inwards:
            self._on(host, "iptables", "-w", "-A", "INPUT", "-i", name, "-j", "DROP")
        if outwards:
            self._on(host, "iptables", "-w", "-A", "OUTPUT", "-o", name, "-j", "DROP")

    def drop_established(self, host: str, port: int) -> int:
        """Lose every packet of the connections that a port has now; new ones pass. Gives how many."""
        listed = self._on(host, "ss", "-Htn", "state", "established", f"( sport = :{port} )")
        peers = [line.split()[-1].rpartition(":")[2] for line in listed.splitlines()]
        for peer in peers:
            ends = ("-p", "tcp", "--dport", str(port), "--sport", peer)
            self._on(host, "iptables", "-w", "-A", "INPUT", *ends, "-j", "DROP")
            ends = ("-p", "tcp", "--sport", str(port), "--dport", peer)
            self._on(host, "iptables", "-w", "-A", "OUTPUT", *ends, "-j", "DROP")
        return len(peers)

    def heal(self, host: str) -> None:
        self._on(host, "iptables", "-w", "-F")

    def limit(self, host: str, neighbour: str, kbit: int) -> None:
        """No more than so many kbit/s leave a host towards a neighbour."""
        name, _ = self._ENDS[host, neighbour]
        limited = ("tbf", "rate", f"{kbit}kbit", "burst", "4kb", "latency", "500ms")
        self._on(host, "tc", "qdisc", "replace", "dev", name, "root", *limited)

    def lift(self, host: str, neighbour: str) -> None:
        """No such limit any more."""
        self._on(host, "tc", "qdisc", "del", "dev", self._ENDS[host, neighbour][0], "root")

    def mend(self) -> None:
        """No fault any more, whatever there was."""
        for host in self.ADDRESSES:
            self.heal(host)
        for host, neighbour in self._ENDS:
            with suppress(RuntimeError):
                self.lift(host, neighbour)

    # Making and removing

    def _join(self, one: str, other: str) -> None:
        (upper, address), (lower, below) = self._ENDS[one, other], self._ENDS[other, one]
        peer = ("peer", "name", lower, "netns", self.namespace(other))
        self._on(one, "ip", "link", "add", upper, "type", "veth", *peer)
        for host, name, own in ((one, upper, address), (other, lower, below)):
            self._on(host, "ip", "address", "add", f"{own}/30", "dev", name)
            self._on(host, "ip", "link", "set", name, "up")

    def _on(self, host: str, *command: str) -> str:
        return _run(*self.command(host), *command)

    def _remove(self) -> None:
        for host in self._made:
            with suppress(RuntimeError):
                _run("ip", "netns", "delete", self.namespace(host))


def _sweep() -> None:
    """Remove what a test that was killed has left."""
    for line in _run("ip", "netns", "list").splitlines():
        match = _NAME.match(line)
        if match and not Path(f"/proc/{match[1]}").exists():
            with suppress(RuntimeError):
                _run("ip", "netns", "delete", match[0])


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout
