"""The operator's figures for Prometheus. Labels name topologies, kinds and verbs, never pods or sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from headwater_operator.access import Right

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics(Collector):
    """`headwater_operator_*`; docs/metrics.md lists them."""

    def __init__(self) -> None:
        # Of its own, so that one collector shows all of them.
        self._registry = CollectorRegistry()
        self._reconciles = self._counter("reconciles", "Topologies looked at, by outcome.", ["outcome"])
        self._errors = self._counter("errors", "What failed while one was looked at, by reason.", ["reason"])
        self._events = self._counter("events", "Events heard from the API server, by resource.", ["resource"])
        self._watches = self._counter("watch_restarts", "How often all watches were begun anew.", [])
        self._seconds = self._histogram("reconcile_seconds", "How long a topology was worked on.")
        self._lag = self._histogram("lag_seconds", "From an event to when its topology was looked at.")
        labels = ["namespace", "topology"]
        said = "Roots whose pods were taken off machines that are lost, to be made elsewhere."
        self._failovers = self._counter("root_failovers", said, labels)
        self._nodes = self._gauge("planned_nodes", "Nodes that are planned for a topology.", labels)
        self._width = self._gauge(
            "planned_width", "Nodes of each layer of the plan; 1 is the children's.", [*labels, "layer"]
        )
        self._layers: dict[tuple[str, str], int] = {}
        # Read when they are asked for.
        self.depth: Callable[[], int] = lambda: 0
        self.calls: Callable[[], Mapping[tuple[str, str, str], int]] = dict
        self.watch_age: Callable[[], float] = lambda: 0.0
        self.leading: Callable[[], bool] = lambda: False
        self.missing: Callable[[], Iterable[Right]] = tuple

    def reconciled(self, outcome: str, seconds: float, waited: float) -> None:
        """One topology looked at: `done`, `again` (it wants to be looked at later) or `failed`."""
        self._reconciles.labels(outcome).inc()
        self._seconds.observe(seconds)
        self._lag.observe(waited)

    def failed(self, reason: str) -> None:
        self._errors.labels(reason).inc()

    def heard(self, resource: str) -> None:
        self._events.labels(resource).inc()

    def failed_over(self, namespace: str, topology: str) -> None:
        """A root is made elsewhere."""
        self._failovers.labels(namespace, topology).inc()

    def watches_restarted(self) -> None:
        self._watches.inc()

    def planned(self, namespace: str, topology: str, widths: Sequence[int]) -> None:
        """The plan of a topology: how many nodes each layer has, from the children upwards."""
        self.forget(namespace, topology)
        self._layers[namespace, topology] = len(widths)
        self._nodes.labels(namespace, topology).set(sum(widths))
        for layer, width in enumerate(widths, start=1):
            self._width.labels(namespace, topology, str(layer)).set(width)

    def forget(self, namespace: str, topology: str) -> None:
        """A topology that is gone."""
        layers = self._layers.pop((namespace, topology), None)
        if layers is not None:
            self._nodes.remove(namespace, topology)
            for layer in range(1, layers + 1):
                self._width.remove(namespace, topology, str(layer))

    def collect(self) -> Iterator[Metric]:
        yield from self._registry.collect()
        yield _gauge("queue_depth", "Topologies that wait to be looked at.", self.depth())
        said = "Seconds since the watch that has been silent for longest was last heard of."
        yield _gauge("watch_age_seconds", said, self.watch_age())
        yield _gauge("leading", "1 while this process holds the lease.", self.leading())
        calls = CounterMetricFamily(
            "headwater_operator_api_calls",
            "Requests to the API server, by verb, resource and outcome.",
            labels=["verb", "resource", "outcome"],
        )
        for labels, count in sorted(self.calls().items()):
            calls.add_metric(labels, count)
        yield calls
        missing = GaugeMetricFamily(
            "headwater_operator_rights_missing",
            "1 for each right that the operator's account lacks; an empty namespace is all of them.",
            labels=["verb", "resource", "namespace"],
        )
        for right in self.missing():
            missing.add_metric([right.verb, right.resource, right.namespace or ""], 1)
        yield missing

    def _counter(self, name: str, said: str, labels: Sequence[str]) -> Counter:
        return Counter(f"headwater_operator_{name}", said, labels, registry=self._registry)

    def _gauge(self, name: str, said: str, labels: Sequence[str]) -> Gauge:
        return Gauge(f"headwater_operator_{name}", said, labels, registry=self._registry)

    def _histogram(self, name: str, said: str) -> Histogram:
        return Histogram(f"headwater_operator_{name}", said, registry=self._registry, buckets=_SECONDS)


def _gauge(name: str, said: str, value: float) -> Metric:
    return GaugeMetricFamily(f"headwater_operator_{name}", said, value=float(value))
