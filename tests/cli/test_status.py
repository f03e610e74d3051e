"""How `headwater status` shows what a root says."""

from __future__ import annotations

import pytest
from rich.console import Console

from headwater_cli import status
from headwater_wire.v1 import control_pb2 as pb

SILENT, EXPECTED = pb.Hold.REASON_SILENT, pb.Hold.REASON_EXPECTED


@pytest.mark.parametrize(
    "holding, reasons, title",
    [
        (1, [SILENT], "Windows wait for 1 source"),
        (10, [SILENT] * 10, "Windows wait for 10 sources"),
        (1_200, [SILENT] * 10, "Windows wait for 1,200 sources, the worst 10 first"),
        (1, [EXPECTED], "Windows wait for sources that have not come yet"),
        (3, [EXPECTED, SILENT, SILENT], "Windows wait for sources that have not come yet and 2 sources"),
    ],
)
def test_the_heading_says_what_the_windows_wait_for(
    holding: int, reasons: list[pb.Hold.Reason], title: str
) -> None:
    holds = [pb.Hold(reason=reason) for reason in reasons]
    console = Console(width=160)
    with console.capture() as shown:
        console.print(status.picture(pb.StatusReply(topology="plant", holds=holds, holding=holding)))
    # The heading is broken to the width of the table.
    assert f" {title} ┏" in " ".join(shown.get().split())
