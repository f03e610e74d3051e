"""Who takes part: the nodes with their generations, and which child reads which source, as the log says."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headwater.machines.messages import Register
from headwater.machines.records import Assigned, Joined, Left


@dataclass(frozen=True, slots=True)
class Member:
    """A node; `live` until it says that it ends."""

    generation: int
    token: str
    child: bool
    address: str
    live: bool = True


class Members:
    """Changed by records of the log alone."""

    def __init__(self) -> None:
        self.nodes: dict[str, Member] = {}
        self._assigned: dict[str, str] = {}
        # The names of sources by the child that is to read them.
        self._read_by: dict[str, dict[str, None]] = {}

    def apply(self, body: Joined | Left | Assigned) -> None:
        if isinstance(body, Joined):
            self.nodes[body.node] = Member(body.generation, body.token, body.child, body.address)
        elif isinstance(body, Left):
            self.nodes[body.node] = replace(self.nodes[body.node], live=False)
        else:
            self.release(body.source)
            self._assigned[body.source] = body.child
            self._read_by.setdefault(body.child, {})[body.source] = None

    def release(self, source: str) -> None:
        """Nobody is to read a source any more."""
        before = self._assigned.pop(source, None)
        if before is not None:
            del self._read_by[before][source]
            if not self._read_by[before]:
                del self._read_by[before]

    def generation(self, node: str) -> int:
        """0: nobody of that name has registered."""
        found = self.nodes.get(node)
        return 0 if found is None else found.generation

    def holds(self, register: Register) -> bool:
        """Whether the process that asks is the one that is registered, and says the same."""
        found = self.nodes.get(register.node)
        return found is not None and (found.token, found.address) == (register.token, register.address)

    def is_live(self, node: str) -> bool:
        return node in self.nodes and self.nodes[node].live

    def address(self, node: str) -> str:
        found = self.nodes.get(node)
        return "" if found is None else found.address

    def assigned(self, source: str) -> str | None:
        """The child that is to read a source, by its name."""
        return self._assigned.get(source)

    def sources_of(self, child: str) -> list[str]:
        return list(self._read_by.get(child, ()))
