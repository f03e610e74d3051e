"""The two manifests as values: `AggregationTopology`, the tree, and `AggregationQuery`, one query for it.

A document is what a YAML or JSON reader gives. It is judged whole: one error lists every problem, each with
its field as it stands in the manifest. What decides a result is required, never defaulted.
"""

from headwater.topology.manifest import (
    API_VERSION,
    QUERY_KIND,
    TOPOLOGY_KIND,
    archive_of,
    query_of,
    topology_of,
)
from headwater.topology.queries import Functions, no_functions, queries_of, query_document
from headwater.topology.sections import InvalidTopology
from headwater.topology.tree import (
    Archive,
    Ingest,
    Issuer,
    LayerPlacement,
    Limits,
    NodeClass,
    NodeSpec,
    Placement,
    Policies,
    Resources,
    RootSpec,
    Sink,
    SourceClass,
    Storage,
    Toleration,
    Topology,
)

__all__ = [
    "API_VERSION",
    "QUERY_KIND",
    "TOPOLOGY_KIND",
    "Archive",
    "Functions",
    "Ingest",
    "InvalidTopology",
    "Issuer",
    "LayerPlacement",
    "Limits",
    "NodeClass",
    "NodeSpec",
    "Placement",
    "Policies",
    "Resources",
    "RootSpec",
    "Sink",
    "SourceClass",
    "Storage",
    "Toleration",
    "Topology",
    "archive_of",
    "no_functions",
    "queries_of",
    "query_document",
    "query_of",
    "topology_of",
]
