"""CSA: the figures of the paper as tables with our columns, what random plans come to, and how long it takes.

make bench BENCH=csa, or with ARGS=--quick; prints tables, asserts nothing.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence

from headwater.planning import csa
from headwater.planning.inventory import alike
from headwater.planning.plan import Demand, Plan, Within, plan
from headwater_simulator.flows import played

MANY = Within(max_nodes=1_000_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter plays and fewer plans")
    quick = parser.parse_args().quick
    figures_1_and_6(100 if quick else 600)
    figure_7()
    theorem_1(300 if quick else 1_200)
    grid(200 if quick else 5_000)
    timing()


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    print(f"\n{title}\n")
    print(f"| {' | '.join(columns)} |")
    print(f"|{'---|' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")


def shown(layers: Sequence[int]) -> str:
    return " ".join(map(str, layers))


def figures_1_and_6(seconds: float) -> None:
    """500 sources of 0.5 items/s, nodes of 20: what each tree loses."""
    rows = []
    for layers in ([1], [13, 1], [13, 7, 1], [13, 7, 4, 1], [13, 7, 4, 2, 1]):
        flows = played(500, 0.5, 20, layers, seconds, seed=1)
        bounds = csa.bounds(250, layers)
        rows.append(
            (
                shown(layers),
                " ".join(f"{float(bound):.1f}" for bound in bounds),
                " ".join(f"{flow.busiest:.1f}" for flow in flows),
                " ".join(f"{flow.share:.1%}" for flow in flows),
            )
        )
    columns = ("layers", "Theorem 1, items/s a node", "played: busiest node", "played: lost in each layer")
    table(f"Figures 1 and 6: 500 sources x 0.5 items/s, a node takes 20, {seconds:.0f} s", columns, rows)


def figure_7() -> None:
    """How large the topology is, by the number of gateways."""
    rows = []
    for sources in (10, 40, 100, 200, 300, 500, 750, 950):
        paper = csa.widths(sources * 0.5, 20)
        ours = plan([Demand("gateway", sources, 0.5)], alike(20, 0), MANY)
        kept = plan([Demand("gateway", sources, 0.5)], alike(20, 0.1), MANY)
        rows.append(
            (
                sources,
                shown(paper),
                sum(paper),
                shown(ours.widths),
                f"{_least(ours):.1%}",
                shown(kept.widths),
                kept.nodes,
                csa.most_layers(sources * 0.5, 20),
                f"{csa.most_nodes(sources * 0.5, 20):.1f}",
                f"{csa.most_nodes(sources * 0.5, 20, csa.PRINTED):.1f}",
            )
        )
    columns = (
        "gateways",
        "CSA",
        "nodes",
        "our plan",
        "least headroom",
        "with margin 0.1",
        "nodes",
        "Lemma 1",
        "Theorem 3, put right",
        "Theorem 3, printed",
    )
    table("Figure 7: topologies by the number of gateways, 0.5 items/s each, a node takes 20", columns, rows)


def _least(found: Plan) -> float:
    return min(float(layer.headroom.min()) for layer in found.layers)


def theorem_1(seconds: float) -> None:
    """What reaches each layer if nodes send at once, beside the bound."""
    rows = []
    for sources in (500, 950, 2_000):
        layers = csa.widths(sources * 0.5, 20)
        flows = played(sources, 0.5, 1e9, layers, seconds, seed=1)
        came = [flow.arrived / seconds for flow in flows]
        bound = [
            float(each * width) for each, width in zip(csa.bounds(sources * 0.5, layers), layers, strict=True)
        ]
        above = [f"{there / most - 1:+.1%}" for there, most in zip(came, bound, strict=True)]
        rows.append(
            (
                shown(layers),
                " ".join(f"{x:.1f}" for x in bound),
                " ".join(f"{x:.1f}" for x in came),
                " ".join(above),
            )
        )
    columns = ("layers", "Theorem 1, items/s a layer", "played without a limit", "above it")
    table(f"Theorem 1 and what nodes send that need not wait, {seconds:.0f} s", columns, rows)


def grid(count: int) -> None:
    """How random plans compare with CSA's widths and with the bounds."""
    chance = random.Random(1)
    grown = more = passed = 0
    worst = 0.0
    for _ in range(count):
        limit = round(10 ** chance.uniform(0, 4), 2)
        margin = chance.choice([0, 0.1, 0.25])
        demands = [
            Demand("s", chance.randrange(1, 400), round(chance.uniform(0.001, 0.6) * limit, 4) or 0.1)
            for _ in range(chance.randrange(1, 6))
        ]
        found = plan(demands, alike(limit, margin), MANY)
        kept = csa.exact(limit) * (1 - csa.exact(margin))
        paper = csa.widths(found.load, kept)
        assert all((layer.headroom >= margin - 1e-9).all() for layer in found.layers)
        grown += found.widths != paper
        more += found.nodes - sum(paper)
        passed += sum(paper) > csa.most_nodes(found.load, kept, csa.PRINTED)
        worst = max(worst, sum(paper) / csa.most_nodes(found.load, kept))
    rows = [
        ("plans, each with every node within its margin", f"{count:,}"),
        ("wider than CSA somewhere, since sources and nodes are whole", f"{grown:,}"),
        ("nodes more than CSA, a plan", f"{more / count:.2f}"),
        ("CSA passes Theorem 3 as printed", f"{passed:,}"),
        ("CSA at most, of Theorem 3 put right", f"{worst:.1%}"),
    ]
    table("Random plans: up to 5 classes of sources, rates up to 0.6 of a limit", ("", ""), rows)


def timing() -> None:
    rows = []
    for count in (100, 1_000, 10_000, 100_000, 1_000_000):
        one = [Demand("s", count, 0.5)]
        chance = random.Random(1)
        many = [Demand(f"c{n}", max(count // 100, 1), round(chance.uniform(0.1, 2), 3)) for n in range(100)]
        rows.append((f"{count:,}", *_timed(one), *_timed(many)))
    columns = ("sources", "ms, one class", "nodes", "ms, 100 classes", "nodes")
    table("How long a plan takes", columns, rows)


def _timed(demands: Sequence[Demand]) -> tuple[str, str]:
    best = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        found = plan(demands, alike(20, 0.1), MANY)
        best = min(best, time.perf_counter() - begin)
    return f"{1e3 * best:,.1f}", f"{found.nodes:,}"


if __name__ == "__main__":
    main()
