"""Which queries have nodes forward events or values instead of partial aggregates."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.queries import EVERYTHING, Query


def forwarding(queries: Iterable[Query]) -> dict[str, str]:
    """By query, what is forwarded and why; nothing of queries that are aggregated on the way."""
    found = {}
    for query in queries:
        if query.central:
            found[query.id] = f"every event to the root: {query.central}"
            continue
        exact = [each.name for each in query.aggregates if "values" in each.operators]
        if exact:
            selected = "every value" if query.where == EVERYTHING else "every value that it selects"
            found[query.id] = f"{selected}: {', '.join(exact)} cannot be exact with less"
    return found
