"""A tree that runs: its nodes by name, who sends to whom, and the tree that takes its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headwater.planning.assignment import Move, NoRoom, assigned, moves, without

ROOT = "root"


@dataclass(frozen=True, slots=True)
class Tree:
    """Layers of nodes from the children up, without the root; the parent of each source and node; and of
    each layer how many names were given: none is used twice."""

    layers: tuple[tuple[str, ...], ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    parents: Mapping[str, str] = field(default_factory=dict)
    named: tuple[int, ...] = ()

    @property
    def widths(self) -> list[int]:
        """With the root."""
        return [*map(len, self.layers), 1]

    @property
    def size(self) -> int:
        """How many nodes, the root among them; a child that the root could stand for is none of its own."""
        return 1 if self.widths == [1, 1] else sum(self.widths)

    @property
    def nodes(self) -> list[str]:
        return [name for layer in self.layers for name in layer]


@dataclass(frozen=True, slots=True)
class Step:
    """From one tree to the next: nodes that begin, those that end, and what moves."""

    tree: Tree
    begin: tuple[str, ...]
    end: tuple[str, ...]
    sources: tuple[Move, ...]
    nodes: tuple[Move, ...]

    def __bool__(self) -> bool:
        return bool(self.begin or self.end or self.sources or self.nodes)


def next_tree(
    before: Tree,
    widths: Sequence[int],
    rates: Mapping[str, int],
    sends: Mapping[str, int],
    capacity: int,
    reductions: Mapping[int, float] | None = None,
    *,
    stable: bool = True,
) -> Step:
    """A tree of at least these widths, root included, that moves as little as can be.

    `rates` are of the sources that are there, `sends` of nodes and `reductions` of layers as far as they were
    measured; each node takes `capacity`. A layer is wider than asked for where that spares moves, or where
    nothing else fits. Unless it is to be `stable`: then everybody may move, and nodes alone stay.
    """
    # A plan of one layer is one child under the root.
    wanted = list(widths[:-1]) or [1]
    layers: list[tuple[str, ...]] = []
    named = [*before.named, *[0] * (len(wanted) - len(before.named))]
    parents: dict[str, str] = {}
    items: Mapping[str, int] = rates
    held: Mapping[str, str] = before.sources if stable else {}
    sources: dict[str, str] = {}
    for place, width in enumerate(wanted):
        old = before.layers[place] if place < len(before.layers) else ()
        names, named[place] = _names(old, place + 1, width, named[place], items, held, capacity)
        found: dict[str, str] | None = None
        while found is None:
            try:
                found = assigned(items, dict.fromkeys(names, capacity), held)
            except NoRoom as error:
                if max(items[item] for item in error.items) > capacity:
                    raise
                names = (*names, name_of(place + 1, named[place]))
                named[place] += 1
        layers.append(names)
        if place:
            parents.update(found)
        else:
            sources = found
        into: dict[str, list[int]] = {name: [] for name in names}
        for item, node in found.items():
            into[node].append(items[item])
        items = {
            # Who sends more than any parent takes has one for itself.
            name: min(sends.get(name, _expected(taken, place + 1, reductions or {})), capacity)
            for name, taken in into.items()
        }
        held = before.parents if stable else {}
    parents.update(dict.fromkeys(layers[-1], ROOT))
    tree = Tree(tuple(layers), sources, parents, tuple(named))
    kept = set(tree.nodes)
    was = set(before.nodes)
    return Step(
        tree,
        tuple(name for name in tree.nodes if name not in was),
        tuple(name for name in before.nodes if name not in kept),
        tuple(moves(before.sources, sources)),
        tuple(move for move in moves(before.parents, parents) if move.item in was),
    )


def _expected(taken: Sequence[int], layer: int, reductions: Mapping[int, float]) -> int:
    """What a node sends that was not measured: as its layer does, else half of what a child takes, and of
    what a node takes the largest."""
    if layer in reductions:
        return int(sum(taken) * reductions[layer])
    return sum(taken) // 2 if layer == 1 else max(taken, default=0)


def fixed_tree(widths: Sequence[int], sources: Sequence[str]) -> Tree:
    """A tree of just these widths, root included, each one's items dealt out in turn."""
    layers = [
        tuple(name_of(number, place) for place in range(width))
        for number, width in enumerate(widths[:-1] or [1], start=1)
    ]
    above = [*layers[1:], (ROOT,)]
    parents = {
        name: over[place % len(over)]
        for layer, over in zip(layers, above, strict=True)
        for place, name in enumerate(layer)
    }
    dealt = {name: layers[0][place % len(layers[0])] for place, name in enumerate(sources)}
    return Tree(tuple(layers), dealt, parents, tuple(map(len, layers)))


def name_of(layer: int, number: int) -> str:
    return f"l{layer}-{number}"


def _names(
    old: Sequence[str],
    layer: int,
    width: int,
    named: int,
    items: Mapping[str, int],
    held: Mapping[str, str],
    capacity: int,
) -> tuple[tuple[str, ...], int]:
    """The nodes of a layer, and how many of its names were given by then."""
    if len(old) > width:
        return tuple(without(items, dict.fromkeys(old, capacity), held, len(old) - width)), named
    fresh = [name_of(layer, named + more) for more in range(width - len(old))]
    return (*old, *fresh), named + len(fresh)
