"""All queries of a topology: its own and those of objects for it; one that cannot be taken fails alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headwater.errors import Invalid, Problem
from headwater.queries import Query
from headwater.topology import (
    API_VERSION,
    QUERY_KIND,
    Functions,
    Topology,
    no_functions,
    queries_of,
    query_document,
    query_of,
)

Document = Mapping[str, Any]
# What a root takes: bytes of one query, and queries.
DOCUMENT_BYTES, QUERIES_LIMIT = 50_000, 4_096


@dataclass(frozen=True, slots=True)
class Asked:
    """What there is to be computed, and which objects cannot be, and why."""

    queries: tuple[Query, ...]
    documents: tuple[str, ...]
    # Objects that are computed, and those that are not, by name.
    taken: Mapping[str, Document]
    refused: Mapping[str, tuple[Document, tuple[Problem, ...]]]


@dataclass(frozen=True, slots=True)
class Computed:
    """What is computed already where there is no plan for all that is asked for, and why there is none."""

    problems: tuple[Problem, ...]
    # By id, as in the list of a manifest; None: the root does not say, and what was told of objects holds.
    documents: Mapping[str, str] | None
    functions: Functions = no_functions

    def has(self, query: Query, document: Document) -> bool:
        if self.documents is None:
            return _is_accepted(document)
        if query.id not in self.documents:
            return False
        return query_document(query) == query_document(self.query(query.id))

    def query(self, id: str) -> Query:
        assert self.documents is not None
        (found,) = queries_of([json.loads(self.documents[id])], self.functions)
        return found


def asked_of(
    topology: Topology,
    objects: Iterable[Document],
    computed: Computed | None = None,
    functions: Functions = no_functions,
) -> Asked:
    """`objects` are AggregationQueries; those of other topologies are left out. The oldest of an id holds.
    With `computed`, those that are computed at the root, and so decide about the plan, are refused unless
    they are among these; one that was changed goes on as it stands there."""
    queries = list(topology.queries)
    documents = [_written(query_document(query)) for query in queries]
    ids = {query.id for query in queries}
    taken: dict[str, Document] = {}
    refused: dict[str, tuple[Document, tuple[Problem, ...]]] = {}
    for each in sorted(objects, key=_age):
        metadata = each["metadata"]
        if (each.get("spec") or {}).get("topologyRef") != topology.name or metadata.get("deletionTimestamp"):
            continue
        try:
            (_, query), document = query_of(_bare(each), functions), _written(_bare(each))
            if len(document) > DOCUMENT_BYTES or len(queries) >= QUERIES_LIMIT:
                said = f"is longer than {DOCUMENT_BYTES} bytes, or one of more than {QUERIES_LIMIT}"
                raise Invalid("", [Problem("spec", said, "make it shorter, or remove others")])
            if query.id in ids:
                said = f"{query.id!r} is a query of the topology itself"
                raise Invalid("", [Problem("metadata.name", said, "give the object another name")])
            if computed is not None and query.central and not computed.has(query, each):
                refused[metadata["name"]] = (each, (_unplanned(query), *computed.problems))
                if query.id not in (computed.documents or {}):
                    continue
                query, document = computed.query(query.id), (computed.documents or {})[query.id]
            else:
                taken[metadata["name"]] = each
        except Invalid as error:
            refused[metadata["name"]] = (each, tuple(error.problems))
            continue
        ids.add(query.id)
        queries.append(query)
        documents.append(document)
    return Asked(tuple(queries), tuple(documents), taken, refused)


def _unplanned(query: Query) -> Problem:
    said = f"needs every event at the root ({query.central}), and there is no plan for that"
    return Problem("spec", said, "make room as follows, or ask for something else")


def _is_accepted(document: Document) -> bool:
    """As it is now."""
    generation = document["metadata"].get("generation")
    conditions = (document.get("status") or {}).get("conditions") or ()
    return any(
        (each["type"], each["status"], each.get("observedGeneration")) == ("Accepted", "True", generation)
        for each in conditions
    )


def _bare(document: Document) -> dict[str, Any]:
    """What of an object the query follows from: neither labels nor anything that the API server writes."""
    return {
        "apiVersion": API_VERSION,
        "kind": QUERY_KIND,
        "metadata": {"name": document["metadata"]["name"]},
        "spec": document["spec"],
    }


def _written(document: Any) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def _age(document: Document) -> tuple[str, str]:
    metadata = document["metadata"]
    return metadata.get("creationTimestamp") or "", metadata["name"]
