"""Buckets: what Spark groups the log by. Each is a share of the windows, and each has a partition of its own.

Spark puts a row into the partition `pmod(hash(bucket), partitions)`: of the numbers 0 to 63, 64 partitions
get 37. So a bucket's id is not its number but the smallest one that Spark puts there.
"""

from __future__ import annotations

from functools import lru_cache
from zlib import crc32

_SEED = 42
_MASK = 0xFFFFFFFF


def ids(count: int) -> list[int]:
    """The id of each bucket: one for every partition."""
    found: dict[int, int] = {}
    number = 0
    while len(found) < count:
        found.setdefault(_hash(number) % count, number)
        number += 1
    return [found[partition] for partition in range(count)]


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> (32 - by)) & _MASK


def _hash(number: int) -> int:
    """What Spark's `hash` makes of an integer: Murmur3 of its four bytes, as a signed number."""
    word = _rotated((number & _MASK) * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    word = (_rotated(_SEED ^ word, 13) * 5 + 0xE6546B64) & _MASK
    # The length, and the last mixing.
    word ^= 4
    word = (word ^ word >> 16) * 0x85EBCA6B & _MASK
    word = (word ^ word >> 13) * 0xC2B2AE35 & _MASK
    word ^= word >> 16
    return word - (1 << 32) if word >> 31 else word


class Buckets:
    """Which bucket has what: keys are spread, whatever their group; what has no key goes by its group."""

    def __init__(self, count: int) -> None:
        self.ids = ids(count)
        self._spread = lru_cache(maxsize=1 << 18)(self._of)

    @property
    def home(self) -> int:
        """The bucket of the windows that are not shared."""
        return self.ids[0]

    def of(self, group: int, name: tuple[str, str | None]) -> int:
        site, key = name
        return self._spread(str(group) if key is None and not site else "", site, key)

    def _of(self, group: str, site: str, key: str | None) -> int:
        text = f"{group}\0{site}\0{'' if key is None else key}"
        return self.ids[crc32(text.encode("utf-8", "surrogatepass")) % len(self.ids)]
