"""Leases on a real API server; with processes of their own in test_program.py."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from e2e.operator.spaces import Spaces
from headwater_operator import kinds
from headwater_operator.cluster import Cluster
from headwater_operator.connection import Connection, configured
from headwater_operator.errors import ApiError
from headwater_operator.lease import Lease, Timing

QUICK = Timing(duration=15, deadline=10.0, retry=0.3)


class Party:
    """One that wants to lead."""

    def __init__(self, apiserver: Path, space: str, identity: str) -> None:
        self.lost: list[str] = []
        self.gone = threading.Event()
        connection = Connection(configured({"KUBECONFIG": str(apiserver)}), pauses=())
        self.lease = Lease(connection, space, "operator", identity, self._lose, QUICK)

    def acquire(self, seconds: float) -> bool:
        given_up = threading.Event()
        timer = threading.Timer(seconds, given_up.set)
        timer.start()
        try:
            return self.lease.acquire(given_up)
        finally:
            timer.cancel()

    def _lose(self, why: str) -> None:
        self.lost.append(why)
        self.gone.set()


def test_one_leads_and_releases_for_the_next(apiserver: Path, cluster: Cluster, space: str) -> None:
    a, b = Party(apiserver, space, "a"), Party(apiserver, space, "b")
    assert a.acquire(60)
    assert a.lease.held
    # For longer than it lasts: it is renewed.
    assert not b.acquire(QUICK.duration + 1)
    assert not b.lease.held
    a.lease.release()
    assert not a.lease.held
    began = time.monotonic()
    assert b.acquire(60)
    # Long before it would have ended.
    assert time.monotonic() - began < QUICK.duration / 2
    found = cluster.get(kinds.LEASE, space, "operator")
    assert found is not None
    assert found["spec"]["holderIdentity"] == "b"
    # From nobody to a, and from nobody to b.
    assert found["spec"]["leaseTransitions"] == 2
    assert found["spec"]["leaseDurationSeconds"] == QUICK.duration
    b.lease.release()
    assert a.lost == b.lost == []


def test_one_that_is_taken_away_is_lost_at_once(apiserver: Path, spaces: Spaces, space: str) -> None:
    a = Party(apiserver, space, "a")
    assert a.acquire(60)
    # The holder may write at any moment between.
    for _ in range(20):
        found = spaces.cluster.get(kinds.LEASE, space, "operator")
        assert found is not None
        found["spec"]["holderIdentity"] = "thief"
        try:
            spaces.request("PUT", kinds.LEASE.object(space, "operator"), found)
            break
        except ApiError:
            continue
    assert a.gone.wait(QUICK.deadline)
    assert a.lost == ["thief has taken it"]
    assert not a.lease.held
    a.lease.release()
    left = spaces.cluster.get(kinds.LEASE, space, "operator")
    assert left is not None
    assert left["spec"]["holderIdentity"] == "thief"


def test_one_that_was_deleted_is_made_again(apiserver: Path, cluster: Cluster, space: str) -> None:
    a = Party(apiserver, space, "a")
    assert a.acquire(60)
    cluster.delete(kinds.LEASE, space, "operator")
    until = time.monotonic() + QUICK.duration
    while cluster.get(kinds.LEASE, space, "operator") is None:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert a.lease.held
    a.lease.release()
    assert a.lost == []


def test_without_the_right_it_waits_and_says_why(
    apiserver: Path, spaces: Spaces, space: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kubeconfig = spaces.kubeconfig(tmp_path / "kubeconfig", spaces.account(space, []))
    assert not Party(kubeconfig, space, "a").acquire(1)
    told = [str(vars(record)["problem"]) for record in caplog.records if "problem" in vars(record)]
    assert len(told) == 1
    assert 'cannot get resource "leases"' in told[0]
