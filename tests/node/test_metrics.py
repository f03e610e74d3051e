"""What is exposed is what docs/metrics.md says, and the figures are those of what was sent."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from headwater import topology
from headwater.machines import source as sources
from headwater.machines.root import Settings
from headwater.queries import Query
from headwater.topology import Sink
from headwater.windows import Tumbling
from headwater_node.archive import Archive
from headwater_node.metrics import NodeMetrics
from headwater_node.runtime import NodeRuntime
from headwater_root.metrics import RootMetrics
from headwater_root.runtime import RootRuntime
from headwater_source.client import SourceClient
from headwater_source.spool import Spool
from headwater_wire.clock import now
from headwater_wire.offences import Offence
from tests.patience import PATIENCE

DOCUMENTED = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
ROW = re.compile(r"^\| `(headwater_(?:node|root)_\w+)` \| (\w+) \| ([\w, ]*) ?\| (.+) \|$", re.MULTILINE)
QUERIES = [Query("q", Tumbling("1s"), "sum")]
SECOND = 1_000_000
EVENTS, LATE, BROKEN = 1_000, 7, 3
# By name and labels.
Figures = dict[tuple[str, tuple[tuple[str, str], ...]], float]
Families = dict[str, tuple[str, set[str]]]


def spool(directory: Path) -> Spool:
    opened = Spool.open(directory, limit_bytes=1 << 20)
    value = np.ones(EVENTS)
    value[:BROKEN] = np.nan
    opened.append(np.arange(EVENTS) * 10_000 + 60 * SECOND, value)
    opened.append(np.arange(LATE), np.ones(LATE))
    opened.append([100 * SECOND], [np.nan], bare=[True])
    return opened


def exposed(registry: CollectorRegistry) -> tuple[Families, Figures]:
    """Type and labels of everything, and the figures."""
    families: Families = {}
    figures: Figures = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        families[name] = (family.type, labels)
        assert family.documentation.endswith(".")
        for sample in family.samples:
            figures[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return families, figures


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Families, Figures]:
    """A tree after it has counted everything."""
    directory = tmp_path_factory.mktemp("tree")

    async def run() -> tuple[Families, Figures]:
        sinks = [Sink("jsonlines", "one"), Sink("jsonlines", "two")]
        root = RootRuntime(QUERIES, directory / "root", Settings(expected=1), sinks)
        port = await root.start("127.0.0.1:0")
        archive = Archive("c", topology.Archive(str(directory / "archive")))
        child = NodeRuntime("c", "root", child=True, flush_interval=0.02, archive=archive)
        below = await child.start("127.0.0.1:0", f"127.0.0.1:{port}")
        client = SourceClient("s", "c", spool(directory / "s"), sources.Settings(rows=100))
        client.start(f"127.0.0.1:{below}")
        try:
            async with asyncio.timeout(PATIENCE):
                while not client.done or child.machine.watermark is None or root.deliveries.behind:
                    await asyncio.sleep(0.02)
                # Its only source has sent all that it has: windows wait for it.
                while not root.machine.holds(now())[0]:
                    await asyncio.sleep(0.1)
            # A family without figures shows no labels.
            root.exchange.offences.count(Offence.STALE, "n")
            registry = CollectorRegistry()
            registry.register(NodeMetrics(child))
            registry.register(RootMetrics(root, "t"))
            return exposed(registry)
        finally:
            await client.stop()
            await child.stop()
            await root.stop()

    return asyncio.run(run())


def test_the_table_and_the_exposition_name_the_same_metrics(seen: tuple[Families, Figures]) -> None:
    told = {
        name: (kind, set(filter(None, labels.strip().split(", "))))
        for name, kind, labels, _ in ROW.findall(DOCUMENTED)
    }
    assert told == seen[0]
    assert len(told) > 30


def test_no_metric_has_a_label_by_source(seen: tuple[Families, Figures]) -> None:
    assert not {label for _, labels in seen[0].values() for label in labels} & {"source", "key", "name"}


def test_the_figures_are_those_of_what_was_sent(seen: tuple[Families, Figures]) -> None:
    figures = seen[1]
    topology = ("topology", "t")
    records = EVENTS + LATE + 1
    assert figures["headwater_node_records_read_total", ()] == records
    assert figures["headwater_node_records_late_total", ()] == LATE
    assert figures["headwater_node_records_rejected_total", (("reason", "value not finite"),)] == BROKEN
    offender = (("kind", "records"), ("offender", "s"))
    assert figures["headwater_node_offences_total", offender] == BROKEN
    assert figures["headwater_root_records_accepted_total", (topology,)] == records
    assert figures["headwater_root_records_counted_total", (topology,)] == records - LATE - BROKEN
    assert figures["headwater_root_records_late_total", (topology,)] == LATE
    rejected = (("reason", "value not finite"), topology)
    assert figures["headwater_root_records_rejected_total", rejected] == BROKEN
    assert figures["headwater_root_watermark_seconds", ()] == 100.0
    assert figures["headwater_node_watermark_seconds", ()] == 100.0
    assert figures["headwater_root_windows_total", ()] == 10
    assert figures["headwater_root_sources", (("state", "active"),)] == 1
    assert figures["headwater_node_sources", ()] == 1
    written = figures["headwater_root_log_records_total", ()]
    assert figures["headwater_root_log_position", ()] == written
    # One fsync for each group of records.
    synced = figures["headwater_root_log_sync_seconds_count", ()]
    assert 0 < synced <= written
    assert figures["headwater_root_log_sync_seconds_bucket", (("le", "+Inf"),)] == synced
    assert figures["headwater_node_batches_total", ()] >= 1
    assert figures["headwater_node_batches_under_way", ()] == figures["headwater_node_held_bytes", ()] == 0
    for sink in ("0-jsonlines", "1-jsonlines"):
        assert figures["headwater_root_sink_lag_positions", (("sink", sink),)] == 0
        assert figures["headwater_root_sink_failing", (("sink", sink),)] == 0
    up = figures["headwater_node_bytes_total", (("direction", "up"),)]
    assert 0 < up <= figures["headwater_root_bytes_total", ()] + 4_096
    assert figures["headwater_node_bytes_total", (("direction", "below"),)] > up
