"""The picture of a run: layers with their rates, the watermark, and the windows that came out last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Group
from rich.table import Table
from rich.text import Text

from headwater_cli.summary import size
from headwater_cli.times import moment, seconds


@dataclass(frozen=True, slots=True)
class Row:
    """A layer: rates a second, and how far it is behind the sources in event time (microseconds)."""

    layer: str
    nodes: int
    read: float | None
    counted: float | None
    bytes_up: float | None
    lag: int | None


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

    def __rich__(self) -> Group:
        latest = Text("\n".join(self.latest), no_wrap=True, overflow="ellipsis")
        return Group(self._layers(), self._line(), latest)

    def _layers(self) -> Table:
        table = Table(title=f"headwater: {self.topology}", title_justify="left")
        for column in ("layer", "nodes", "read/s", "counted/s", "bytes/s up", "lag"):
            table.add_column(column, justify="left" if column == "layer" else "right")
        for row in self.rows:
            table.add_row(
                row.layer,
                f"{row.nodes:,}",
                "" if row.read is None else f"{row.read:,.0f}",
                "" if row.counted is None else f"{row.counted:,.0f}",
                "" if row.bytes_up is None else size(row.bytes_up),
                "" if row.lag is None else seconds(row.lag),
            )
        return table

    def _line(self) -> Text:
        parts = ["no watermark yet"]
        if self.watermark is not None:
            behind = "" if self.lag is None else f", {seconds(self.lag)} behind the sources"
            parts = [f"watermark {moment(self.watermark)}{behind}"]
        parts.append(f"{self.windows:,} windows, {self.windows_a_second:,.0f}/s")
        if self.latency is not None:
            parts.append(f"latency p50 {self.latency[0]:,.0f} ms, p99 {self.latency[1]:,.0f} ms")
        return Text("; ".join(parts))
