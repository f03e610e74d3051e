"""Who takes part: the nodes with their generations, and which child reads which source, as the log says."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headwater.machines.messages import Register
from headwater.machines.records import Assigned, Joined, Left, Planned, Specified


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
        # How often sources were assigned or released.
        self.turns = 0
        # What was last applied, if anything was, and the nodes that are to take part by it.
        self.spec: Specified | None = None
        self.planned: dict[str, Planned] = {}
        # What sources of a site and a lateness send, and what others do.
        self._rates: dict[tuple[str, int], float] = {}
        self._usual = 1.0

    def apply(self, body: Joined | Left | Assigned | Specified) -> None:
        if isinstance(body, Joined):
            self.nodes[body.node] = Member(body.generation, body.token, body.child, body.address)
        elif isinstance(body, Left):
            self.nodes[body.node] = replace(self.nodes[body.node], live=False)
        elif isinstance(body, Specified):
            self._specified(body)
        else:
            self._part(body.source)
            self.turns += 1
            self._assigned[body.source] = body.child
            self._read_by.setdefault(body.child, {})[body.source] = None

    def _specified(self, body: Specified) -> None:
        self.spec = body
        self.planned = {each.node: each for each in body.nodes}
        # Of several classes with one site and lateness, the largest rate is on the safe side.
        self._rates = {}
        for each in body.rates:
            key = (each.site, each.lateness)
            self._rates[key] = max(each.rate, self._rates.get(key, 0.0))
        self._usual = max(self._rates.values(), default=1.0)
        self.turns += 1

    def rate(self, site: str, lateness: int) -> float:
        """Items a second that a source of a site and a lateness is planned with."""
        return self._rates.get((site, lateness), self._usual)

    @property
    def least(self) -> float:
        """The least that any source is planned with."""
        return min((*self._rates.values(), self._usual))

    def release(self, source: str) -> None:
        """Nobody is to read a source any more."""
        self.turns += 1
        self._part(source)

    def _part(self, source: str) -> None:
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

    def parent(self, node: str) -> tuple[str, str]:
        """To whom a node is to send, and where that is: without a name, to whom it does; without an address,
        to the root."""
        planned = self.planned.get(node)
        if planned is None:
            return "", ""
        if planned.parent in self.planned:
            return (
                (planned.parent, self.address(planned.parent)) if self.is_live(planned.parent) else ("", "")
            )
        return planned.parent, ""

    @property
    def readers(self) -> list[str]:
        """Whoever is to read a source."""
        return list(self._read_by)

    def assigned(self, source: str) -> str | None:
        """The child that is to read a source, by its name."""
        return self._assigned.get(source)

    def sources_of(self, child: str) -> list[str]:
        return list(self._read_by.get(child, ()))
