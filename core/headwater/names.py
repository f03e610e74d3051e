"""Names by small codes: columns hold codes, and only the edges of the system see strings."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

import numpy as np

from headwater.rows import Array

Name = TypeVar("Name", bound=Hashable)


class Names(Generic[Name]):
    """A dictionary that only grows: the first name is code 0, the next code 1, and so on."""

    def __init__(self) -> None:
        self.listed: list[Name] = []
        self._codes: dict[Name, int] = {}

    def __len__(self) -> int:
        return len(self.listed)

    def code(self, name: Name) -> int:
        found = self._codes.get(name)
        if found is None:
            found = self._codes[name] = len(self.listed)
            self.listed.append(name)
        return found

    def codes(self, names: Sequence[Name]) -> Array:
        if not self.listed and len(set(names)) == len(names):
            # The first dictionary, often the only one, is taken as it is.
            self.listed = list(names)
            self._codes = dict(zip(self.listed, range(len(self.listed)), strict=True))
            return np.arange(len(self.listed))
        return np.fromiter((self.code(name) for name in names), np.int64, len(names))
