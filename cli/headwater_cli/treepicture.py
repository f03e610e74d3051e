"""The picture of a plan: layers from the root down to the sources, in characters and as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from headwater.planning.amounts import UNIT
from headwater.planning.plan import Layer, Plan

# Nodes of a layer that are drawn one by one: in characters, and as SVG.
DOTS, CIRCLES = 48, 96
WIDTH, ROW, LEFT, TOP, LEGEND = 1_000, 74, 190, 60, 30
# From which share of its limit on that is free a node has which colour, and what that means.
HEADROOMS = (
    (0.5, "#cfe3f3", "half or more free"),
    (0.1, "#86b8de", "10% or more free"),
    (0.0, "#3f7fb5", "full, as planned"),
    (-float("inf"), "#d9534f", "overrun"),
)


def layer_name(layer: Layer, number: int, layers: int) -> str:
    if layers == 1:
        return "child, root"
    return {"child": "children", "root": "root"}.get(layer.role, f"layer {number}")


def sketched(found: Plan) -> str:
    """A pyramid of dots."""
    lines = []
    for number, layer in reversed(list(enumerate(found.layers, start=1))):
        dots = " ".join("●" * layer.width) if 2 * layer.width <= DOTS else "●" * min(layer.width, DOTS)
        more = "" if layer.width <= DOTS else f" ... {layer.width:,}"
        name = layer_name(layer, number, len(found.layers))
        lines.append(f"{name:>12}  {dots:^{DOTS}}{more}".rstrip())
    count = sum(each.count for each in found.demands)
    lines.append(f"{'sources':>12}  {f'{count:,}':^{DOTS}}".rstrip())
    return "\n".join(lines)


def drawn(found: Plan) -> str:
    """The tree as SVG: a circle for each node in the colour of its headroom, lines to parents, a legend."""
    height = TOP + ROW * (len(found.layers) + 1) + LEGEND
    count = sum(each.count for each in found.demands)
    widths = " ".join(map(str, found.widths))
    title = f"{count:,} sources, {float(found.load):,g} items/s: {found.nodes:,} nodes, [{widths}]"
    places = _places(found)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            'font-family="sans-serif" font-size="13" role="img">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
            f'<text x="16" y="28" font-size="17">{escape(title)}</text>',
            *_lines(found, places),
            *_sources(found, places[0], count),
            *_nodes(found, places),
            *_legend(height - 14),
            "</svg>",
            "",
        ]
    )


def _y(found: Plan, place: int) -> float:
    return TOP + ROW * (len(found.layers) - 1 - place) + 20


def _xs(width: int) -> list[float]:
    shown = min(width, CIRCLES)
    return [LEFT + (WIDTH - LEFT - 20) * (number + 0.5) / shown for number in range(shown)]


def _places(found: Plan) -> list[list[float | None]]:
    """Where each node of each layer stands: those of one parent beside each other, so that no lines cross;
    None for those that are not drawn."""
    places: list[NDArray[np.int64]] = [np.zeros(1, np.int64)]
    for layer in reversed(found.layers[:-1]):
        assert layer.parents is not None
        found_here = np.empty(layer.width, np.int64)
        found_here[np.argsort(places[0][layer.parents], kind="stable")] = np.arange(layer.width)
        places.insert(0, found_here)
    return [
        [xs[place] if place < CIRCLES else None for place in here]
        for here, xs in ((here, _xs(len(here))) for here in places)
    ]


def _lines(found: Plan, places: Sequence[Sequence[float | None]]) -> Iterator[str]:
    for number, layer in enumerate(found.layers[:-1]):
        assert layer.parents is not None
        for x, parent in zip(places[number], layer.parents, strict=True):
            above = places[number + 1][parent]
            # Where not all are drawn, lines are of those that are.
            if x is not None and above is not None:
                yield (
                    f'<line x1="{x:.1f}" y1="{_y(found, number):.1f}" x2="{above:.1f}" '
                    f'y2="{_y(found, number + 1):.1f}" stroke="#b8c0c8"/>'
                )


def _nodes(found: Plan, places: Sequence[Sequence[float | None]]) -> Iterator[str]:
    for place, layer in enumerate(found.layers):
        y = _y(found, place)
        name = layer_name(layer, place + 1, len(found.layers))
        busiest = layer.rates.max() / UNIT
        limits = " or ".join(f"{limit:g}" for limit in sorted({kind.limit for kind in layer.kinds}))
        yield f'<text x="16" y="{y - 2:.1f}">{escape(name)}: {layer.width:,}</text>'
        yield (
            f'<text x="16" y="{y + 14:.1f}" font-size="11" fill="#667">'
            f"at most {busiest:,.4g} of {limits} /s</text>"
        )
        size = max(3.0, min(11.0, (WIDTH - LEFT) / (2.6 * min(layer.width, CIRCLES))))
        for number, x in enumerate(places[place]):
            if x is None:
                continue
            left, rate, kind = float(layer.headroom[number]), layer.rates[number] / UNIT, layer.kinds[number]
            told = f"{rate:,.4g} of {kind.limit:g} items/s, {left:.1%} free"
            yield (
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}" fill="{_colour(left)}" stroke="#456">'
                f"<title>{escape(told)}</title></circle>"
            )
        if layer.width > CIRCLES:
            yield (
                f'<text x="{WIDTH - 20}" y="{y + 24:.1f}" text-anchor="end" font-size="11" fill="#667">'
                f"{CIRCLES} of {layer.width:,} are drawn</text>"
            )


def _sources(found: Plan, places: Sequence[float | None], count: int) -> Iterator[str]:
    y = TOP + ROW * len(found.layers) + 20
    children = found.layers[0]
    yield f'<text x="16" y="{y:.1f}">sources: {count:,}</text>'
    each = found.sources.sum(axis=0)
    for number, x in enumerate(places):
        if x is None:
            continue
        yield (
            f'<line x1="{x:.1f}" y1="{_y(found, 0):.1f}" x2="{x:.1f}" y2="{y - 14:.1f}" stroke="#b8c0c8" '
            'stroke-dasharray="2 3"/>'
        )
        if children.width <= CIRCLES // 2:
            yield (
                f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" font-size="10">'
                f"{int(each[number])}</text>"
            )


def _colour(left: float) -> str:
    """Calm as long as a node takes what comes: a full node is as planned, only an overrun one is red."""
    return next(colour for least, colour, _ in HEADROOMS if left >= least)


def _legend(y: float) -> Iterator[str]:
    """What colours and lines mean."""
    x = 16.0
    for _, colour, meaning in HEADROOMS:
        yield (
            f'<rect x="{x:.0f}" y="{y - 10:.0f}" width="11" height="11" rx="5" fill="{colour}" '
            'stroke="#456"/>'
            f'<text x="{x + 17:.0f}" y="{y:.0f}" font-size="11" fill="#445">{escape(meaning)}</text>'
        )
        x += 34 + 6.2 * len(meaning)
    yield (
        f'<text x="{x:.0f}" y="{y:.0f}" font-size="11" fill="#445">'
        "circle: a node, line: to its parent, number below: its sources</text>"
    )
