"""What the root decides about sources: whoever judges its results has to know it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from headwater.prefix import KeyedMarks

Kind = Literal["admit", "idle", "resume", "retire", "start", "skip", "unskip"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What the root has decided about a source once its prefix had reached `after` (protocol, rule 14).

    `floor` raises its largest ts, `closes` ends its open mark windows and takes it out of their order,
    `ordinals` (by query) raise its next ordinals, `key_ordinals` (by query and key) those of keys that
    have some of their own; the record `skip` is never read, unless that is taken back (unskip). A start is
    about no source: its name is empty.
    """

    kind: Kind
    source: str
    after: int
    floor: int | None = None
    closes: bool = False
    ordinals: Mapping[str, int] = field(default_factory=dict)
    key_ordinals: Mapping[tuple[str, str], int] = field(default_factory=dict)
    skip: int | None = None


def told(standings: Iterable[tuple[str, KeyedMarks]]) -> tuple[dict[str, int], dict[tuple[str, str], int]]:
    """The ordinals of a decision, by query and by query and key, from where a source stands with each."""
    ordinals: dict[str, int] = {}
    by_key: dict[tuple[str, str], int] = {}
    for query, states in standings:
        for key, state in states.items():
            if key is None:
                ordinals[query] = state.ordinal
            else:
                by_key[query, key] = state.ordinal
    return ordinals, by_key
