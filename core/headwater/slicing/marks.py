"""Follow the marks of one source: which rows lie in which window, and which windows end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headwater.prefix import KeyedMarks, Mark, MarkState
from headwater.windows import Punctuation


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows `[begin, end)` of a batch, between two marks, and the state of the marks there."""

    begin: int
    end: int
    states: KeyedMarks


@dataclass(frozen=True, slots=True)
class Ended:
    """A window of one source that has ended; `key` is None for all keys without a state of their own."""

    key: str | None
    ordinal: int
    start: int
    end: int


def walk(
    marks: Iterable[Mark],
    rows: int,
    states: KeyedMarks,
    window: Punctuation,
    *,
    keyed: bool,
    begin: int,
    end: int,
) -> tuple[list[Piece], list[Ended], KeyedMarks]:
    """Pieces, ended windows, and the state behind the batch. Marks outside `[begin, end)` do not act."""
    current = dict(states) or {None: MarkState()}
    pieces: list[Piece] = []
    ended: list[Ended] = []
    done = 0
    for mark in marks:
        if mark.name not in (window.start, window.ends_with) or not begin <= mark.ts < end:
            continue
        if mark.row > done:
            pieces.append(Piece(done, mark.row, dict(current)))
            done = mark.row
        if keyed and mark.key is not None:
            if mark.key not in current:
                default = current[None]
                current[mark.key] = MarkState(default.ordinal, default.opened, default.ordinal)
            touched: list[str | None] = [mark.key]
        else:
            touched = list(current)
        for key in touched:
            state = current[key]
            if mark.name == window.ends_with and state.opened is not None:
                ended.append(Ended(key, state.ordinal, state.opened, max(state.opened, mark.ts)))
                state = MarkState(state.ordinal + 1, None, state.since)
            if mark.name == window.start and state.opened is None:
                state = MarkState(state.ordinal, mark.ts, state.since)
            current[key] = state
    if rows > done:
        pieces.append(Piece(done, rows, dict(current)))
    return pieces, ended, current


def close_all(states: KeyedMarks, at: int) -> tuple[list[Ended], KeyedMarks]:
    """End every open window of a source that is given up, at its largest time."""
    ended = []
    after: dict[str | None, MarkState] = {}
    for key, state in states.items():
        if state.opened is not None:
            ended.append(Ended(key, state.ordinal, state.opened, max(state.opened, at)))
            state = MarkState(state.ordinal + 1, None, state.since)
        after[key] = state
    return ended, after
