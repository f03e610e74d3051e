"""The keys of one group by code: key, site, or both, as far as the group tells them apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from headwater.errors import InvalidPartial
from headwater.names import Names
from headwater.rows import Array, Ints

REMEMBERED = 256


class Space:
    """Codes for `(site, key)`; what the group does not tell apart is empty or None."""

    def __init__(self, *, keyed: bool, by_site: bool) -> None:
        self.keyed, self.by_site = keyed, by_site
        # Whether everything is one key.
        self.plain = not (keyed or by_site)
        self.names: Names[tuple[str, str | None]] = Names()
        # Dictionaries of batches that were translated before; holding them keeps their ids theirs.
        self._known: dict[tuple[int, str], tuple[tuple[str, ...], Array | None]] = {}

    def __getstate__(self) -> dict[str, Any]:
        # An id means nothing elsewhere.
        return {**self.__dict__, "_known": {}}

    def __len__(self) -> int:
        return len(self.names.listed)

    def codes(self, given: Array | None, keys: tuple[str, ...], site: str, rows: int) -> Array:
        """The group's codes for rows of one source."""
        place = site if self.by_site else ""
        if not self.keyed or given is None:
            code = self.names.code((place, "" if self.keyed else None))
            return np.full(rows, code, np.intp)
        known = self._known.get((id(keys), place))
        if known is None or known[0] is not keys:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            table = self.names.codes([(place, key) for key in keys])
            same = bool((table == np.arange(len(table))).all())
            known = self._known[id(keys), place] = (keys, None if same else table)
        return given.astype(np.intp) if known[1] is None else known[1][given]

    def mixed_codes(
        self, given: Array | None, keys: list[str], sites: Array | None, site_names: list[str], rows: int
    ) -> Array:
        """The group's codes for rows of several sources; `sites` holds a site for each row, if it matters."""
        key = given if self.keyed and given is not None else np.zeros(rows, np.int64)
        site = sites if self.by_site and sites is not None else np.zeros(rows, np.int64)
        pairs, inverse = np.unique(site * max(len(keys), 1) + key, return_inverse=True)
        table = self.names.codes(
            [
                (
                    site_names[pair // max(len(keys), 1)] if self.by_site else "",
                    (keys[pair % len(keys)] if given is not None else "") if self.keyed else None,
                )
                for pair in pairs.tolist()
            ]
        )
        return table[inverse]

    def check(self, names: list[tuple[str, str | None]]) -> None:
        """Raise if these cannot be another node's names in this group."""
        if not all((key is not None) == self.keyed and (self.by_site or not site) for site, key in names):
            what = "a key" if self.keyed else "no key"
            where = "a site" if self.by_site else "no site"
            raise InvalidPartial("names", "are not those of the group", f"send {what} and {where} for each")

    def translated(self, names: list[tuple[str, str | None]]) -> Ints:
        """Another node's codes as ours."""
        return self.names.codes(names)
