"""Which children a source cannot reach, as it has said: it is not assigned to them again for nothing."""

from __future__ import annotations

from headwater.machines.members import Members


class Reachability:
    """By source and child, until the child comes back as another process or at another address, or the source
    says that it can reach what it could not.

    Nothing of it is logged: after a restart of the root each source says again what it cannot reach.
    """

    def __init__(self, members: Members) -> None:
        self._members = members
        # With the generation and the address at which the child could not be reached.
        self._unreachable: dict[str, dict[str, tuple[int, str]]] = {}

    def update(self, source: str, avoid: str, via: str) -> None:
        """Take what a hello says: the child that the source cannot reach, and the one that has passed the
        hello on. Without the former it can reach all of which it has said otherwise."""
        found = self._unreachable.pop(source, None) or {}
        if not avoid:
            return
        found = {child: identity for child, identity in found.items() if identity == self._identity(child)}
        found.pop(via, None)
        if avoid in self._members.nodes:
            found[avoid] = self._identity(avoid)
        if found:
            self._unreachable[source] = found

    def unreachable(self, source: str) -> frozenset[str]:
        """The children that the source has tried in vain."""
        found = self._unreachable.get(source)
        if not found:
            return frozenset()
        return frozenset(child for child, identity in found.items() if identity == self._identity(child))

    def _identity(self, child: str) -> tuple[int, str]:
        return self._members.generation(child), self._members.address(child)
