"""Which children a source cannot reach, as it has said: it is not assigned to them again for nothing."""

from __future__ import annotations

from headwater.machines.members import Members


class Reachability:
    """By source and child, until the child comes back as another process or at another address.

    Nothing of it is logged: after a restart of the root each source says again what it cannot reach.
    """

    def __init__(self, members: Members) -> None:
        self._members = members
        # With the generation and the address at which the child could not be reached.
        self._unreachable: dict[str, dict[str, tuple[int, str]]] = {}

    def note_unreachable(self, source: str, child: str) -> None:
        self._unreachable.setdefault(source, {})[child] = self._identity(child)

    def note_reached(self, source: str, child: str) -> None:
        found = self._unreachable.get(source)
        if found is not None and found.pop(child, None) is not None and not found:
            del self._unreachable[source]

    def can_reach(self, source: str, child: str) -> bool:
        """False where the source has tried in vain."""
        found = self._unreachable.get(source)
        return found is None or found.get(child) != self._identity(child)

    def _identity(self, child: str) -> tuple[int, str]:
        return self._members.generation(child), self._members.address(child)
