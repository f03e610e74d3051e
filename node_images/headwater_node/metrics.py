"""A node's figures for Prometheus, read when they are asked for. No labels by source: there may be
many. Only offenders are named, and few of them."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from headwater.durations import SECOND
from headwater_node.runtime import NodeRuntime
from headwater_wire.clock import now
from headwater_wire.monitor import offences_of


class NodeMetrics(Collector):
    """`headwater_node_*`; docs/metrics.md lists them."""

    def __init__(self, runtime: NodeRuntime) -> None:
        self._runtime = runtime

    def collect(self) -> Iterator[Metric]:
        runtime = self._runtime
        machine, exchange = runtime.machine, runtime.exchange
        role = "child" if machine.child else "intermediate"
        yield _labelled(
            "info", "1, with who the node is.", {"node": machine.name, "role": role, "parent": machine.parent}
        )
        yield _gauge(
            "ready", "1 while the parent answers and the node takes records.", runtime.unready() is None
        )
        yield _gauge("halted", "1 once the node can go no further and ends.", runtime.failed is not None)
        yield _gauge("draining", "1 while the node ends and takes nothing more.", runtime.draining)
        yield from self._records()
        yield _counter("batches", "Batches sent to the parent, each once.", runtime.batches)
        yield _counter("batches_repeated", "Batches sent again because no answer had come.", runtime.repeated)
        yield _counter("resyncs", "How often unacknowledged batches were made again.", machine.remade)
        yield _gauge("batches_under_way", "Batches that the parent has not acknowledged.", machine.under_way)
        yield self._bytes()
        yield _counter(
            "messages_dropped", "Messages dropped because a queue was full or led nowhere.", exchange.dropped
        )
        said = "Bytes of messages that come in pieces and are not complete."
        yield _gauge("assembled_bytes", said, exchange.assembled)
        refused = exchange.refused + machine.refusals.count
        yield _counter("messages_refused", "Messages that could not be read or merged.", refused)
        yield _counter("messages_too_large", "Messages not sent because of their size.", exchange.too_large)
        yield offences_of("node", exchange.offences)
        kept = "Bytes of columns that are kept until they are acknowledged."
        yield _gauge("held_bytes", kept, machine.held_bytes)
        yield _gauge("sources", "Sources that are known here.", len(machine.sources))
        waiting = len(runtime.future.waiting)
        yield _gauge(
            "sources_in_the_future", "Sources whose next event lies too far beyond the clock.", waiting
        )
        said = "Sources that wait because they are too far ahead of the others."
        yield _gauge("sources_ahead", said, len(runtime.ahead))
        yield _gauge("sources_over_keys", "Sources with too many keys to be read on.", len(machine.keys.over))
        refused = machine.keys.refused
        yield _counter("columns_over_keys", "Columns not read to their end for too many keys.", refused)
        if runtime.archive is not None:
            archive = runtime.archive
            yield _counter("archived_records", "Records in finished files of the archive.", archive.written)
            said = "Records that the archive lacks: it could not keep up, or not be written."
            yield _counter("archive_dropped_records", said, archive.dropped)
            said = "1 while the archive cannot be written."
            yield _gauge("archive_failing", said, archive.problem is not None)
        if machine.watermark is not None:
            said = "The root's watermark as last heard, in seconds since the epoch."
            yield _gauge("watermark_seconds", said, machine.watermark / SECOND)
        yield _gauge(
            "parent_connected", "1 while there is a stream to the parent.", exchange.uplink.connected
        )
        if runtime.answered is not None:
            since = max(now() - runtime.answered, 0) / SECOND
            yield _gauge("parent_answered_seconds", "Seconds since the parent last answered.", since)

    def _records(self) -> Iterator[Metric]:
        tally = self._runtime.tally
        yield _counter("records_read", "Records read, those that were read again included.", tally.read)
        yield _counter("records_late", "Records read that were late.", tally.late)
        rejected = CounterMetricFamily(
            "headwater_node_records_rejected", "Records read that cannot count, by reason.", labels=["reason"]
        )
        for reason, count in sorted(tally.rejected.items()):
            rejected.add_metric([reason], count)
        yield rejected

    def _bytes(self) -> Metric:
        exchange = self._runtime.exchange
        moved = CounterMetricFamily(
            "headwater_node_bytes",
            "Bytes of messages: to the parent (up), from the parent (down), from those below (below).",
            labels=["direction"],
        )
        for direction, count in (
            ("up", exchange.bytes_up),
            ("down", exchange.bytes_down),
            ("below", exchange.bytes_below),
        ):
            moved.add_metric([direction], count)
        return moved


def _gauge(name: str, said: str, value: float) -> Metric:
    return GaugeMetricFamily(f"headwater_node_{name}", said, value=float(value))


def _counter(name: str, said: str, value: float) -> Metric:
    return CounterMetricFamily(f"headwater_node_{name}", said, value=value)


def _labelled(name: str, said: str, labels: dict[str, str]) -> Metric:
    family = GaugeMetricFamily(f"headwater_node_{name}", said, labels=list(labels))
    family.add_metric(list(labels.values()), 1)
    return family
