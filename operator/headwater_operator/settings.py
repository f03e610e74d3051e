"""What the operator is told by its environment."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headwater.errors import HeadwaterError, Invalid, Problem
from headwater_operator.lease import Timing
from headwater_wire.logs import LEVELS, VARIABLE
from headwater_wire.monitor import address_of

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_POLICIES = ("Always", "IfNotPresent", "Never")

# Each with what it says; `--help` shows them.
VARIABLES: Mapping[str, str] = {
    "WATCH_NAMESPACES": "namespaces whose topologies are served, parted by commas; empty: all (default)",
    "POD_NAMESPACE": "the operator's own namespace, where its lease is (headwater-system)",
    "POD_NAME": "how this process is called in the lease (the host's name)",
    "LEASE_NAME": "the lease that the replicas of one operator share (headwater-operator)",
    "NODE_IMAGE": "image of children and intermediates; required",
    "ROOT_IMAGE": "image of roots; required",
    "IMAGE_PULL_POLICY": "Always, IfNotPresent (default) or Never",
    "IMAGE_PULL_SECRETS": "names of Secrets to pull them with, parted by commas; none by default",
    "METRICS_ADDRESS": "host and port of /metrics, /healthz and /readyz (0.0.0.0:9100)",
    "RESYNC_SECONDS": "how often everything is looked at without an event (300)",
    "ROLLOUT_SECONDS": "how long nothing more of a spec may come to be before the last good one is had (600)",
    "WORKERS": "how many topologies are worked on at a time (4)",
    "LOG_LEVEL": f"{', '.join(LEVELS)}; info by default",
}


@dataclass(frozen=True, slots=True)
class WatchTiming:
    """Seconds: when the API server ends a watch, when we do, and after what silence it is unsound."""

    server: int = 60
    client: int = 90
    silence: float = 180.0


@dataclass(frozen=True, slots=True)
class Settings:
    node_image: str
    root_image: str
    # Empty: all.
    watch_namespaces: tuple[str, ...] = ()
    namespace: str = "headwater-system"
    pod_name: str = "headwater-operator"
    lease_name: str = "headwater-operator"
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    metrics_address: str = "0.0.0.0:9100"
    resync: float = 300.0
    rollout: float = 600.0
    workers: int = 4
    # Not for the environment: they hang together, and with the chart's probes.
    lease: Timing = field(default_factory=Timing)
    watch: WatchTiming = field(default_factory=WatchTiming)


def settings_of(environment: Mapping[str, str], host: str) -> Settings:
    """All of them, or `Invalid` with everything that is wrong."""
    given = _Given(environment)
    found = Settings(
        node_image=given.image("NODE_IMAGE"),
        root_image=given.image("ROOT_IMAGE"),
        watch_namespaces=given.names("WATCH_NAMESPACES"),
        namespace=given.name("POD_NAMESPACE", "headwater-system"),
        pod_name=given.text("POD_NAME") or host,
        lease_name=given.name("LEASE_NAME", "headwater-operator"),
        pull_policy=given.choice("IMAGE_PULL_POLICY", _POLICIES, "IfNotPresent"),
        pull_secrets=given.names("IMAGE_PULL_SECRETS"),
        metrics_address=given.address("METRICS_ADDRESS", "0.0.0.0:9100"),
        rollout=given.number("ROLLOUT_SECONDS", 600.0, lambda n: 1.0 <= n < math.inf, "seconds from 1 on"),
        resync=given.number("RESYNC_SECONDS", 300.0, lambda n: 1.0 <= n < math.inf, "seconds from 1 on"),
        workers=int(
            given.number("WORKERS", 4, lambda n: n == int(n) and 1 <= n <= 64, "a whole number from 1 to 64")
        ),
    )
    given.choice("LOG_LEVEL", LEVELS, "info")
    if given.problems:
        raise Invalid("the operator cannot be started", given.problems)
    return found


def log_environment(environment: Mapping[str, str]) -> Mapping[str, str]:
    """For the log, which knows its level by the name that it has for every program."""
    given = environment.get("LOG_LEVEL", "").strip().lower()
    # A wrong one is told as a setting, by a log that is set up.
    return {**environment, VARIABLE: given} if given in LEVELS else environment


class _Given:
    """Values by their names; what is wrong is gathered, and stood in for."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.problems: list[Problem] = []

    def text(self, variable: str) -> str:
        return self._environment.get(variable, "").strip()

    def image(self, variable: str) -> str:
        found = self.text(variable)
        if not found:
            self._wrong(variable, "is missing", "name an image, such as headwater/node:0.1.0")
        elif re.search(r"\s", found):
            self._wrong(variable, f"is {found!r}", "name one image")
        return found

    def name(self, variable: str, default: str) -> str:
        found = self.text(variable) or default
        if not _NAME.fullmatch(found):
            self._wrong(variable, f"is {found!r}", "give a name of a-z, 0-9 and -, of 63 characters at most")
        return found

    def names(self, variable: str) -> tuple[str, ...]:
        found = [part.strip() for part in self.text(variable).split(",") if part.strip()]
        for each in found:
            if not _NAME.fullmatch(each):
                self._wrong(variable, f"has {each!r}", "give names of a-z, 0-9 and -, parted by commas")
        return tuple(dict.fromkeys(found))

    def choice(self, variable: str, choices: tuple[str, ...], default: str) -> str:
        found = self.text(variable) or default
        if found.lower() not in map(str.lower, choices):
            self._wrong(variable, f"is {found!r}", f"give one of {', '.join(choices)}")
            return default
        return next(each for each in choices if each.lower() == found.lower())

    def address(self, variable: str, default: str) -> str:
        found = self.text(variable) or default
        try:
            address_of(found, variable)
        except HeadwaterError:
            self._wrong(variable, f"is {found!r}", "give host and port, such as 0.0.0.0:9100")
        return found

    def number(self, variable: str, default: float, fits: Callable[[float], bool], what: str) -> float:
        given = self.text(variable)
        try:
            found = float(given) if given else default
            if math.isfinite(found) and fits(found):
                return found
        except ValueError:
            pass
        self._wrong(variable, f"is {given!r}", f"give {what}")
        return default

    def _wrong(self, variable: str, message: str, remedy: str) -> None:
        self.problems.append(Problem(variable, message, remedy))
