"""The queries that a simulated run draws from, by name: all window types, measures and ways to merge."""

from __future__ import annotations

from headwater.queries import Query, Where
from headwater.windows import Punctuation, Session, Sliding, Tumbling, is_count

QUERIES = {
    query.id: query
    for query in (
        Query("tumbling", Tumbling(10), ["sum", "median"]),
        Query("shifted", Tumbling(14, offset=3), ["min", "stddev"], where=Where(above=2)),
        Query("keyed", Tumbling(12), ["max", "avg"], key_by="key"),
        Query("sliding", Sliding(15, 5), ["max", "first"], key_by="key"),
        Query("coarse", Sliding(40, 10), ["count", "last"]),
        Query("sites", Tumbling(20), ["sum", "count"], scope="local"),
        Query("empty", Tumbling(16), "count", emit_empty=True),
        Query("once", Tumbling(18), ["sum", "count"], deduplicate=True),
        Query("session", Session(6), ["count", "sum"]),
        Query("sessions", Session(9), "max", key_by="key"),
        Query("marks", Punctuation("S", "E"), "sum"),
        Query("ordered", Punctuation("S", "E", merge="order"), ["sum", "count"]),
        Query("bounded", Punctuation("S", "E", merge="bounds"), "count"),
        Query("overlapping", Punctuation("S", "E", merge="overlap"), "sum"),
        Query("counted", Tumbling(count=7), ["sum", "last"]),
        Query("gliding", Sliding(count=9, every=3), ["sum", "max"]),
    )
}

# What is added in the middle of a run; the how-manieth gives its id.
ADDED = (
    Tumbling(10),
    Sliding(15, 5),
    Tumbling(count=5),
    Session(7),
    Punctuation("S", "E", merge="order"),
)


def apart(query: Query) -> bool:
    """Count windows have positions of their own: each is a lane (protocol, rule 14)."""
    return is_count(query.window)
