"""The root's figures for Prometheus, read when they are asked for. No labels by source: there may be
many. Only offenders are named, and few of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from headwater.durations import SECOND
from headwater.prefix import LATE
from headwater.sources import SourceId
from headwater_root.runtime import RootRuntime
from headwater_wire.clock import now, wall
from headwater_wire.monitor import offences_of

Labels = tuple[str, ...]


class RootMetrics(Collector):
    """`headwater_root_*`; docs/metrics.md lists them."""

    def __init__(self, runtime: RootRuntime, topology: str) -> None:
        self._runtime, self._topology = runtime, topology

    def collect(self) -> Iterator[Metric]:
        runtime = self._runtime
        engine, log, exchange = runtime.machine.engine, runtime.log, runtime.exchange
        yield _gauge("info", "1, with the topology.", {(self._topology,): 1}, "topology")
        yield _gauge("ready", "1 while the log is replayed and the root listens.", runtime.unready() is None)
        yield _gauge("log_position", "Position of the last record that is durable.", log.committed)
        yield _counter("log_records", "Records written since the start.", log.committed - runtime.replayed)
        yield _gauge("log_size_bytes", "Size of the log.", log.size)
        yield HistogramMetricFamily(
            "headwater_root_log_sync_seconds",
            "Time of each group commit: write and fsync.",
            buckets=runtime.syncs.buckets,
            sum_value=runtime.syncs.total,
        )
        yield _gauge("replay_seconds", "How long the replay at the start has taken.", runtime.replay_seconds)
        yield from self._records()
        yield _counter("windows", "Results made final, those of the replay included.", runtime.windows)
        if engine.watermark is not None:
            said = "The watermark, in seconds since the epoch."
            yield _gauge("watermark_seconds", said, engine.watermark / SECOND)
        states = Counter(
            "retired" if source.retired else "idle" if source.idle else "active"
            for source in engine.sources.values()
        )
        by_state: dict[Labels, float] = {(state,): states[state] for state in ("active", "idle", "retired")}
        yield _gauge("sources", "Sources on the roster, by state.", by_state, "state")
        quarantined = len(runtime.machine.quarantined)
        yield _gauge("sources_quarantined", "Names of sources that are in quarantine.", quarantined)
        yield from self._movement()
        expected = runtime.machine.expected
        yield _gauge("sources_expected", "Sources that the topology waits for.", expected)
        yield _counter("batches_refused", "Batches that did not fit.", runtime.machine.refused)
        yield _counter("bytes", "Bytes of messages from below.", exchange.bytes_below)
        yield _counter("messages_dropped", "Messages dropped because a queue was full.", exchange.dropped)
        said = "Bytes of messages that come in pieces and are not complete."
        yield _gauge("assembled_bytes", said, exchange.assembled)
        refused = exchange.refused + runtime.machine.refusals.count
        yield _counter("messages_refused", "Messages that could not be read or merged.", refused)
        yield _counter("messages_too_large", "Messages not sent because of their size.", exchange.too_large)
        yield offences_of("root", exchange.offences)
        yield _gauge("outbox_size_bytes", "Size of the outbox.", runtime.outbox.bytes)
        deliveries = runtime.deliveries
        lags: dict[Labels, float] = {(sink,): lag for sink, lag in deliveries.lags.items()}
        yield _gauge("sink_lag_positions", "How far a sink is behind the outbox, in positions.", lags, "sink")
        failing: dict[Labels, float] = {labels: labels[0] in deliveries.failing for labels in lags}
        yield _gauge("sink_failing", "1 while a sink cannot deliver.", failing, "sink")
        failures: dict[Labels, float] = {labels: deliveries.failures[labels[0]] for labels in lags}
        yield _counter("sink_failures", "Attempts of a sink to deliver that failed.", failures, "sink")
        lasting: dict[Labels, float] = {(sink,): each for sink, each in deliveries.failing_seconds.items()}
        said = "Seconds for which a sink has been failing; 0 if it is not."
        yield _gauge("sink_failing_seconds", said, lasting, "sink")
        for name, meaning, value in runtime.gauges():
            yield _gauge(name, meaning, value)

    def _movement(self) -> Iterator[Metric]:
        """What the clock says of the watermark, and what windows wait for."""
        at, machine = now(), self._runtime.machine
        if machine.movement.watermark_moved is None:
            return
        said = "Seconds since the watermark last moved, or since the root was started."
        yield _gauge("watermark_still_seconds", said, (at - machine.movement.watermark_moved) / SECOND)
        if machine.engine.watermark is not None:
            said = "Seconds that the watermark is behind the clock of the root."
            yield _gauge("watermark_behind_seconds", said, (wall() - machine.engine.watermark) / SECOND)
        yield _gauge("sources_live", "Sources that windows wait for.", machine.movement.live)
        holds, count = machine.holds(at)
        yield _gauge("windows_wait_for", "Sources, and other things, that windows wait for.", count)
        worst: dict[Labels, float] = {}
        for hold in holds:
            source = SourceId.of(hold.source).name if hold.source else ""
            worst[source, hold.child, str(hold.reason)] = (at - hold.since) / SECOND
        said = "Seconds that windows have waited, by what they wait for: the worst ten."
        yield _gauge("windows_wait_seconds", said, worst, "held_by", "child", "reason")

    def _records(self) -> Iterator[Metric]:
        engine, name = self._runtime.machine.engine, self._topology
        accounts = [engine.account(source) for source in engine.sources]
        refused: Counter[str] = Counter()
        for account in accounts:
            refused.update(account.refused)
        accepted, late = sum(account.accepted for account in accounts), refused.pop(LATE, 0)
        counted = accepted - late - refused.total()
        for what, said, count in (
            ("accepted", "Records counted, late or rejected.", accepted),
            ("counted", "Records that count.", counted),
            ("late", "Records that came too late.", late),
        ):
            yield _counter(f"records_{what}", said, {(name,): count}, "topology")
        rejected: dict[Labels, float] = {(name, reason): count for reason, count in sorted(refused.items())}
        yield _counter(
            "records_rejected", "Records that cannot count, by reason.", rejected, "topology", "reason"
        )


# A figure, or one for each set of labels.
Values = float | Mapping[Labels, float]


def _gauge(name: str, said: str, values: Values, *labels: str) -> Metric:
    family = GaugeMetricFamily(f"headwater_root_{name}", said, labels=labels)
    for held, value in _by_labels(values):
        family.add_metric(held, float(value))
    return family


def _counter(name: str, said: str, values: Values, *labels: str) -> Metric:
    family = CounterMetricFamily(f"headwater_root_{name}", said, labels=labels)
    for held, value in _by_labels(values):
        family.add_metric(held, value)
    return family


def _by_labels(values: Values) -> Iterator[tuple[Labels, float]]:
    yield from values.items() if isinstance(values, Mapping) else [((), values)]
