"""Keys of a source's events, where the queries of a tree compute by one."""

from __future__ import annotations

from typing import Literal

import numpy as np

from headwater.errors import InvalidEvents, Problem
from headwater_source.columns import Events

# What is known of the events that a source has accepted so far: `none` of them had a key; `some` had one;
# none had one, and it is `optional`: they were accepted where no query computed by key.
Keys = Literal["none", "optional", "some"]
EMPTY_KEY = "no event of this source has had a key"
# Of rows that were accepted before it was known that they need a key.
UNANSWERED = (
    "events of this source were accepted without a key before the root had answered: "
    "they count under one empty key, and are not sent again"
)
REMEDY = "give keys= with the events, or without_keys=True to the source if one empty key for all is meant"


class MissingKeys(InvalidEvents):
    """Events without a key, of a source that has never had one, in a tree whose queries compute by key."""

    def __init__(self, name: str, key_by: str, remedy: str = REMEDY) -> None:
        self.name, self.key_by = name, key_by
        message = f"are missing: {queries_of(key_by)}, and {EMPTY_KEY}"
        what = f"the events of source {name!r} cannot be taken"
        super().__init__(what, [Problem("keys", message, remedy)])


def queries_of(key_by: str) -> str:
    return f"queries of this tree compute by key (keyBy: {key_by})"


def has_key(events: Events) -> bool:
    """Whether any of these has a key that is not empty."""
    key = events.key
    if key is None or not any(key.names):
        return False
    named = [code for code, name in enumerate(key.names) if name]
    return bool(np.isin(key.codes, named).any())


def has_values(events: Events) -> bool:
    """Whether any of these has a value: heartbeats and marks alone are of no key."""
    return bool(len(events)) and (events.bare is None or not events.bare.all())
