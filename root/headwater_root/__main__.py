"""`headwater-root`: the embedded root of a topology, on a directory."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys
from pathlib import Path

from headwater.errors import HeadwaterError
from headwater.machines.root import Settings
from headwater.topology import Topology, topology_of
from headwater_root.runtime import RootRuntime

DONE, WRONG_CONFIGURATION, HALTED = 0, 2, 4
STATUS_SECONDS = 0.5


async def run(topology: Topology, directory: Path, listen: str, *, status: bool, keep_results: bool) -> int:
    settings = Settings(expected=topology.expected, start_timeout=topology.start_timeout)
    # Whoever reads the status shows results in their own way.
    sinks = [sink for sink in topology.root.sinks if not (status and sink.type == "console")]
    runtime = RootRuntime(
        topology.queries, directory, settings, sinks, name=topology.name, keep_results=keep_results
    )
    port = await runtime.start(listen)
    # Whoever started the program reads where it listens from its first line.
    print(json.dumps({"node": "root", "port": port}), flush=True)
    ended = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, ended.set)
    try:
        while not ended.is_set():
            if runtime.failed is not None:
                raise runtime.failed
            if status:
                print(json.dumps(runtime.figures()), flush=True)
            try:
                await asyncio.wait_for(ended.wait(), STATUS_SECONDS)
            except TimeoutError:
                continue
        if status:
            print(json.dumps(runtime.figures()), flush=True)
    finally:
        await runtime.stop()
    return DONE


def main() -> int:
    parser = argparse.ArgumentParser(prog="headwater-root", description=__doc__)
    parser.add_argument("--topology", metavar="FILE", required=True, help="the manifest as JSON")
    parser.add_argument("--directory", metavar="DIR", required=True, help="log and outbox are kept here")
    parser.add_argument("--listen", metavar="ADDRESS", default="127.0.0.1:0")
    parser.add_argument("--status", action="store_true", help="print figures as JSON lines, and no results")
    parser.add_argument(
        "--keep-results", action="store_true", help="leave results in the outbox that every sink has"
    )
    arguments = parser.parse_args()
    logging.basicConfig(format='{"time": "%(asctime)s", "level": "%(levelname)s", "said": "%(message)s"}')
    try:
        topology = topology_of(json.loads(Path(arguments.topology).read_text()))
    except (HeadwaterError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return WRONG_CONFIGURATION
    try:
        return asyncio.run(
            run(
                topology,
                Path(arguments.directory),
                arguments.listen,
                status=arguments.status,
                keep_results=arguments.keep_results,
            )
        )
    except HeadwaterError as error:
        print(f"headwater-root halts: {error}", file=sys.stderr)
        return HALTED


if __name__ == "__main__":
    sys.exit(main())
