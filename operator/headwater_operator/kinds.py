"""The kinds of objects that the operator touches, and where an API server has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from headwater_operator import names


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of one version. `group` is empty for those of the core."""

    group: str
    version: str
    name: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """As roles and people name it: `deployments.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def root(self) -> str:
        """Where the API server says what it serves of this group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def collection(self, namespace: str | None = None) -> str:
        """Of one namespace; of all without one, as also for kinds that are in none."""
        where = f"/namespaces/{quote(namespace, safe='')}" if self.namespaced and namespace else ""
        return f"{self.root()}{where}/{self.plural}"

    def object(self, namespace: str | None, name: str, subresource: str = "") -> str:
        if self.namespaced and not namespace:
            raise ValueError(f"a {self.name} is in a namespace")
        return f"{self.collection(namespace)}/{quote(name, safe='')}" + (
            f"/{subresource}" if subresource else ""
        )


TOPOLOGY = Kind(names.GROUP, names.VERSION, "AggregationTopology", names.TOPOLOGIES)
QUERY = Kind(names.GROUP, names.VERSION, "AggregationQuery", names.QUERIES)
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments")
STATEFUL_SET = Kind("apps", "v1", "StatefulSet", "statefulsets")
SERVICE = Kind("", "v1", "Service", "services")
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
SECRET = Kind("", "v1", "Secret", "secrets")
POD = Kind("", "v1", "Pod", "pods")
NODE = Kind("", "v1", "Node", "nodes", namespaced=False)
CLAIM = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
DISRUPTION_BUDGET = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
NETWORK_POLICY = Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts")
ROLE = Kind("rbac.authorization.k8s.io", "v1", "Role", "roles")
ROLE_BINDING = Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
# Of the core, not of events.k8s.io: only these carry the count that `kubectl get events` shows.
EVENT = Kind("", "v1", "Event", "events")
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")
# Where the Prometheus operator is installed.
POD_MONITOR = Kind("monitoring.coreos.com", "v1", "PodMonitor", "podmonitors")
PROMETHEUS_RULE = Kind("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules")
# Where cert-manager is installed.
CERTIFICATE = Kind("cert-manager.io", "v1", "Certificate", "certificates")
# Asked, never kept.
ACCESS_REVIEW = Kind(
    "authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False
)

KINDS = (
    TOPOLOGY,
    QUERY,
    DEPLOYMENT,
    STATEFUL_SET,
    SERVICE,
    CONFIG_MAP,
    SECRET,
    POD,
    NODE,
    CLAIM,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    SERVICE_ACCOUNT,
    ROLE,
    ROLE_BINDING,
    EVENT,
    LEASE,
    POD_MONITOR,
    PROMETHEUS_RULE,
    CERTIFICATE,
)
_BY_NAME: Mapping[tuple[str, str], Kind] = MappingProxyType(
    {(kind.api_version, kind.name): kind for kind in KINDS}
)


def kind_of(manifest: Mapping[str, Any]) -> Kind:
    """Of an object, by its `apiVersion` and `kind`."""
    named = str(manifest.get("apiVersion")), str(manifest.get("kind"))
    if named not in _BY_NAME:
        raise ValueError(f"{named[1]} of {named[0]} is no kind that the operator touches")
    return _BY_NAME[named]
