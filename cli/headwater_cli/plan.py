"""`headwater plan`: how many nodes a tree needs, and why."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from headwater.errors import InvalidPlan, Problem
from headwater.planning import csa
from headwater.planning.amounts import UNIT
from headwater.planning.asked import demands_of, reductions_of, scaled, within_of
from headwater.planning.inventory import ROLES, Inventory, Kind, alike, inventory_of
from headwater.planning.plan import Demand, Layer, Less, Plan, Within
from headwater.planning.plan import plan as planned
from headwater.planning.shortage import LayersDoNotEnd
from headwater.topology import Topology
from headwater.topology.tree import MARGIN
from headwater_cli import manifests, treepicture
from headwater_cli.screen import console

# Where nothing else says how many nodes there may be.
MOST_NODES = 1_000_000
# What a node may cost a month.
MOST_COST = 1e12
# More than any source sends.
MOST_LIMIT = 1e9
# How many rows a what-if has, if nobody says how far apart they are.
ROWS, MOST_ROWS = 10, 1_000
# More than anybody has; a plan of them takes a minute.
MOST_SOURCES = 10_000_000
# As options call what a manifest has.
_OPTIONS = {
    "options.rate": "--rate",
    "options.expected": "--sources",
    "options.limit": "--limit",
    "options.margin": "--margin",
}


class _Sources(click.ParamType[Sequence[int]]):
    """A number of sources, or several: `200..2000`, also with a step: `200..2000..300`."""

    name = "N|A..B[..STEP]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Sequence[int]:
        if not isinstance(value, str):
            return list(value)
        try:
            numbers = [int(part.replace("_", "").replace(",", "")) for part in value.split("..")]
        except ValueError:
            numbers = []
        if any(number > MOST_SOURCES for number in numbers[:2]):
            self.fail(f"{value!r} are too many; give at most {MOST_SOURCES:,} sources", param, ctx)
        if len(numbers) == 1:
            return numbers
        if len(numbers) in (2, 3):
            if min(numbers) < 1:
                self.fail(f"{value!r} has a number below 1; give numbers from 1 on", param, ctx)
            if numbers[0] > numbers[1]:
                self.fail(f"{value!r} goes down; give the lower number first", param, ctx)
            step = numbers[2] if len(numbers) == 3 else max((numbers[1] - numbers[0]) // (ROWS - 1), 1)
            if (numbers[1] - numbers[0]) // step > MOST_ROWS:
                self.fail(f"{value!r} are more than {MOST_ROWS:,} plans; give a larger step", param, ctx)
            return [*range(numbers[0], numbers[1], step), numbers[1]]
        self.fail(f"{value!r} is no number of sources; give one, or several as 200..2000", param, ctx)


class _Nodes(click.ParamType[list[tuple[int, float]]]):
    """Nodes that there are: `8x12,4x20` are eight that take 12 items a second and four that take 20."""

    name = "COUNTxLIMIT,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[tuple[int, float]]:
        if not isinstance(value, str):
            return list(value)
        found = []
        for part in value.split(","):
            count, times, limit = part.strip().partition("x")
            try:
                found.append((int(count), float(limit)))
            except ValueError:
                times = ""
            if not times or found[-1][0] < 1:
                self.fail(f"{part!r} is no number of nodes; give some as 8x12,4x20", param, ctx)
        if len({limit for _, limit in found}) < len(found):
            self.fail("the same limit stands there twice; add the nodes up", param, ctx)
        return found


@click.command()
@click.argument("manifest", required=False, type=click.Path(path_type=Path))
@click.option("--sources", type=_Sources(), help="How many sources; 200..2000 plans several numbers of them.")
@click.option("--rate", type=float, help="Items a second that each source sends.")
@click.option(
    "--limit",
    type=float,
    help="Items a second that a node takes, every one, instead of spec.node and its classes; "
    "headwater bench node measures it.",
)
@click.option("--margin", type=float, help=f"The share of it that is kept free.  [default: {MARGIN}]")
@click.option(
    "--nodes",
    type=_Nodes(),
    help="The nodes that there are, instead of spec.node and of as many as it takes.",
)
@click.option("--max-nodes", type=click.IntRange(1, MOST_NODES), help="The tree has no more.")
@click.option("--price", type=float, help="What a node costs a month.")
@click.option("--json", "as_json", is_flag=True, help="The plan as JSON and nothing else.")
@click.option(
    "--svg",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Draw the tree; of several numbers of sources, the last one's.",
)
def plan(
    manifest: Path | None,
    sources: Sequence[int] | None,
    rate: float | None,
    limit: float | None,
    margin: float | None,
    nodes: list[tuple[int, float]] | None,
    max_nodes: int | None,
    price: float | None,
    as_json: bool,
    svg: Path | None,
) -> None:
    """Say how many nodes a tree needs so that none is overrun, layer by layer, and why.

    \b
    headwater plan examples/factory.yaml
    headwater plan --sources 500 --rate 0.5 --limit 20 --margin 0
    headwater plan examples/factory.yaml --sources 4..40 --price 12
    headwater plan --sources 950 --rate 0.5 --limit 20 --svg tree.svg

    The sources, their rates, what a node takes and how much of that is kept free are those of MANIFEST, or
    as the options say. Widths are CSA's; sources and nodes have one parent each, and where they cannot be
    spread evenly there are more nodes, and a line that says so. Ends with code 1 if there is no such tree.
    """
    if price is not None and not 0 <= price <= MOST_COST:
        raise click.BadParameter(f"is {price:g}; give what a node costs a month", param_hint="--price")
    by_option = manifest is None or max_nodes is not None
    topology = None if manifest is None else _asked(manifest, sources, rate, limit, margin, nodes)
    try:
        demands = list(_demands(topology, sources, rate))
        inventory = _inventory(topology, limit, margin, nodes)
        within = _within(topology, max_nodes)
        counts = list(sources) if sources is not None else [sum(each.count for each in demands)]
        reductions = {} if topology is None else reductions_of(topology)
        found, refused = [], {}
        for count in counts:
            try:
                found.append((count, planned(scaled(demands, count), inventory, within, reductions)))
            except InvalidPlan as error:
                refused[count] = error
        if not found:
            raise refused[counts[0]]
    except InvalidPlan as error:
        problems = [_by_option(problem, by_option) for problem in error.problems]
        raise click.ClickException(str(InvalidPlan(problems)) + _forwarded(topology, error)) from None
    if svg is not None:
        try:
            svg.write_text(treepicture.drawn(found[-1][1]), encoding="utf-8")
        except OSError as error:
            raise click.ClickException(f"{svg} cannot be written: {error.strerror or error}") from None
    name = "plan" if topology is None else topology.name
    central = {} if topology is None else {each.id: each.central for each in topology.queries if each.central}
    if as_json:
        told = {count: {**as_mapping(each, price), "central": central} for count, each in found}
        told |= {
            count: {"sources": count, "refused": str(_by_option(error.problems[0], by_option))}
            for count, error in refused.items()
        }
        click.echo(json.dumps(told[counts[0]] if len(counts) == 1 else [told[count] for count in counts]))
    elif len(found) == 1:
        _tell(name, found[0][1], price, central, console())
    else:
        _compare(name, found, price, console())
    for count, problem in ((count, error.problems[0]) for count, error in refused.items()):
        shown = _by_option(problem, by_option)
        click.echo(f"{count:,} sources cannot be planned: {shown}", err=True)
    if refused:
        raise SystemExit(1)


# What is asked for


def _asked(
    manifest: Path,
    counts: Sequence[int] | None,
    rate: float | None,
    limit: float | None,
    margin: float | None,
    nodes: list[tuple[int, float]] | None,
) -> Topology:
    """What options replace is not judged."""
    found = manifests.read(manifest)
    spec = found.get("spec")
    if isinstance(spec, dict):
        node, sources = spec.get("node"), spec.get("sources")
        if isinstance(node, dict):
            kept = {} if margin is None else {"margin": margin if 0 <= margin < 1 else 0}
            limits = {} if limit is None and nodes is None else {"ingestLimit": MOST_LIMIT, "classes": []}
            spec["node"] = {**node, **limits, **kept}
        if isinstance(sources, list):
            kept = {} if rate is None else {"rate": 1}
            kept |= {} if counts is None or _is_count(sources) else {"expected": 1}
            spec["sources"] = [each | kept if isinstance(each, dict) else each for each in sources]
    return manifests.topology_in(found, manifest)


def _is_count(sources: list[Any]) -> bool:
    """Whether every class says how many there are: they are scaled by that then."""
    found = [each.get("expected") for each in sources if isinstance(each, dict)]
    return all(isinstance(count, int) and count > 0 for count in found)


def _demands(
    topology: Topology | None, sources: Sequence[int] | None, rate: float | None
) -> Iterator[Demand]:
    if topology is None:
        missing = [name for name, given in (("--sources", sources), ("--rate", rate)) if given is None]
        if missing or sources is None or rate is None:
            raise InvalidPlan(
                Problem(name, "is missing", "give it, or a manifest that has it") for name in missing
            )
        yield Demand("source", sources[0], rate, "options")
        return
    for each in demands_of(topology):
        yield each if rate is None else Demand(each.name, each.count, rate, "options")


def _inventory(
    topology: Topology | None,
    limit: float | None,
    margin: float | None,
    nodes: list[tuple[int, float]] | None,
) -> Inventory:
    node = None if topology is None else topology.node
    kept = margin if margin is not None else MARGIN if node is None else node.margin
    if margin is not None and not 0 <= margin < 1:
        told = "give a share from 0 to below 1, such as 0.1"
        raise InvalidPlan([Problem("options.margin", f"is {margin:g}", told)])
    if nodes is not None:
        if limit is not None:
            raise InvalidPlan([Problem("--nodes", "stands beside --limit", "drop one of them")])
        kinds = tuple(
            Kind(f"{takes:g}/s", takes, count, f"--nodes {count}x{takes:g}") for count, takes in nodes
        )
        return Inventory(kinds, kinds, kinds, kept)
    if limit is not None:
        return alike(limit, kept, "options.limit")
    if topology is None or node is None:
        measured = "headwater bench node measures it"
        if topology is None:
            raise InvalidPlan([Problem("--limit", "is missing", f"give items a second; {measured}")])
        remedy = f"give it, or --limit; {measured}"
        raise InvalidPlan([Problem("spec.node.ingestLimit", "is missing", remedy)])
    found = inventory_of(node, topology.placement)
    return Inventory(found.child, found.intermediate, found.root, kept)


def _within(topology: Topology | None, max_nodes: int | None) -> Within:
    asked = Within(max_nodes=MOST_NODES) if topology is None else within_of(topology)
    return asked if max_nodes is None else Within(asked.min_width, max_nodes, asked.per_node)


def _by_option(problem: Problem, max_nodes: bool) -> Problem:
    field, remedy = problem.field, problem.remedy
    if max_nodes:
        field = field.replace("spec.limits.maxNodes", "--max-nodes")
        remedy = remedy.replace("spec.limits.maxNodes", "--max-nodes")
    for known, option in _OPTIONS.items():
        field, remedy = field.replace(known, option), remedy.replace(known, option)
    return Problem(field, problem.message, remedy)


def _forwarded(topology: Topology | None, error: InvalidPlan) -> str:
    """For which queries no layer makes items fewer, where that is what is wrong."""
    central = [] if topology is None else [each.id for each in topology.queries if each.central]
    if not central or not isinstance(error, LayersDoNotEnd):
        return ""
    return f"\nfor {', '.join(central)} every event is forwarded to the root, and no layer makes them fewer"


# What is told


def as_mapping(found: Plan, price: float | None = None) -> dict[str, Any]:
    """A plan as JSON has it; rates are items a second."""
    margin = found.inventory.margin
    told: dict[str, Any] = {
        "layers": found.widths,
        "nodes": found.nodes,
        "sources": sum(each.count for each in found.demands),
        "rate": float(found.load),
        "margin": margin,
        "csa": csa.widths(found.load, _kept(found)) if _alike(found) else None,
        "bounds": _bounds(found),
        "tree": [_layer(number, layer) for number, layer in enumerate(found.layers, start=1)],
        "one_layer_less": None,
        "notes": list(found.notes),
    }
    if found.less is not None:
        told["one_layer_less"] = {
            "layers": list(found.less.layers),
            "root_rate": float(found.less.rate),
            "root_limit": found.less.limit,
            "lost": round(found.less.lost, 4),
        }
    if price is not None:
        told["cost"] = {"node": price, "month": price * found.nodes}
    return told


def _layer(number: int, layer: Layer) -> dict[str, Any]:
    kinds: dict[str, int] = {}
    for kind in layer.kinds:
        kinds[kind.name] = kinds.get(kind.name, 0) + 1
    rates = layer.rates / UNIT
    return {
        "layer": number,
        "role": layer.role,
        "nodes": layer.width,
        "kinds": kinds,
        "bound": round(float(layer.bound), 6),
        "rates": [round(float(rate), 6) for rate in rates],
        "headroom": [round(float(left), 6) for left in layer.headroom],
        "parents": None if layer.parents is None else layer.parents.tolist(),
    }


def _alike(found: Plan) -> bool:
    return len({kind.limit for role in ROLES for kind in found.inventory.of(role)}) == 1


def _kept(found: Plan) -> Any:
    return csa.exact(found.inventory.child[0].limit) * (1 - csa.exact(found.inventory.margin))


def _bounds(found: Plan) -> dict[str, float] | None:
    if not _alike(found):
        return None
    kept = _kept(found)
    return {
        "layers": csa.most_layers(found.load, kept),
        "nodes": round(csa.most_nodes(found.load, kept), 2),
    }


def _tell(
    name: str, found: Plan, price: float | None, central: Mapping[str, str | None], out: Console
) -> None:
    count = sum(each.count for each in found.demands)
    free = f", {found.inventory.margin:.0%} of every limit kept free" if found.inventory.margin else ""
    table = Table(
        title=f"{name}: {count:,} sources send {float(found.load):,g} items/s{free}",
        title_justify="left",
        title_style="",
    )
    for column in ("layer", "nodes", "a node takes", "expected", "busiest", "least busy", "headroom"):
        table.add_column(column, justify="left" if column == "layer" else "right")
    for number, layer in enumerate(found.layers, start=1):
        rates = layer.rates / UNIT
        limits = sorted({kind.limit for kind in layer.kinds})
        table.add_row(
            treepicture.layer_name(layer, number, len(found.layers)),
            f"{layer.width:,}",
            " or ".join(f"{limit:,g}" for limit in limits),
            f"{float(layer.bound):,.2f}",
            f"{rates.max():,.2f}",
            f"{rates.min():,.2f}",
            f"{layer.headroom.min():.1%}",
        )
    out.print(table)
    out.print(treepicture.sketched(found), highlight=False)
    for line in _lines(found, price):
        out.print(line, highlight=False, soft_wrap=True)
    if central:
        root = found.layers[-1].kinds[0].limit
        out.print(
            f"for {', '.join(central)} every event is forwarded to the root, {float(found.load):,g} items/s "
            f"that no layer makes fewer; it takes {root:,g}",
            highlight=False,
            soft_wrap=True,
            style="bold red" if found.load > csa.exact(root) else "",
        )


def _lines(found: Plan, price: float | None) -> Iterator[str]:
    layers = len(found.layers)
    nodes = f"{found.nodes:,} {_noun('node', found.nodes)}"
    yield f"{nodes} in {layers} {_noun('layer', layers)}: {_widths(found.widths)}"
    if layers == 1:
        yield "one child takes it all, and so does the root: it is run as one child under the root"
    if bounds := _bounds(found):
        alone = csa.widths(found.load, _kept(found))
        same = "" if alone == found.widths else f"CSA's widths alone would be {_widths(alone)}, "
        yield (
            f"{same}at most {bounds['layers']} {_noun('layer', int(bounds['layers']))} and "
            f"{(most := math.floor(bounds['nodes'])):,} {_noun('node', most)} by the proven bounds"
        )
    yield from found.notes
    if found.less is not None:
        yield _format_less(found.less, found.inventory.margin)
    if price is not None:
        yield f"{nodes} at {price:,g} a month: {found.nodes * price:,.2f} a month"


def _format_less(less: Less, margin: float) -> str:
    """Why the tree has no layer less."""
    rate = f"{float(less.rate):,.4g}"
    if len(less.layers) == 1:
        tree, node = "one child alone", "it"
    else:
        tree, node = f"one layer less ({_widths(less.layers)})", "the root"
    if less.lost:
        return (
            f"with {tree}, {node} would get {rate} items/s but takes at most {less.limit:,g}: "
            f"{less.lost:.0%} of the items would have to wait at the sources, and the backlog would only grow"
        )
    return (
        f"with {tree}, {node} would get {rate} items/s: more than {less.limit * (1 - margin):,.4g}, "
        f"its limit of {less.limit:,g} less the margin"
    )


def _compare(name: str, found: Sequence[tuple[int, Plan]], price: float | None, out: Console) -> None:
    table = Table(title=f"{name}: what if", title_justify="left", title_style="")
    for column in ("sources", "items/s", "layers", "nodes", "headroom", *(["a month"] if price else [])):
        table.add_column(column, justify="left" if column == "layers" else "right")
    for count, each in found:
        least = min(float(layer.headroom.min()) for layer in each.layers)
        cost = [f"{each.nodes * price:,.2f}"] if price else []
        rate = f"{float(each.load):,g}"
        table.add_row(f"{count:,}", rate, _widths(each.widths), f"{each.nodes:,}", f"{least:.1%}", *cost)
    out.print(table)


def _widths(widths: Sequence[int]) -> str:
    return " ".join(map(str, widths))


def _noun(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"
