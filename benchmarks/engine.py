"""The engine on one core, in one process: events in batches in, results out.

One source sends a million events in a second of event time. Each repeat takes a fresh root, warms its
state up with a few sparse events, then pushes prepared batches and takes the results about every 65,536
events. The references read the same arrays, cut into the same batches; pandas, polars and the Python
loop get them in one piece, ready in their own form.
"""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from time import perf_counter

import numpy as np
import numpy.typing as npt
import pandas as pd

from frame import Case, Clock, Reference, Row, Run, main, speeds
from headwater import Batch, Query, Root, Session, Sliding, Tumbling, Window

# One core for everybody; polars reads it when it is imported.
os.environ.setdefault("POLARS_MAX_THREADS", "1")
import polars as pl

SIZES = (65_536, 4_096, 256)
LARGE, MIDDLE, SMALL = SIZES
TAKEN = 65_536
UNIT = "M events/s"
SECOND = 1_000_000
MILLISECOND = 1_000
START = 1_700_000_000 * SECOND
SAMPLE = 200_000
# Seconds after which a repeat is broken off: its speed is known well enough.
PATIENCE = 1.0
COUNTED = 1_000_000
# Scotty, one thread, in memory, on a machine like the one the targets were set on (M events/s).
SCOTTY = {
    "tumbling": 37.0,
    "windows": 36.0,
    "sliding": 36.0,
    "session": 18.0,
    "count": 5.0,
    "median": 0.5,
}

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


# Events


@dataclass(frozen=True)
class Recipe:
    """Which events. `lead` seconds of sparse ones, `step` apart, fill the windows before time is taken."""

    size: int
    seconds: int
    lead: int = 2
    step: int = MILLISECOND
    keys: int = 0
    displaced: bool = False
    pauses: bool = False


@dataclass(frozen=True)
class Stream:
    """Events as arrays and as batches, and the batches that go before them."""

    ts: Ints
    value: Floats
    code: Codes | None
    keys: tuple[str, ...]
    lead: Sequence[Batch]
    batches: Sequence[Batch]

    def __len__(self) -> int:
        return len(self.ts)


@cache
def names(keys: int) -> tuple[str, ...]:
    return tuple(f"k{key}" for key in range(keys))


@cache
def columns(events: int, keys: int) -> tuple[Ints, Floats, Codes | None]:
    """Times in order with ties, one a microsecond on average; values; keys."""
    rng = np.random.default_rng(20)
    ts = START + np.sort(rng.integers(0, events, events))
    code = rng.integers(0, keys, events).astype(np.int32) if keys else None
    return ts, rng.standard_normal(events), code


@cache
def stream(recipe: Recipe) -> Stream:
    # One batch more than whole seconds, so that the last second is closed too.
    events = recipe.seconds * SECOND + recipe.size
    ts, value, code = columns(events, recipe.keys)
    if recipe.pauses:
        ts = ts + (ts - START) // SECOND * (3 * SECOND // 2)
    if recipe.displaced:
        rng = np.random.default_rng(5)
        ts = ts - np.where(rng.random(events) < 0.05, rng.integers(0, SECOND // 2, events), 0)
    keys = names(recipe.keys)
    before = np.arange(START - recipe.lead * SECOND, START, recipe.step)
    code_before = (np.arange(len(before)) % recipe.keys).astype(np.int32) if recipe.keys else None
    lead = batches(before, np.ones(len(before)), code_before, keys, TAKEN, 1)
    rest = batches(ts, value, code, keys, recipe.size, len(before) + 1)
    return Stream(ts, value, code, keys, lead, rest)


def batches(
    ts: Ints, value: Floats, code: Codes | None, keys: tuple[str, ...], size: int, first: int
) -> list[Batch]:
    return [
        Batch(
            "s",
            first + begin,
            ts[begin : begin + size],
            value[begin : begin + size],
            key=None if code is None else code[begin : begin + size],
            keys=keys,
        )
        for begin in range(0, len(ts), size)
    ]


# What runs


def engine(queries: Query | Sequence[Query], recipe: Recipe) -> Run:
    """The engine over a stream, from a fresh root."""
    listed = [queries] if isinstance(queries, Query) else queries

    def run() -> float:
        events = stream(recipe)
        root = Root(listed)
        root.admit("s", lateness=SECOND // 2 if recipe.displaced else 0)
        for batch in events.lead:
            root.push(batch)
        root.take()
        pushed = waiting = 0
        begin = perf_counter()
        for batch in events.batches:
            root.push(batch)
            waiting += len(batch)
            if waiting >= TAKEN:
                root.take()
                pushed += waiting
                waiting = 0
                if perf_counter() - begin > PATIENCE:
                    break
        root.take()
        took = perf_counter() - begin
        account = root.account("s")
        if account.late or account.rejected:
            raise RuntimeError(f"{account.late} events were late and {account.rejected} rejected")
        return (pushed + waiting) / took / 1e6

    return run


# Makes the work that is timed of a stream; making it is not.
Prepare = Callable[[Stream], Callable[[], object]]


def timed(recipe: Recipe, prepare: Prepare, events: int | None = None) -> Run:
    """A reference over the same stream, or over as many of its events as given."""

    @cache
    def prepared() -> Callable[[], object]:
        return prepare(stream(recipe))

    def run() -> float:
        work, size = prepared(), events or len(stream(recipe))
        begin = perf_counter()
        work()
        return size / (perf_counter() - begin) / 1e6

    return run


def numpy_sum(events: Stream) -> Callable[[], object]:
    values = [batch.value for batch in events.batches]

    def work() -> None:
        for value in values:
            value.sum()

    return work


def numpy_bincount(events: Stream) -> Callable[[], object]:
    columns = [(batch.key, batch.value) for batch in events.batches if batch.key is not None]
    keys = len(events.keys)

    def work() -> None:
        for code, value in columns:
            np.bincount(code, minlength=keys)
            np.bincount(code, value, minlength=keys)

    return work


def numpy_sort(events: Stream) -> Callable[[], object]:
    """Sorts the values of each second that is closed."""
    edges = np.arange(START, events.ts[-1], SECOND)
    places = np.searchsorted(events.ts, edges).tolist()
    values = [events.value[low:high] for low, high in pairwise(places)]

    def work() -> None:
        for value in values:
            np.sort(value)

    return work


# What a user would write


def pandas_tumbling(events: Stream) -> Callable[[], object]:
    frame = pd.DataFrame({"ts": events.ts, "value": events.value})
    return lambda: frame.groupby(frame["ts"] // SECOND)["value"].agg(["sum", "count"])


def pandas_keyed(events: Stream) -> Callable[[], object]:
    frame = pd.DataFrame({"ts": events.ts, "value": events.value, "key": events.code})
    return lambda: frame.groupby(["key", frame["ts"] // SECOND])["value"].agg(["sum", "count"])


def pandas_median(events: Stream) -> Callable[[], object]:
    frame = pd.DataFrame({"ts": events.ts, "value": events.value})
    return lambda: frame.groupby(frame["ts"] // SECOND)["value"].median()


def pandas_session(events: Stream) -> Callable[[], object]:
    frame = pd.DataFrame({"ts": events.ts, "value": events.value})
    return lambda: frame.groupby((frame["ts"].diff() >= SECOND).cumsum())["value"].agg(["sum", "count"])


def polars_tumbling(events: Stream) -> Callable[[], object]:
    frame = pl.DataFrame({"ts": events.ts, "value": events.value})
    return lambda: frame.group_by(pl.col("ts") // SECOND).agg(pl.col("value").sum(), pl.len())


def polars_keyed(events: Stream) -> Callable[[], object]:
    frame = pl.DataFrame({"ts": events.ts, "value": events.value, "key": events.code})
    return lambda: frame.group_by("key", pl.col("ts") // SECOND).agg(pl.col("value").sum(), pl.len())


def polars_median(events: Stream) -> Callable[[], object]:
    frame = pl.DataFrame({"ts": events.ts, "value": events.value})
    return lambda: frame.group_by(pl.col("ts") // SECOND).agg(pl.col("value").median())


def polars_session(events: Stream) -> Callable[[], object]:
    frame = pl.DataFrame({"ts": events.ts, "value": events.value})
    session = (pl.col("ts").diff() >= SECOND).fill_null(False).cum_sum().alias("session")
    return lambda: frame.group_by(session).agg(pl.col("value").sum(), pl.len())


def loop_tumbling(events: Stream) -> Callable[[], object]:
    rows = sample(events)

    def work() -> object:
        windows: dict[int, list[float]] = {}
        for ts, value, _ in rows:
            window = windows.setdefault(ts // SECOND, [0, 0.0])
            window[0] += 1
            window[1] += value
        return windows

    return work


def loop_keyed(events: Stream) -> Callable[[], object]:
    rows = sample(events)

    def work() -> object:
        windows: dict[tuple[int, int], list[float]] = {}
        for ts, value, key in rows:
            window = windows.setdefault((ts // SECOND, key), [0, 0.0])
            window[0] += 1
            window[1] += value
        return windows

    return work


def loop_median(events: Stream) -> Callable[[], object]:
    rows = sample(events)

    def work() -> object:
        windows: dict[int, list[float]] = defaultdict(list)
        for ts, value, _ in rows:
            windows[ts // SECOND].append(value)
        return [(sorted(values)[(len(values) - 1) // 2 :])[:2] for values in windows.values()]

    return work


def loop_session(events: Stream) -> Callable[[], object]:
    rows = sample(events)

    def work() -> object:
        closed: list[tuple[int, float]] = []
        last, count, total = rows[0][0], 0, 0.0
        for ts, value, _ in rows:
            if ts - last >= SECOND:
                closed.append((count, total))
                count, total = 0, 0.0
            last = ts
            count += 1
            total += value
        return [*closed, (count, total)]

    return work


def sample(events: Stream) -> list[tuple[int, float, int]]:
    code = [0] * SAMPLE if events.code is None else events.code[:SAMPLE].tolist()
    return list(zip(events.ts[:SAMPLE].tolist(), events.value[:SAMPLE].tolist(), code, strict=True))


def users(recipe: Recipe, pandas: Prepare, polars: Prepare, loop: Prepare) -> list[Reference]:
    """The columns beside the engine that do not come in batches: only once, at the largest."""
    if recipe.size != LARGE:
        return []
    return [
        Reference("pandas", timed(recipe, pandas)),
        Reference("polars", timed(recipe, polars)),
        Reference("Python loop", timed(recipe, loop, SAMPLE)),
    ]


def scotty(size: int, row: str) -> list[Reference]:
    return [Reference("Scotty", SCOTTY[row], ">= 10")] if size == LARGE else []


# Queries


def query(window: Window, *aggregates: str, keyed: bool = False) -> Query:
    return Query("q", window, aggregates or ("sum", "count"), key_by="key" if keyed else None)


def windows_of(lengths: Iterable[int]) -> list[Query]:
    return [Query(f"q{place}", Tumbling(length), ("sum", "count")) for place, length in enumerate(lengths)]


ONE = query(Tumbling("1s"))
WHOLE_SECONDS = windows_of(range(SECOND, 1001 * SECOND, SECOND))
MILLISECONDS = windows_of(range(MILLISECOND, 1001 * MILLISECOND, MILLISECOND))
RANDOM = windows_of(
    (np.random.default_rng(1).choice(np.arange(1_000, 1_000_001), 1000, replace=False) * MILLISECOND).tolist()
)


# Rows

Targets = dict[int, str]


def cases(quick: bool) -> list[Case]:
    return [*time_cases(quick), *memory_cases(quick)]


def recipes(quick: bool, sizes: Sequence[int] = SIZES) -> Iterator[tuple[int, Recipe]]:
    """Fewer events in small batches, which are slower, so that every repeat takes about as long."""
    seconds = {LARGE: 2, MIDDLE: 1, SMALL: 1} if quick else {LARGE: 4, MIDDLE: 2, SMALL: 2}
    for size in sizes:
        yield size, Recipe(size, seconds[size])


def time_cases(quick: bool) -> Iterator[Case]:
    yield from keys_cases(quick)
    yield from windows_cases(quick)
    yield from sliding_cases(quick)
    yield from session_cases(quick)
    yield from holistic_cases(quick)
    yield from displaced_cases(quick)


def keys_cases(quick: bool) -> Iterator[Case]:
    targets = {LARGE: ">= 1/4", MIDDLE: ">= 1/4", SMALL: ">= 1/8"}
    for size, recipe in recipes(quick):
        yield speeds(
            f"tumbling 1 s, {size}",
            UNIT,
            engine(ONE, recipe),
            [
                Reference("numpy sum", timed(recipe, numpy_sum), targets[size]),
                *scotty(size, "tumbling"),
                *users(recipe, pandas_tumbling, polars_tumbling, loop_tumbling),
            ],
        )
    keyed = query(Tumbling("1s"), keyed=True)
    targets = {LARGE: ">= 1/2", MIDDLE: ">= 1/3", SMALL: ">= 1/5"}
    for size, recipe in recipes(quick):
        recipe = replace(recipe, keys=1_000)
        yield speeds(
            f"1000 keys, {size}",
            UNIT,
            engine(keyed, recipe),
            [
                Reference("numpy bincount x 2", timed(recipe, numpy_bincount), targets[size]),
                *users(recipe, pandas_keyed, polars_keyed, loop_keyed),
            ],
        )
    targets = {LARGE: ">= 100 M", MIDDLE: ">= 60 M"}
    for size, recipe in recipes(quick, (LARGE, MIDDLE)):
        recipe = replace(recipe, keys=100_000, lead=1, step=10)
        yield speeds(
            f"100000 keys, {size}",
            UNIT,
            engine(keyed, recipe),
            [Reference("numpy bincount x 2", timed(recipe, numpy_bincount))],
            targets[size],
        )


def windows_cases(quick: bool) -> Iterator[Case]:
    spread = {LARGE: "<= 1.75x", MIDDLE: "<= 3x"}
    sets: list[tuple[str, list[Query], Targets, int, int]] = [
        ("1000 windows of 1..1000 s", WHOLE_SECONDS, dict.fromkeys(SIZES, "<= 1.5x"), 1000, SECOND // 10),
        ("1000 windows of 1..1000 ms", MILLISECONDS, spread, 2, MILLISECOND),
        ("1000 windows, random ms to 1000 s", RANDOM, spread, 1000, SECOND // 10),
    ]
    for row, queries, targets, lead, step in sets:
        for size, recipe in recipes(quick):
            recipe = replace(recipe, lead=lead, step=step)
            yield speeds(
                f"{row}, {size}",
                UNIT,
                engine(queries, recipe),
                [
                    Reference("one window", engine(ONE, recipe), targets.get(size)),
                    *(scotty(size, "windows") if queries is WHOLE_SECONDS else ()),
                ],
            )


def sliding_cases(quick: bool) -> Iterator[Case]:
    slides: list[tuple[str, Targets]] = [
        ("1 s", {LARGE: "<= 1.2x", MIDDLE: "<= 1.2x", SMALL: "<= 1.3x"}),
        ("1 ms", {LARGE: "<= 2x", MIDDLE: "<= 3.5x", SMALL: "<= 2.5x"}),
    ]
    for slide, targets in slides:
        for function in ("sum", "max"):
            for size, recipe in recipes(quick):
                recipe = replace(recipe, lead=60)
                yield speeds(
                    f"sliding 60 s / {slide}, {function}, {size}",
                    UNIT,
                    engine(query(Sliding("60s", slide.replace(" ", "")), function), recipe),
                    [
                        Reference(
                            "tumbling 1 s", engine(query(Tumbling("1s"), function), recipe), targets[size]
                        ),
                        *(scotty(size, "sliding") if (slide, function) == ("1 s", "sum") else ()),
                    ],
                )


def session_cases(quick: bool) -> Iterator[Case]:
    session = query(Session("1s"))
    for row, pauses in (("session, never closing", False), ("session, a pause every second", True)):
        for size, recipe in recipes(quick):
            recipe = replace(recipe, pauses=pauses)
            yield speeds(
                f"{row}, {size}",
                UNIT,
                engine(session, recipe),
                [
                    Reference("tumbling 1 s", engine(ONE, recipe), ">= 1/2"),
                    *scotty(size, "session"),
                    *(users(recipe, pandas_session, polars_session, loop_session) if pauses else ()),
                ],
            )
    keyed = query(Session("1s"), keyed=True)
    for size, recipe in recipes(quick):
        recipe = replace(recipe, keys=1_000)
        yield speeds(
            f"keyed session, 1000 keys, {size}",
            UNIT,
            engine(keyed, recipe),
            [Reference("tumbling 1 s, 1000 keys", engine(query(Tumbling("1s"), keyed=True), recipe))],
            ">= 50 M" if size == LARGE else None,
        )


def holistic_cases(quick: bool) -> Iterator[Case]:
    median = query(Tumbling("1s"), "median")
    for size, recipe in recipes(quick):
        limited = size != SMALL
        yield speeds(
            f"median, {size}",
            UNIT,
            engine(median, recipe),
            [
                Reference(
                    "numpy sort",
                    timed(recipe, numpy_sort, recipe.seconds * SECOND),
                    "<= 1.5x" if limited else None,
                ),
                *scotty(size, "median"),
                *users(recipe, pandas_median, polars_median, loop_median),
            ],
            None if limited else ">= 25 M",
        )
    targets = {LARGE: ">= 300 M", MIDDLE: ">= 150 M", SMALL: ">= 25 M"}
    for size, recipe in recipes(quick):
        yield speeds(
            f"count window of 1 M, {size}",
            UNIT,
            engine(query(Tumbling(count=COUNTED)), recipe),
            [Reference("numpy sum", timed(recipe, numpy_sum)), *scotty(size, "count")],
            targets[size],
        )


def displaced_cases(quick: bool) -> Iterator[Case]:
    ((_, recipe),) = recipes(quick, (LARGE,))
    rows: list[tuple[str, Query, int, str | None, str | None]] = [
        ("tumbling", ONE, 0, ">= 1/5", None),
        ("1000 keys", query(Tumbling("1s"), keyed=True), 1_000, ">= 1/3", None),
        ("count window of 1 M", query(Tumbling(count=COUNTED)), 0, None, ">= 40 M"),
    ]
    for row, asked, keys, ratio, absolute in rows:
        ordered = replace(recipe, keys=keys)
        yield speeds(
            f"5 % displaced, {row}, {LARGE}",
            UNIT,
            engine(asked, replace(ordered, displaced=True)),
            [Reference("in order", engine(asked, ordered), ratio)],
            absolute,
        )


# Memory: an hour of event time in batches of ten seconds

EVERY = 10
MINUTES = (10, 60)


def memory_cases(quick: bool) -> Iterator[Case]:
    rate = 20 if quick else 200
    rows: list[tuple[str, Query, float]] = [
        ("tumbling 1 s, 1000 keys", query(Tumbling("1s"), keyed=True), 0.0),
        ("sliding 60 s / 1 s, 1000 keys", query(Sliding("60s", "1s"), keyed=True), 0.0),
        ("sliding 60 s / 10 ms, sum and max", query(Sliding("60s", "10ms"), "sum", "max"), 0.0),
        ("session, 1000 keys", query(Session("10s"), keyed=True), 0.0),
        ("median", query(Tumbling("10s"), "median"), 0.0),
        ("count window", query(Tumbling(count=30 * rate)), 0.0),
        ("tumbling 1 s, 1 % late", ONE, 0.01),
    ]
    for row, asked, late in rows:
        yield Case(f"memory, {row}", partial(memory, f"memory, {row}", asked, rate, late))


def memory(row: str, asked: Query, rate: int, late: float, clock: Clock) -> Iterator[Row]:
    """What is held after ten minutes and after an hour of event time: the most in the minute before."""
    keys = names(1_000)
    # By minute. Made beforehand, so that what is traced is the engine's alone.
    held, traced = dict.fromkeys(MINUTES, 0), dict.fromkeys(MINUTES, 0)
    tracemalloc.start()
    try:
        rng = np.random.default_rng(3)
        root = Root([asked])
        root.admit("s", lateness=0)
        for step in range(max(MINUTES) * 60 // EVERY):
            root.push(low_rate(rng, step, rate * EVERY, late, keys))
            root.take()
            minute = 1 + step * EVERY // 60
            if minute in MINUTES:
                gc.collect()
                held[minute] = max(held[minute], root.held)
                traced[minute] = max(traced[minute], tracemalloc.get_traced_memory()[0] >> 10)
    finally:
        tracemalloc.stop()
    for figures, unit in ((held, "cells"), (traced, "KiB")):
        early, now = figures.values()
        yield Row(row, now, unit, "after 10 minutes", now / early, "<= 1.1x", early)


def low_rate(rng: np.random.Generator, step: int, events: int, late: float, keys: tuple[str, ...]) -> Batch:
    """Columns made as they are sent: a view of them that the engine keeps is its memory too."""
    ts = START + step * EVERY * SECOND + np.sort(rng.integers(0, EVERY * SECOND, events))
    ts[rng.random(events) < late] -= EVERY * SECOND
    code = rng.integers(0, len(keys), events).astype(np.int32)
    return Batch("s", 1 + step * events, ts, rng.standard_normal(events), key=code, keys=keys)


if __name__ == "__main__":
    main("engine", cases, "The engine against bare numpy, pandas, polars and a Python loop.")
