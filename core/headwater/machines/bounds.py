"""The bounds and times of a node."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.machines.lanes import Apart, shared


@dataclass(frozen=True, slots=True)
class Settings:
    """Bounds of a node. Times in microseconds of the caller's clock; `horizon` is of event time.

    `held_bytes` bounds the columns that a child keeps; whoever is waited for may have as much again.
    """

    root: str = "root"
    under_way: int = 4
    held_bytes: int = 32 * 2**20
    # Bytes that a batch gathers at most, but for one from below that is larger; so at every layer.
    batch_bytes: int = 4 * 2**20
    # Events that are forwarded one by one, and wait for each other at most.
    rows: int = 32_768
    horizon: int = 3_600_000_000
    patience: int = 3_000_000
    # How long an answer is waited for before something is said again, and how long a batch waits for more.
    retry: int = 1_000_000
    least: int = 5_000
    # How long a batch waits where nothing but the edge of a window can make it urgent.
    linger: int = 1_000_000
    # How often the parent is told of every source, in place of nothing new.
    thorough: int = 3_000_000
    silence: int = 60_000_000
    # For how long is remembered what nobody below speaks of.
    memory: int = 600_000_000
    repeat: int = 2_000_000
    apart: Apart = shared
