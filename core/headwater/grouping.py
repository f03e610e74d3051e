"""The groups of a node: which queries share one pass over the events."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from headwater.central import Central, Reader
from headwater.errors import InvalidPartial
from headwater.groups.counted import CountedGroup
from headwater.groups.marked import MarkedGroup, MarkedPart
from headwater.groups.members import Active
from headwater.groups.sliced import SlicedGroup, SlicedPart
from headwater.groups.soundness import Extent
from headwater.queries import KINDS, Kind, Sharing, Where
from headwater.rows import TS_MAX, SourceOrder

Group = SlicedGroup | CountedGroup | MarkedGroup


class Grouping:
    """Groups by number. Every node gives a query the same one, since partials name them."""

    def __init__(
        self, order: SourceOrder, central: Central, *, root: bool, kinds: Collection[Kind] = KINDS
    ) -> None:
        """Groups of other `kinds` have their numbers, and are not here."""
        self._order = order
        self._central = central
        self._root = root
        self._kinds = kinds
        self.by_id: dict[int, Group] = {}
        self._sharing: dict[int, Sharing] = {}
        self._next = 0
        # By group: the predicates of the queries that are there, and whose they are.
        self._wheres: dict[int, dict[Where, set[str]]] = {}
        # The same groups by what they read; kept flat for the hot path.
        self.sliced: list[SlicedGroup] = []
        self.marked: list[MarkedGroup] = []
        # Those of which partials have parts.
        self.sent: list[tuple[int, SlicedGroup | MarkedGroup]] = []
        # The group that finds out by its sums whether values are finite, if it reads them alone.
        self.prover: SlicedGroup | None = None

    def join(self, added: Iterable[Active]) -> None:
        """Give each query a group: the first that it fits into, else a new one."""
        fresh: dict[int, list[Active]] = {}
        for active in added:
            fresh.setdefault(self._place(active, fresh), []).append(active)
        for group_id, members in fresh.items():
            self._make(group_id, members)
        self._arrange()

    def _place(self, active: Active, fresh: Mapping[int, list[Active]]) -> int:
        sharing = Sharing.of(active.query)
        where = active.query.where
        for group_id, other in self._sharing.items():
            if other != sharing or sharing.kind == "marked":
                continue
            if sharing.kind == "counted" and group_id not in fresh:
                # Ranks count from the group's beginning; a later query has another one.
                continue
            # By the queries that are there, not by what a group still holds of others: every node must
            # come to the same answer, and only the root knows when the windows of a removed one end.
            held = self._wheres.setdefault(group_id, {})
            if where in held or all(where.disjoint(other) for other in held):
                break
        else:
            group_id = self._next
            self._next += 1
            self._sharing[group_id] = sharing
        self._wheres.setdefault(group_id, {}).setdefault(where, set()).add(active.query.id)
        return group_id

    def _make(self, group_id: int, members: list[Active]) -> None:
        sharing = self._sharing[group_id]
        keyed, by_site = sharing.keyed, sharing.scope == "local"
        if sharing.kind not in self._kinds:
            return
        if sharing.kind == "marked":
            (member,) = members
            self.by_id[group_id] = MarkedGroup(self._order, member)
        elif sharing.kind == "counted":
            self.by_id[group_id] = CountedGroup(self._order, members, keyed=keyed, by_site=by_site)
        else:
            group = self.by_id.get(group_id)
            if not isinstance(group, SlicedGroup):
                root = self._root or sharing.kind == "ordered"
                group = SlicedGroup(self._order, keyed=keyed, by_site=by_site, root=root)
                self.by_id[group_id] = group
            group.join([*group.members, *members])

    def _arrange(self) -> None:
        self.sliced, self.marked, self.sent = [], [], []
        central: list[Reader] = []
        for group_id, group in self.by_id.items():
            sharing = self._sharing[group_id]
            if isinstance(group, MarkedGroup):
                self.marked.append(group)
                self.sent.append((group_id, group))
            elif sharing.kind == "sliced" and isinstance(group, SlicedGroup):
                self.sliced.append(group)
                self.sent.append((group_id, group))
            else:
                central.append((group, sharing))
        self._central.arrange(central)
        alone = len(self.sliced) == 1 and not central and not self.marked
        self.prover = self.sliced[0] if alone and self.sliced[0].proves else None

    def remove(self, active: Active, edge: int, *, at_once: bool) -> list[str]:
        """Let a query see nothing from an edge on, or forget it at once; gives the names of groups of marks
        that are forgotten."""
        for held in self._wheres.values():
            holders = held.get(active.query.where, set())
            holders.discard(active.query.id)
            if not holders:
                held.pop(active.query.where, None)
        ended = Active(active.index, active.query, active.begin, edge)
        forgotten = []
        for group_id, group in list(self.by_id.items()):
            if not any(member.index == active.index for member in group.members):
                continue
            if isinstance(group, CountedGroup):
                if at_once:
                    group.leave(active.index)
                else:
                    group.shorten(ended)
            elif isinstance(group, MarkedGroup):
                if at_once:
                    del self.by_id[group_id]
                    forgotten.append(group.name)
                else:
                    group.shorten(ended)
            else:
                kept = [m for m in group.members if m.index != active.index]
                group.join(kept if at_once else [*kept, ended], gone_at=edge)
        self._drop_empty()
        self._arrange()
        return forgotten

    def let_go(self, watermark: int) -> list[MarkedGroup]:
        """Drop members whose last window has been closed; gives the groups of marks that end with that.

        The nodes below go on with the states of their marks: they are part of every prefix.
        """
        gone = []
        for group_id, group in list(self.by_id.items()):
            over = {m.index for m in group.members if m.end < TS_MAX and m.last_end < watermark}
            if over and isinstance(group, SlicedGroup):
                group.join([m for m in group.members if m.index not in over])
            elif over and isinstance(group, CountedGroup):
                for index in over:
                    group.leave(index)
            elif over and isinstance(group, MarkedGroup):
                del self.by_id[group_id]
                gone.append(group)
        self._drop_empty()
        self._arrange()
        return gone

    @property
    def is_ending(self) -> bool:
        """Whether a query that was removed still has windows to close."""
        return any(m.end < TS_MAX for group in self.by_id.values() for m in group.members)

    def _drop_empty(self) -> None:
        """Groups of nobody that read events in their order: nobody need forward them."""
        for group_id in [group_id for group_id, group in self.by_id.items() if not group.members]:
            if self._sharing[group_id].kind in ("counted", "ordered"):
                del self.by_id[group_id]

    def check(self, parts: Mapping[int, SlicedPart | MarkedPart], extent: Extent) -> None:
        """Raise if parts that another node has sent cannot be merged."""
        for group_id, part in parts.items():
            group = self.by_id.get(group_id)
            kind = self._sharing[group_id].kind if group_id in self._sharing else "no"
            if kind != ("sliced" if isinstance(part, SlicedPart) else "marked"):
                raise InvalidPartial("parts", f"have one of {kind} group", "send those of the queries")
            # One whose queries have ended is not there any more, and nobody reads its part.
            if isinstance(group, SlicedGroup) and isinstance(part, SlicedPart):
                group.check(part, extent)
            if isinstance(group, MarkedGroup) and isinstance(part, MarkedPart):
                group.check(part, extent)

    @property
    def executions(self) -> dict[str, int]:
        """How often each operator was executed on an event, over all groups."""
        done: dict[str, int] = {}
        for group in self.by_id.values():
            for operator in group.operators:
                for name in operator.executed:
                    done[name] = done.get(name, 0) + group.lifted
        return done
