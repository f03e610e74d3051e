"""The operator behind a proxy that misbehaves, in front of a real API server."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from e2e.faultproxy import FaultProxy, Rule
from e2e.operator.running import BRIEF, NODES, WATCH, Operator, rights
from e2e.operator.spaces import Spaces
from headwater.errors import RetryableError
from headwater_operator import cluster as module
from headwater_operator import kinds
from headwater_operator.cluster import Cluster
from headwater_operator.connection import PATIENCE, READ_SECONDS, Connection, configured
from headwater_operator.errors import Conflict, Unavailable
from headwater_operator.lease import Timing

Start = Callable[..., Operator]
TOPOLOGIES = "/aggregationtopologies$"
# Of a watch, after which a process is unsound: long enough for a busy machine to notice before.
SILENCE = 30.0


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[FaultProxy]:
    given = cluster.connection.configuration
    # Without a certificate of its own: whoever calls is who the token says.
    tls = ssl.create_default_context(cafile=given.ssl_ca_cert)
    # Below a path, as some offer the API servers of many clusters at one address.
    with FaultProxy(given.host, tls, "/clusters/one", seed=7) as found:
        yield found


@pytest.fixture
def kubeconfig(proxy: FaultProxy, spaces: Spaces, space: str, tmp_path: Path) -> Path:
    token = spaces.account(space, rights(), NODES)
    return spaces.kubeconfig(tmp_path / "kubeconfig", token, proxy.url)


@pytest.fixture
def start(kubeconfig: Path, space: str, tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def started(**options: Any) -> Operator:
            found = stack.enter_context(Operator(tmp_path, kubeconfig, space, **options))
            return found

        yield started


@pytest.fixture
def behind(kubeconfig: Path) -> Iterator[Cluster]:
    """The cluster as it is seen through the proxy."""
    connection = Connection(configured({"KUBECONFIG": str(kubeconfig)}))
    yield Cluster(connection)
    connection.close()


def config_map(space: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": space}}


# ---- calls ----


@pytest.mark.parametrize("code", [429, 500, 503])
def test_a_call_is_made_again(behind: Cluster, proxy: FaultProxy, space: str, code: int) -> None:
    proxy.add(Rule("answer", "PATCH", code=code, times=2))
    assert behind.apply(config_map(space))["metadata"]["name"] == "x"
    assert [each.code for each in proxy.seen("configmaps")] == [code, code, 201]
    assert behind.writes == 3


def test_it_comes_again_when_it_was_told_to(behind: Cluster, proxy: FaultProxy, space: str) -> None:
    proxy.add(Rule("answer", "GET", code=429, after=1, times=1))
    began = time.monotonic()
    behind.list(kinds.POD, space)
    assert time.monotonic() - began >= 1.0


def test_if_that_is_long_the_caller_is_told(behind: Cluster, proxy: FaultProxy, space: str) -> None:
    rule = proxy.add(Rule("answer", "GET", code=429, after=60))
    with pytest.raises(Unavailable) as told:
        behind.list(kinds.POD, space)
    assert told.value.after == 60.0
    assert rule.held == 1


def test_it_gives_up_in_the_end(behind: Cluster, proxy: FaultProxy, space: str) -> None:
    rule = proxy.add(Rule("answer", "GET", code=500))
    with pytest.raises(RetryableError, match="so says the proxy"):
        behind.list(kinds.POD, space)
    assert rule.held == 5


def test_a_conflict_is_no_matter_of_waiting(behind: Cluster, proxy: FaultProxy, space: str) -> None:
    rule = proxy.add(Rule("answer", "PATCH", code=409))
    with pytest.raises(Conflict):
        behind.apply(config_map(space))
    assert rule.held == 1


def test_a_call_that_hangs_ends_before_the_lease_does(behind: Cluster, proxy: FaultProxy, space: str) -> None:
    proxy.add(Rule("hang", "GET", seconds=60))
    began = time.monotonic()
    with pytest.raises(Unavailable, match="does not answer"):
        behind.list(kinds.POD, space)
    took = time.monotonic() - began
    assert READ_SECONDS <= took < Timing().duration
    # By itself; how long it took says also how busy the machine was.
    assert Timing().deadline > PATIENCE


def test_a_list_whose_later_pages_are_gone_is_read_whole(
    behind: Cluster, spaces: Spaces, proxy: FaultProxy, space: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE", 1)
    for name in ("a", "b", "c"):
        spaces.topology(space, name)
    proxy.add(Rule("answer", "GET", TOPOLOGIES, code=410, times=1))
    assert len(behind.list(kinds.TOPOLOGY, space)) == 3


def test_a_slow_answer_is_waited_for(behind: Cluster, proxy: FaultProxy, space: str) -> None:
    proxy.add(Rule("slow", "GET", seconds=1.0))
    assert behind.list(kinds.POD, space) == []


# ---- watches ----


def watching(start: Start, proxy: FaultProxy, spaces: Spaces, space: str, **options: Any) -> Operator:
    """An operator that has looked at a topology and watches."""
    spaces.topology(space, "first")
    operator = start(**options)
    operator.called(f"{space}/first")
    operator.until(lambda: proxy.watches(TOPOLOGIES) == 1)
    return operator


def test_a_watch_that_stalls_is_noticed_and_opened_again(
    start: Start, proxy: FaultProxy, spaces: Spaces, space: str
) -> None:
    operator = watching(start, proxy, spaces, space, watch={**WATCH, "silence": SILENCE})
    # The next one falls silent from its beginning, and is not even ended.
    rule = proxy.add(Rule("stall", path=TOPOLOGIES, watch=True, times=1))
    operator.until(lambda: rule.held == 1)
    created = time.time()
    spaces.topology(space, "second")
    noticed = operator.called(f"{space}/second", since=created) - created
    print(f"a silent watch was given up {noticed:.2f} s after an event")
    # Before the process would be taken for unsound.
    assert noticed < SILENCE
    operator.until(lambda: operator.get("/healthz")[0] == 200)
    assert operator.figure("watch_restarts_total") == 0.0


def test_watches_that_stall_for_good_make_the_process_unsound(
    start: Start, proxy: FaultProxy, spaces: Spaces, space: str
) -> None:
    operator = watching(start, proxy, spaces, space)
    # The API server still takes what is asked once: the lease is kept.
    with proxy.holding(Rule("hang", path=TOPOLOGIES, watch=True, seconds=600)):
        operator.until(lambda: operator.get("/healthz")[0] == 503)
        assert "a watch has been silent" in operator.get("/healthz")[1]
        assert operator.runs
    operator.until(lambda: operator.get("/healthz")[0] == 200)


def test_a_watch_that_is_cut_goes_on_where_it_was(
    start: Start, proxy: FaultProxy, spaces: Spaces, space: str
) -> None:
    operator = watching(start, proxy, spaces, space, watch={**WATCH, "server": 60, "client": 90})
    listed = len(proxy.seen(TOPOLOGIES, watch=False))
    for n in range(3):
        changed = time.time()
        assert proxy.cut(TOPOLOGIES) == 1
        spaces.topology(space, f"after-{n}")
        operator.called(f"{space}/after-{n}", since=changed)
        operator.until(lambda: proxy.watches(TOPOLOGIES) == 1)
    assert len(proxy.seen(TOPOLOGIES, watch=False)) == listed


def test_a_watch_that_is_cut_again_and_again_loses_nothing(
    start: Start, proxy: FaultProxy, spaces: Spaces, space: str
) -> None:
    operator = watching(start, proxy, spaces, space)
    proxy.add(Rule("cut", watch=True, seconds=0.5))
    for n in range(10):
        spaces.topology(space, f"t-{n}")
        time.sleep(0.05)
    for n in range(10):
        operator.called(f"{space}/t-{n}")
    assert operator.runs


def test_a_version_that_is_too_old_lists_anew_and_all_is_looked_at(
    start: Start, proxy: FaultProxy, spaces: Spaces, space: str
) -> None:
    operator = watching(start, proxy, spaces, space)
    spaces.topology(space, "second")
    operator.called(f"{space}/second")
    listed = len(proxy.seen(TOPOLOGIES, watch=False))
    # What goes away while nobody watches is not told by a list.
    with proxy.holding(Rule("hang", path=TOPOLOGIES, watch=True, seconds=600)) as rule:
        operator.until(lambda: rule.held)
        assert spaces.cluster.delete(kinds.TOPOLOGY, space, "second")
        deleted = time.time()
        proxy.add(Rule("expire", path=TOPOLOGIES, watch=True, times=1))
    operator.called(f"{space}/second", since=deleted)
    operator.until(lambda: len(proxy.seen(TOPOLOGIES, watch=False)) > listed)
    assert operator.figure("watch_restarts_total") == 0.0


@pytest.mark.parametrize("code", [410, 429, 500, 503])
def test_watches_and_lists_that_are_refused_are_begun_anew(
    start: Start, proxy: FaultProxy, spaces: Spaces, space: str, code: int
) -> None:
    operator = watching(start, proxy, spaces, space)
    # For longer than kopf itself tries.
    with proxy.holding(Rule("answer", "GET", TOPOLOGIES, code=code)):
        spaces.topology(space, "second")
        time.sleep(6)
        assert operator.runs
    created = time.time()
    spaces.topology(space, "third")
    operator.called(f"{space}/third", since=created)
    operator.called(f"{space}/second")
    operator.until(lambda: operator.get("/healthz")[0] == 200)


def test_a_token_that_is_not_known_once_is_read_again(
    start: Start, proxy: FaultProxy, spaces: Spaces, space: str
) -> None:
    operator = watching(start, proxy, spaces, space)
    rule = proxy.add(Rule("answer", "GET", TOPOLOGIES, watch=True, code=401, times=1))
    operator.until(lambda: rule.held == 1)
    created = time.time()
    spaces.topology(space, "second")
    operator.called(f"{space}/second", since=created)
    # kopf closes the session: if another watch is just asked for, all are begun anew.
    assert operator.figure("watch_restarts_total") in (0.0, 1.0)


def test_nodes_that_are_allowed_by_word_and_forbidden_by_deed_are_done_without(
    start: Start, proxy: FaultProxy, spaces: Spaces, space: str
) -> None:
    spaces.topology(space, "first")
    proxy.add(Rule("answer", "GET", "/api/v1/nodes$", watch=True, code=403))
    operator = start()
    operator.until(lambda: operator.figure("watch_restarts_total") == 1.0)
    operator.until(lambda: operator.calls() and operator.calls()[-1]["nodes"] is None)
    created = time.time()
    spaces.topology(space, "second")
    operator.called(f"{space}/second", since=created)
    time.sleep(5)
    assert operator.figure("watch_restarts_total") == 1.0


def test_among_faults_everything_is_looked_at(
    start: Start, proxy: FaultProxy, spaces: Spaces, space: str
) -> None:
    # But for the lease: without it the process has to end.
    others = r"^(?!.*/leases)"
    for rule in (
        Rule("answer", path=others, code=500, probability=0.1),
        Rule("answer", path=others, code=429, after=1, probability=0.05),
        Rule("slow", path=others, seconds=0.5, probability=0.1),
        Rule("cut", watch=True, seconds=1.0, probability=0.3),
        Rule("expire", watch=True, probability=0.1),
        Rule("stall", watch=True, seconds=0.5, probability=0.2),
    ):
        proxy.add(rule)
    operator = start(RESYNC_SECONDS="5")
    for n in range(20):
        spaces.topology(space, f"t-{n}")
        time.sleep(0.2)
    for n in range(20):
        operator.called(f"{space}/t-{n}")
    assert operator.runs


# ---- the lease ----


@pytest.mark.parametrize(
    "rule",
    [
        Rule("answer", path="/leases/", code=500),
        Rule("answer", path="/leases/", code=429, after=1),
        Rule("hang", path="/leases/", seconds=600),
        Rule("hang", seconds=600),
    ],
    ids=["refused", "put off", "unanswered", "all unanswered"],
)
def test_a_lease_that_cannot_be_renewed_ends_the_process_within_its_deadline(
    start: Start, proxy: FaultProxy, spaces: Spaces, space: str, rule: Rule
) -> None:
    operator = watching(start, proxy, spaces, space, lease=BRIEF)

    def renewals() -> list[float]:
        return [each.at for each in proxy.seen("/leases/") if each.method == "PUT" and each.code == 200]

    operator.until(renewals)
    with proxy.holding(rule):
        assert operator.ended() == 3
        took = time.monotonic() - max(renewals())
    print(f"ended {took:.2f} s after the last renewal; the deadline is {BRIEF['deadline']} s")
    # Not at the first failure, and before another one may lead.
    assert BRIEF["deadline"] - 2 < took < BRIEF["duration"]
    [told] = operator.said("the lease is lost: the process ends")
    assert told["problem"] == f"it was not renewed for {BRIEF['deadline']:g} s"


def test_a_lease_survives_what_is_over_before_its_deadline(
    start: Start, proxy: FaultProxy, spaces: Spaces, space: str
) -> None:
    operator = watching(start, proxy, spaces, space)
    with proxy.holding(Rule("answer", path="/leases/", code=503)):
        operator.until(lambda: operator.said("the lease could not be renewed yet"))
        time.sleep(1)
    operator.until(lambda: operator.said("the lease is renewed again"))
    assert operator.runs
