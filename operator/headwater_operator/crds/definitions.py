"""Both definitions, as an API server takes them."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.topology.manifest import API_VERSION, NAME_LIMIT, QUERY_KIND, TOPOLOGY_KIND
from headwater.topology.sections import SERVICE
from headwater_operator.crds import cel, query, status
from headwater_operator.crds.fields import Rule, Schema, mapping, service
from headwater_operator.crds.topology import spec

GROUP, VERSION = API_VERSION.split("/")

_API_VERSION = "The version of this kind, headwater.dev/v1alpha1."
_KIND = "What this object is."


def definitions() -> dict[str, Schema]:
    """By the name of the resource."""
    name = cel.quoted(f"^{SERVICE.pattern}$")
    topology = _definition(
        TOPOLOGY_KIND,
        "aggregationtopologies",
        ("aggtopo",),
        "A tree of aggregation pods, from the devices to the cloud, and the queries that it computes.",
        spec(),
        status.of_topology(),
        [
            _column("Layers", ".status.widths", "The widths of the layers, children first."),
            _column("Nodes", ".status.nodes", "How many nodes are planned.", "integer"),
            _column("Ready", _status_of("Ready"), "Whether all of it works."),
            _column("Sources", ".status.sources", "How many sources send.", "integer"),
            _column("Rate", ".status.rate", "Events a second.", "number"),
            _column("Lag", ".status.lag", "How far results are behind the events or the clock."),
            _column("Reason", ".status.reason", "In a word, what is to be known of it."),
            _column("Root", ".status.root", "How the root is.", wide=True),
            _column("Planned", _status_of("Planned"), "Whether there is a plan for the spec.", wide=True),
            _column("Degraded", _status_of("Degraded"), "Whether something is wrong.", wide=True),
            _column("Version", ".status.version", "The release of the operator.", wide=True),
        ],
        Rule(
            f"self.metadata.name.size() <= {NAME_LIMIT} && self.metadata.name.matches({name})",
            f'must have a name of 1 to {NAME_LIMIT} of the characters a-z, 0-9 and "-", by which nodes are '
            "named",
        ),
    )
    asked = mapping(
        "What is asked for.",
        {
            "topologyRef": service("The topology that computes it, in the same namespace.", NAME_LIMIT),
            **query.fields(),
        },
        ("topologyRef", *query.REQUIRED),
        *query.rules(),
    )
    one = _definition(
        QUERY_KIND,
        "aggregationqueries",
        ("aggq",),
        "One query for a topology; its name is the id of the query.",
        asked,
        status.of_query(),
        [
            _column("Topology", ".spec.topologyRef", "The topology that computes it."),
            _column("Accepted", '.status.conditions[?(@.type=="Accepted")].status', "Whether it is."),
            _column("Reason", '.status.conditions[?(@.type=="Accepted")].reason', "Why it is, or is not."),
            _column("Computed", ".status.computed", "Where."),
            _column("Group", ".status.group", "Queries with the same share one pass over the events."),
            _column("Lag", ".status.lag", "How far its results are behind the events."),
        ],
    )
    return {found["spec"]["names"]["plural"]: found for found in (topology, one)}


def _column(name: str, path: str, about: str, kind: str = "string", *, wide: bool = False) -> Schema:
    """A column of `kubectl get`; a wide one only with `--output wide`."""
    found = {"name": name, "type": kind, "description": about, "jsonPath": path}
    return {**found, "priority": 1} if wide else found


def _status_of(condition: str) -> str:
    return f'.status.conditions[?(@.type=="{condition}")].status'


def _definition(
    kind: str,
    plural: str,
    short: Sequence[str],
    about: str,
    asked: Schema,
    reported: Schema,
    columns: list[Schema],
    *rules: Rule,
) -> Schema:
    schema = mapping(
        about,
        {
            "apiVersion": {"description": _API_VERSION, "type": "string"},
            "kind": {"description": _KIND, "type": "string"},
            "metadata": {"type": "object"},
            "spec": asked,
            "status": reported,
        },
        ("spec",),
        *rules,
    )
    age = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [*columns, age],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        # Topologies outlive the release that brought their kind.
        "metadata": {"name": f"{plural}.{GROUP}", "annotations": {"helm.sh/resource-policy": "keep"}},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": list(short),
                "categories": ["headwater"],
            },
            "scope": "Namespaced",
            "versions": [version],
        },
    }
