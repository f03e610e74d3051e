"""A root on a machine that is lost: whether its pod may be taken away by force, so that it is made elsewhere.

By force nobody waits for the machine to say that the pod has ended, and it may still run there. So it is done
only when it is asked for, only with a claim that one pod alone may have, and not while the root answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headwater.topology.tree import RootSpec
from headwater_operator import names
from headwater_operator.claims import Claim
from headwater_operator.layout import Host
from headwater_operator.observation import Observed, Pod

# Seconds that a machine has been lost before its root is made elsewhere. Kubernetes calls it lost about 50 s
# after its last word; a kubelet that starts again and most machines that do are back within this minute, and
# a root that starts elsewhere has its volume attached anew, which takes longer than that.
GRACE = 60.0
NEEDED = "ReadWriteOncePod"
# So many looks in a row, some seconds apart, nobody answers: a packet may get lost.
SILENT = 3


@dataclass(slots=True)
class Lost:
    """The pod of a root on a machine that is lost, since when, and how often in a row nobody answered."""

    uid: str
    since: float
    silent: int = 0

    def spared(self, now: float, answers: bool) -> str:
        """Why it is not taken off yet; empty: it is to be."""
        self.silent = 0 if answers else self.silent + 1
        if now - self.since < GRACE:
            return f"it is made elsewhere only when that has lasted {GRACE:g} s"
        if answers:
            return "it still answers there, and there must never be two: it is left alone"
        if self.silent < SILENT:
            return f"it is asked {SILENT} times before it is taken for dead"
        return ""


def lost(observed: Observed, topology: str, hosts: Iterable[Host] | None) -> Pod | None:
    """The pod of the root, if its machine is not ready or is no longer there. None where machines cannot be
    seen."""
    if hosts is None:
        return None
    ready = {host.name for host in hosts if host.ready}
    pod = next(iter(observed.pods.get(names.root(topology), ())), None)
    return pod if pod is not None and pod.machine and pod.machine not in ready else None


def claim_name(topology: str, asked: RootSpec) -> str:
    return asked.storage.claim or names.claim(topology)


def hindrance(name: str, claim: Claim | None, hosts: Iterable[Host] | None) -> str:
    """Why a root with the claim of that name could not be made elsewhere by force; empty: it could."""
    if hosts is None:
        return "the operator may not see machines; give it the right, as nodes.rbac of the chart does"
    if claim is None:
        return f"there is no claim {name}; make it, with the access mode {NEEDED}"
    if claim.modes != (NEEDED,):
        modes = " and ".join(claim.modes) or "none"
        return (
            f"the claim {name} has the access mode {modes}, with which a second root could have the volume "
            f"too; copy its data, while the topology is suspended, into a claim that is {NEEDED}, and name "
            "that in spec.root.storage.claim"
        )
    return ""
