"""What the operator may do, asked before it is tried: a watch that is forbidden would end kopf.

The tables are also what the chart's roles have to grant, and nothing beyond.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType

from headwater.errors import Invalid, Problem
from headwater_operator import kinds
from headwater_operator.cluster import Cluster
from headwater_operator.errors import Forbidden
from headwater_operator.kinds import Kind

# What is watched in each namespace.
WATCHED = (
    kinds.TOPOLOGY,
    kinds.QUERY,
    kinds.DEPLOYMENT,
    kinds.STATEFUL_SET,
    kinds.SERVICE,
    kinds.POD,
    kinds.CLAIM,
)
_WATCH = ("list", "watch")
_KEEP = ("get", "list", "create", "patch", "delete")
# What else is done in each namespace: by kind, or by kind and subresource.
WORK: Mapping[tuple[Kind, str], tuple[str, ...]] = MappingProxyType(
    {
        (kinds.TOPOLOGY, ""): ("get",),
        (kinds.TOPOLOGY, "status"): ("patch",),
        (kinds.QUERY, ""): ("get",),
        (kinds.QUERY, "status"): ("patch",),
        (kinds.DEPLOYMENT, ""): _KEEP,
        (kinds.STATEFUL_SET, ""): _KEEP,
        (kinds.SERVICE, ""): _KEEP,
        (kinds.CONFIG_MAP, ""): _KEEP,
        (kinds.SECRET, ""): _KEEP,
        (kinds.CLAIM, ""): _KEEP,
        (kinds.POD, ""): ("get", "delete"),
        (kinds.DISRUPTION_BUDGET, ""): _KEEP,
        (kinds.NETWORK_POLICY, ""): _KEEP,
        (kinds.SERVICE_ACCOUNT, ""): _KEEP,
        (kinds.ROLE, ""): _KEEP,
        (kinds.ROLE_BINDING, ""): _KEEP,
        (kinds.EVENT, ""): ("get", "create", "patch"),
    }
)
# The same, where these kinds are served.
MONITORING: Mapping[tuple[Kind, str], tuple[str, ...]] = MappingProxyType(
    {(kinds.POD_MONITOR, ""): _KEEP, (kinds.PROMETHEUS_RULE, ""): _KEEP}
)
# And these, for topologies that name an issuer of cert-manager.
CERTIFYING: Mapping[tuple[Kind, str], tuple[str, ...]] = MappingProxyType({(kinds.CERTIFICATE, ""): _KEEP})
# In the operator's own namespace.
LEADING: Mapping[tuple[Kind, str], tuple[str, ...]] = MappingProxyType(
    {(kinds.LEASE, ""): ("get", "create", "update")}
)
# Requests that are under way at a time.
_AT_ONCE = 4


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """To do something to a resource in a namespace, or in all of them."""

    verb: str
    resource: str
    namespace: str | None

    def __str__(self) -> str:
        where = "everywhere" if self.namespace is None else f"in namespace {self.namespace}"
        return f"{self.verb} {self.resource} {where}"


@dataclass(frozen=True, slots=True)
class Access:
    """Where watches may begin: in these namespaces, or everywhere; and whether Nodes can be watched."""

    namespaces: tuple[str, ...] | None
    nodes: bool
    missing: frozenset[Right]


class NotAllowed(Invalid):
    """There is no place to watch; it lists every right that is missing there."""

    def __init__(self, problems: Iterable[Problem], missing: frozenset[Right]) -> None:
        super().__init__("the operator may not watch", problems)
        self.missing = missing


def review(cluster: Cluster, namespaces: Sequence[str]) -> Access:
    """Ask for all of it."""
    _definitions(cluster)
    scopes: Sequence[str | None] = namespaces or [None]
    monitored = {at: verbs for at, verbs in MONITORING.items() if cluster.serves(at[0])}
    needed = [asked for scope in scopes for asked in _watches(scope)]
    wanted = [asked for scope in scopes for asked in _work({**WORK, **monitored}, scope)]
    nodes = [(verb, kinds.NODE, "", None) for verb in _WATCH]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        asked = [*needed, *wanted, *nodes]
        allowed = dict(zip(asked, pool.map(lambda each: _allowed(cluster, *each), asked), strict=True))
    missing = {each for each in asked if not allowed[each]}
    left = tuple(scope for scope in scopes if not any(each in missing for each in _watches(scope)))
    rights = frozenset(_right(each) for each in missing)
    if not left:
        raise NotAllowed([_problem(each) for each in needed if each in missing], rights)
    return Access(
        namespaces=None if None in left else tuple(filter(None, left)),
        nodes=all(allowed[each] for each in nodes),
        missing=rights,
    )


_Asked = tuple[str, Kind, str, str | None]


def _watches(scope: str | None) -> Iterator[_Asked]:
    return ((verb, kind, "", scope) for kind in WATCHED for verb in _WATCH)


def _work(table: Mapping[tuple[Kind, str], tuple[str, ...]], scope: str | None) -> Iterator[_Asked]:
    for (kind, subresource), verbs in table.items():
        for verb in verbs:
            if subresource or kind not in WATCHED or verb not in _WATCH:
                yield verb, kind, subresource, scope


def _allowed(cluster: Cluster, verb: str, kind: Kind, subresource: str, namespace: str | None) -> bool:
    try:
        return cluster.allows(verb, kind, namespace, subresource)
    except Forbidden:
        # Who may not even ask finds out by trying.
        return True


def _right(asked: _Asked) -> Right:
    verb, kind, subresource, namespace = asked
    return Right(verb, f"{kind.resource}/{subresource}" if subresource else kind.resource, namespace)


def _problem(asked: _Asked) -> Problem:
    namespace = asked[3]
    if namespace is None:
        remedy = "bind a ClusterRole with it to the operator's account, or set WATCH_NAMESPACES"
    else:
        remedy = "bind a Role with it to the operator's account there, or drop it from WATCH_NAMESPACES"
    return Problem(str(_right(asked)), "is not allowed", remedy)


def _definitions(cluster: Cluster) -> None:
    unserved = [kind for kind in (kinds.TOPOLOGY, kinds.QUERY) if not cluster.serves(kind)]
    if unserved:
        remedy = "install the chart with crds.install=true, or apply its definitions"
        problems = [Problem(kind.resource, "is not served by the API server", remedy) for kind in unserved]
        raise Invalid("the operator's kinds are not defined", problems)
