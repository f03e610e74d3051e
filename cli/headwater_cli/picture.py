"""The picture of a run: layers with their rates, the watermark, and the windows that came out last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Group
from rich.table import Table
from rich.text import Text

from headwater_cli.summary import ALARM, GOOD, size
from headwater_cli.times import moment, seconds

# Of how many nodes the headroom is shown, those that have the least.
NODES = 12
# What explains is not in the way of what is shown.
LEGEND = "dim"


@dataclass(frozen=True, slots=True)
class Row:
    """A layer: rates a second, and how far it is behind the sources in event time (microseconds).

    What came in was read; what went out of a node is what the root has counted of it, as far as it has heard.
    """

    layer: str
    nodes: int
    events_in: float | None
    events_out: float | None
    bytes_up: float | None
    lag: int | None
    # Of the node that has the least, as a share of its limit.
    headroom: float | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """A run at a moment, from the sources up; rates are of late, or of the whole run once it is over."""

    topology: str
    rows: Sequence[Row]
    watermark: int | None
    lag: int | None
    windows: int
    windows_a_second: float
    latency: tuple[float, float] | None = None
    latest: Sequence[str] = field(default_factory=tuple)
    # Where Spark shows itself, if it does.
    page: str | None = None
    # Of each node, as a share of its limit.
    headroom: Mapping[str, float] = field(default_factory=dict)
    # In place of the watermark, once the input has ended: it lies beyond all events then.
    end: str | None = None

    def __rich__(self) -> Group:
        latest = Text("\n".join(self.latest), no_wrap=True, overflow="ellipsis")
        return Group(self._layers(), *self._lines(), latest)

    def legend(self) -> Text:
        """What rows, columns and colours mean, for a picture that is looked at without this program."""
        says = (
            "Rows are the tree: events go from the sources through each layer of nodes to the root, which "
            "gives the windows. in: events received; out: of these, counted by the root (of sources: sent); "
            "up: bytes sent to the next row; lag: event time behind the sources. "
        )
        if self.end is None:
            says += "Watermark: windows that end before it are complete. "
        says += "Latency: from the last event that a window waits for to its result. "
        if any(row.headroom is not None for row in self.rows):
            says += "Headroom: unused share of the limit, at the fullest node. "
        found = Text().append(f"{says}Colours: ", style=LEGEND)
        found.append("red", style=ALARM).append(" is an overrun node or a problem, ", style=LEGEND)
        found.append("green", style=GOOD).append(" a check that the run has passed.", style=LEGEND)
        return found

    def _layers(self) -> Table:
        table = Table(title=f"headwater: {self.topology}", title_justify="left")
        columns = ["layer", "nodes", "events/s in", "events/s out", "bytes/s up", "lag"]
        planned = any(row.headroom is not None for row in self.rows)
        for column in [*columns, "headroom"] if planned else columns:
            table.add_column(column, justify="left" if column == "layer" else "right")
        for row in self.rows:
            table.add_row(
                row.layer,
                f"{row.nodes:,}",
                "" if row.events_in is None else f"{row.events_in:,.0f}",
                "" if row.events_out is None else f"{row.events_out:,.0f}",
                "" if row.bytes_up is None else size(row.bytes_up),
                "" if row.lag is None else seconds(row.lag),
                *([_left(row.headroom)] if planned else []),
            )
        return table

    def _lines(self) -> Iterator[Text]:
        line = "no watermark yet"
        if self.end is not None:
            line = self.end
        elif self.watermark is not None:
            behind = "" if self.lag is None else f", {seconds(self.lag)} behind the sources"
            line = f"watermark {moment(self.watermark)}{behind}"
        yield Text(line)
        line = f"{self.windows:,} windows, {self.windows_a_second:,.0f}/s"
        if self.latency is not None:
            line += f"; latency p50 {self.latency[0]:,.0f} ms, p99 {self.latency[1]:,.0f} ms"
        yield Text(line)
        if self.headroom:
            least = sorted(self.headroom.items(), key=lambda found: found[1])
            shown = ", ".join(f"{name} {left:.0%}" for name, left in least[:NODES])
            more = f", {len(least) - NODES} nodes with more" if len(least) > NODES else ""
            yield Text(f"headroom: {shown}{more}")
        if self.page is not None:
            yield Text(f"Spark: {self.page}")


def _left(headroom: float | None) -> Text:
    if headroom is None:
        return Text("")
    return Text(f"{headroom:.0%}", style=ALARM if headroom < 0 else "")
