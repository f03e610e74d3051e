"""Run streams through the engine, alone or in a tree of nodes, and through the oracle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from headwater import oracle
from headwater.events import Batch
from headwater.machines import messages
from headwater.machines.messages import Register, Registered
from headwater.machines.root import RootMachine
from headwater.node import Node
from headwater.partials import Partial
from headwater.queries import Query
from headwater.results import Result
from headwater.root import Root
from headwater.verification import differences, row_of, spec_of
from tests.strategies import Stream, Tree


def batch_of(events: Sequence[oracle.Event]) -> Batch:
    """Consecutive events of one source as a batch."""
    return Batch.from_records(
        events[0].source, events[0].seq, [(e.ts, e.key, e.value, e.mark) for e in events]
    )


def rows_of(results: Iterable[Result]) -> list[oracle.Row]:
    return [row_of(r) for r in results]


def expected_rows(queries: Iterable[Query], streams: Sequence[Stream]) -> list[oracle.Row]:
    return oracle.windows(
        [event for _, events in streams for event in events],
        [source for source, _ in streams],
        [spec_of(query) for query in queries],
    )


def without_empty_tail(queries: Iterable[Query], rows: Sequence[oracle.Row]) -> list[oracle.Row]:
    """Rows less the empty windows behind a query's last event: how many there are is up to the watermark."""
    kept = list(rows)
    for query in queries:
        if query.emit_empty:
            last = max((row.start for row in rows if row.query == query.id and row.count), default=None)
            kept = [r for r in kept if r.query != query.id or (last is not None and r.start <= last)]
    return kept


class Network:
    """A tree of nodes under one root; every source is attached to the node that the tree names."""

    def __init__(self, queries: Sequence[Query], streams: Sequence[Stream], tree: Tree) -> None:
        self.root = Root(queries, expected=len(streams))
        self.parent: dict[Node, Node] = {}
        self.nodes: list[Node] = []
        self.home: dict[str, Node] = {}
        self.taken: list[Result] = []
        self._attach(self.root, tree, queries, streams)

    def _attach(
        self, node: Node, tree: Tree, queries: Sequence[Query], streams: Sequence[Stream]
    ) -> list[int]:
        below: list[int] = []
        for child in tree:
            if isinstance(child, int):
                below.append(child)
                self.home[streams[child][0].name] = node
                continue
            other = Node(queries)
            self.parent[other] = node
            self.nodes.append(other)
            below += self._attach(other, child, queries, streams)
        for number in sorted(below):
            source, _ = streams[number]
            node.admit(source.name, lateness=source.lateness, site=source.site)
        return below

    def push(self, batch: Batch) -> None:
        assert self.home[batch.source].push(batch) == len(batch)

    def flush(self, node: Node) -> None:
        """Send what a node has up, and what that lets its parents send, to the root."""
        for each in self.way_up(node):
            self._send(each)

    def flush_all(self) -> None:
        for node in sorted(self.nodes, key=self._depth, reverse=True):
            self._send(node)

    def way_up(self, node: Node) -> list[Node]:
        """A node and those above it, without the root."""
        return [] if node is self.root else [node, *self.way_up(self.parent[node])]

    def _send(self, node: Node) -> None:
        partial = self.carried(node.flush())
        if partial:
            # The root looks at it before it logs it; what sound nodes send is sound.
            self.parent[node].check(partial)
            self.parent[node].merge(partial)

    def carried(self, partial: Partial) -> Partial:
        """A partial as it arrives."""
        return partial

    def _depth(self, node: Node) -> int:
        return 0 if node is self.root else 1 + self._depth(self.parent[node])

    def take(self) -> None:
        self.taken += self.root.take()

    def finish(self) -> list[Result]:
        self.flush_all()
        self.root.finish()
        self.take()
        return self.taken


def assert_exact(queries: Sequence[Query], expected: Sequence[oracle.Row], found: Iterable[Result]) -> None:
    rows = without_empty_tail(queries, rows_of(found))
    wrong = differences(without_empty_tail(queries, expected), rows)
    assert not wrong, "\n".join(wrong[:8])


def assert_in_order(queries: Sequence[Query], found: Iterable[Result]) -> None:
    """Results of one query leave in the order of their end (count windows, keyed, in that of each key)."""
    last: dict[tuple[str, str, str | None], int] = {}
    for result in found:
        by_rank = any(q.id == result.query and getattr(q.window, "count", None) for q in queries)
        stream = (result.query, result.site, result.key) if by_rank else (result.query, "", None)
        assert result.end >= last.get(stream, result.end), result
        last[stream] = result.end


def joined(machine: RootMachine, node: str = "c", token: str = "token") -> messages.Stream:
    """Register a node as its process does; gives its stream to the root."""
    asked = Register(node, token, True)
    (send,) = machine.step(node, asked, 0)
    answer = send.message
    assert isinstance(answer, Registered)
    if not answer.generation:
        (send,) = machine.step(node, replace(asked, echo=answer.nonce), 0)
        answer = send.message
        assert isinstance(answer, Registered)
    return messages.Stream(node, answer.generation, 1)
