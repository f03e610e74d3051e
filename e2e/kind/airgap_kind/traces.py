"""What an engine leaves on the host's network when it ends: chains, a policy that drops, bridges.

Docker has it so on purpose, for it means to come back. A private engine that is ended may not, and others on
the machine would wonder about packets that no longer pass.
"""

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from airgap_kind import packages, process
from airgap_kind.cache import write_whole

FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
TABLES = ("filter", "nat")
BRIDGE = re.compile(r"docker0|br-[0-9a-f]{12}")


@dataclass(frozen=True)
class Before:
    """The host as it was found."""

    policy: str
    forwarding: str
    bridges: tuple[str, ...]


def remember(file: Path) -> None:
    """Notes how the host is, unless it bears traces already: of an earlier run, or of another engine."""
    rules = saved("filter")
    if file.exists() or ":DOCKER " in rules:
        return
    policy = re.search(r"^:FORWARD (\S+)", rules, re.MULTILINE)
    before = Before(policy[1] if policy else "ACCEPT", FORWARDING.read_text().strip(), tuple(bridges()))
    write_whole(file, json.dumps(asdict(before)))


def remove(file: Path) -> None:
    """Puts the host back, if it was noted how it had been."""
    if not file.exists():
        return
    noted = json.loads(file.read_text(encoding="utf-8"))
    iptables = packages.find("iptables") or "iptables"
    ours = [bridge for bridge in bridges() if bridge not in noted["bridges"]]
    for table in TABLES:
        for command in undoing(saved(table), ours):
            process.run([iptables, "-w", "-t", table, *command])
    process.run([iptables, "-w", "-P", "FORWARD", noted["policy"]])
    FORWARDING.write_text(noted["forwarding"])
    for bridge in ours:
        process.run([packages.find("ip") or "ip", "link", "delete", bridge])
    file.unlink()


def undoing(rules: str, ours: Sequence[str]) -> list[list[str]]:
    """The iptables commands that remove Docker's chains, and rules that lead there or name our bridges."""
    chains = re.findall(r"^:(DOCKER\S*) ", rules, re.MULTILINE)
    commands = []
    for line in rules.splitlines():
        words = shlex.split(line)
        if len(words) < 2 or words[0] != "-A" or words[1] in chains:
            continue
        if any(word in chains or word in ours for word in words[2:]):
            commands.append(["-D", *words[1:]])
    return commands + [["-F", chain] for chain in chains] + [["-X", chain] for chain in chains]


def saved(table: str) -> str:
    return process.run([packages.find("iptables-save") or "iptables-save", "-t", table]).stdout


def bridges() -> list[str]:
    return sorted(link.name for link in Path("/sys/class/net").iterdir() if BRIDGE.fullmatch(link.name))
