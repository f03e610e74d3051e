"""Exact window aggregation over streams of events: one pass for all queries, in one process or a tree.

    from headwater import Query, Session, Sliding, aggregate

    results = aggregate(events, [Query("temp", Sliding("10s", "1s"), ["avg", "max"], key_by="machine"),
                                 Query("visits", Session(gap="30s"), "count")])

`aggregate` is for tables that are there already. `Root` takes batches of events, or partials that
`Node`s have made of them, and gives results as they become final.
"""

from headwater.aggregates import UserDefined
from headwater.changes import Change
from headwater.decisions import Decision
from headwater.degraded import Degraded
from headwater.errors import (
    DoesNotFit,
    FunctionFailed,
    HeadwaterError,
    Invalid,
    OutOfSequence,
    Problem,
    StaleVersion,
    TooFarAhead,
)
from headwater.events import Batch
from headwater.node import Node
from headwater.partials import Partial
from headwater.prefix import Prefix
from headwater.queries import Query, Where
from headwater.results import Result, Results
from headwater.root import Root
from headwater.tables import aggregate
from headwater.windows import Punctuation, Session, Sliding, Tumbling, Window

__all__ = [
    "Batch",
    "Change",
    "Decision",
    "Degraded",
    "DoesNotFit",
    "FunctionFailed",
    "HeadwaterError",
    "Invalid",
    "Node",
    "OutOfSequence",
    "Partial",
    "Prefix",
    "Problem",
    "Punctuation",
    "Query",
    "Result",
    "Results",
    "Root",
    "Session",
    "Sliding",
    "StaleVersion",
    "TooFarAhead",
    "Tumbling",
    "UserDefined",
    "Where",
    "Window",
    "aggregate",
]
