"""The central baseline of a run: the same events and queries, with every event forwarded to the root.

It is executed, not computed: the same tree of processes, where nodes forward events and the root computes
every window from them. Sources send as fast as they may, so batches are larger than in the run, and bytes
rather fewer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from headwater.topology import topology_of
from headwater_cli.run import Run
from headwater_cli.summary import Central


def central_document(document: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The manifest with all queries computed at the root from forwarded events, and the queries left out.

    Deduplication is what makes a query central: only one place sees every copy of an event. Generated events
    have no copies, so the windows are the same.
    """
    found = deepcopy(document)
    spec = found["spec"]
    left_out = [each["id"] for each in spec["queries"] if each["window"].get("type") == "punctuation"]
    spec["queries"] = [
        {**each, "deduplicate": True} for each in spec["queries"] if each["id"] not in left_out
    ]
    # Neither a plan nor a sink: the tree has the shape of the run, and only its bytes are of interest.
    for field_ in ("node", "placement"):
        spec.pop(field_, None)
    spec["root"] = {"engine": "embedded"}
    return found, left_out


async def run_centrally(
    document: dict[str, Any], widths: Sequence[int], seconds: int, events: int | None, log: Path | None
) -> Central:
    """Run the queries of a manifest centrally, in a tree of these widths.

    Raises what a run raises, and KeyboardInterrupt after Ctrl-C.
    """
    central, left_out = central_document(document)
    if not central["spec"]["queries"]:
        return Central(left_out=left_out)
    children, *above, _ = widths
    work = Run(topology_of(central), central, children, above, seconds, events, fast=True, log=log)
    try:
        found = await work.run(verify=False)
    except asyncio.CancelledError:
        if work.interrupted:
            raise KeyboardInterrupt from None
        raise
    finally:
        work.clean()
    return Central(
        found.raw_bytes, found.layers, found.windows, found.seconds, left_out, list(found.problems)
    )
