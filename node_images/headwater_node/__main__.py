"""`headwater-node`: a child or intermediate node, configured by a file and the environment."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.errors import HeadwaterError, Invalid, Problem
from headwater_node.runtime import NodeRuntime

# How the program ends: by request, by a configuration that cannot be used, by a drain that was too slow.
DONE, WRONG_CONFIGURATION, NOT_DRAINED = 0, 2, 3
ROLES = ("child", "intermediate")
DRAIN_SECONDS, STATUS_SECONDS = 10.0, 0.5


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a node has to know before it can ask."""

    name: str
    role: str
    listen: str
    parent: str
    parent_address: str
    flush_interval: float

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Configuration:
        problems = [
            Problem(field, "is missing", f"give it, or set HEADWATER_{field.upper()}")
            for field in ("name", "role", "listen", "parent", "parent_address")
            if not isinstance(given.get(field), str) or not given[field]
        ]
        if given.get("role") and given["role"] not in ROLES:
            problems.append(Problem("role", f"is {given['role']!r}", f"give one of {', '.join(ROLES)}"))
        if problems:
            raise Invalid("the node cannot be started", problems)
        fields = {name: given[name] for name in ("name", "role", "listen", "parent", "parent_address")}
        return cls(**fields, flush_interval=float(given.get("flush_interval", 0.1)))


def configuration(path: str | None, environment: Mapping[str, str]) -> Configuration:
    """The file, overridden by the environment."""
    given: dict[str, Any] = json.loads(Path(path).read_text()) if path else {}
    for field in ("name", "role", "listen", "parent", "parent_address"):
        if value := environment.get(f"HEADWATER_{field.upper()}"):
            given[field] = value
    return Configuration.of(given)


async def run(given: Configuration, *, status: bool = False) -> int:
    runtime = NodeRuntime(
        given.name,
        given.parent,
        child=given.role == "child",
        flush_interval=given.flush_interval,
    )
    port = await runtime.start(given.listen, given.parent_address)
    # Whoever started the program reads where it listens from its first line.
    print(json.dumps({"node": given.name, "role": given.role, "port": port}), flush=True)
    ended = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, ended.set)
    while not ended.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), STATUS_SECONDS if status else None)
        if status:
            print(json.dumps(runtime.figures()), flush=True)
    drained = await runtime.drain(DRAIN_SECONDS)
    print(json.dumps(runtime.figures()), flush=True)
    await runtime.stop()
    return DONE if drained else NOT_DRAINED


def main() -> int:
    parser = argparse.ArgumentParser(prog="headwater-node", description=__doc__)
    parser.add_argument("--config", metavar="FILE", help="JSON; HEADWATER_NAME and the like override it")
    parser.add_argument("--status", action="store_true", help="print figures as JSON lines, twice a second")
    arguments = parser.parse_args()
    logging.basicConfig(format='{"time": "%(asctime)s", "level": "%(levelname)s", "said": "%(message)s"}')
    try:
        given = configuration(arguments.config, os.environ)
    except (HeadwaterError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return WRONG_CONFIGURATION
    return asyncio.run(run(given, status=arguments.status))


if __name__ == "__main__":
    sys.exit(main())
