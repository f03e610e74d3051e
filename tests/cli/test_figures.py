"""What a run measures: latencies, rates, shares of events, and whether everything adds up."""

from __future__ import annotations

import asyncio
import copy
import html
import io
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from headwater.topology import topology_of
from headwater_cli import demo, launch
from headwater_cli.feeds import PERIOD, Generated, Kept, Repeated
from headwater_cli.generator import SECOND, Sensor, limited, needed
from headwater_cli.inputwarnings import input_warnings
from headwater_cli.latency import Latency
from headwater_cli.picture import Picture, Row
from headwater_cli.processes import Process
from headwater_cli.rates import Rates
from headwater_cli.run import Run
from headwater_cli.summary import Layer, Summary, size, told
from headwater_cli.times import moment
from headwater_source import Source
from headwater_source.columns import Events
from tests.patience import PATIENCE

LATENESS = {"a": 2, "b": 0, "c": 5}


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(-20, 40)), max_size=25),
    st.lists(st.integers(-20, 40), max_size=6),
)
@settings(max_examples=200)
def test_latency_counts_from_when_the_last_source_is_beyond_the_window(
    handed: list[tuple[str, int]], ends: list[int]
) -> None:
    latency = Latency(len(LATENESS))
    for at, (source, largest) in enumerate(handed):
        latency.handed(source, largest - LATENESS[source], float(at))
    out = float(len(handed))
    expected = []
    for end in ends:
        latency.came_out(end, out)
        beyond = [
            next((at for at, (s, largest) in enumerate(handed) if s == name and largest - late >= end), None)
            for name, late in LATENESS.items()
        ]
        moments = [at for at in beyond if at is not None]
        if len(moments) == len(beyond):
            expected.append(out - max(moments))
    expected.sort()
    found = latency.quantiles(0.0, 0.5, 1.0)
    assert found == ([expected[0], expected[len(expected) // 2], expected[-1]] if expected else [])


def test_a_window_that_came_before_all_sources_were_there_is_left_out() -> None:
    latency = Latency(1)
    latency.handed("a", 10, 5.0)
    latency.came_out(10, 4.0)
    assert latency.quantiles(0.5) == []


def test_a_source_that_is_given_up_holds_no_window_up() -> None:
    latency = Latency(3)
    latency.handed("a", 10, 1.0)
    latency.handed("b", 30, 2.0)
    latency.give_up("never came", 3.0)
    latency.came_out(10, 4.0)
    latency.give_up("a", 5.0)
    assert latency.reached == 30
    latency.came_out(30, 7.0)
    assert latency.quantiles(0.0, 1.0) == [1.0, 2.0]
    latency.give_up("b", 8.0)
    assert latency.reached == 30


@given(st.lists(st.floats(0.1, 5_000), min_size=1, max_size=30), st.integers(1, 100_000))
@settings(max_examples=200)
def test_sensors_share_the_events_by_their_rates(rates: list[float], events: int) -> None:
    sensors = [Sensor(f"s{n}", "", rate, 0, n) for n, rate in enumerate(rates)]
    found = limited(sensors, events)
    assert sum(sensor.limit or 0 for sensor in found) == events
    total = sum(sensor.rate for sensor in sensors)
    for sensor in found:
        assert abs((sensor.limit or 0) - events * sensor.rate / total) <= 2
        assert sensor.until(needed(found)) >= (sensor.limit or 0)
    # All of them end together: none is done long before the others.
    assert needed(found) <= events / total + 2 + 2 / min(rates)


def test_a_sensor_sends_as_many_events_as_it_may_and_the_same_ones_again() -> None:
    sensor = Sensor("s", "", 10, 0, 7, limit=25)
    sent = list(sensor.seconds(9))
    assert [len(second.ts) for second in sent] == [10, 10, 5]
    assert [second.ts for second in sensor.seconds(9)] == [second.ts for second in sent]


def test_seconds_that_come_again_are_the_first_ones_later() -> None:
    sensor = Sensor("s", "", 40, 1_000, 3)
    first = list(Generated(sensor, PERIOD).parts())
    again = list(Repeated(sensor, 2 * PERIOD + 1).parts())
    assert len(again) == 2 * PERIOD + 2
    for number, part in enumerate(again[:-1]):
        one, later = first[number % PERIOD], number // PERIOD * PERIOD * SECOND
        assert part.ts.tolist() == (one.ts + later).tolist()
        assert repr(part.value.tolist()) == repr(one.value.tolist())
        assert repr((part.key, part.mark)) == repr((one.key, one.mark))
    assert again[-1].ts[0] > max(part.ts.max() for part in again[:-1])


def test_rates_are_of_late() -> None:
    rates = Rates()
    assert rates.rate("x") == 0
    for at in range(10):
        rates.take(at, {"x": 10 * at if at < 5 else 50 + 100 * (at - 5)})
    assert rates.rate("x") == 100
    assert rates.rate("unknown") == 0


def test_what_does_not_add_up_is_said() -> None:
    summary = Summary("plant", 2, sent=10, counted=7, late=1, rejected=1, differing=3, failed={"l1-0": 3})
    summary.judge()
    assert not summary.ok
    assert summary.problems == [
        "10 events were sent, but 9 are counted, late or rejected",
        "3 windows differ from the oracle",
        "l1-0 ended with code 3",
    ]
    summary.counted, summary.differing, summary.failed = 8, 0, {}
    summary.judge()
    assert summary.ok
    summary.counted, summary.unread = 5, 4
    summary.judge()
    assert summary.problems == ["10 events were sent, but 7 are counted, late or rejected and 4 not read"]


def test_late_and_rejected_events_are_explained() -> None:
    first = _closing(Summary("plant", 8, sent=80_000, counted=79_802, late=159, rejected=39))[0]
    assert first == (
        "80,000 events sent: 79,802 counted, 159 late (older than lateness allows), "
        "39 rejected (bad value or time)"
    )
    assert _closing(Summary("plant", 8, sent=7, counted=7))[0] == (
        "7 events sent: 7 counted, 0 late, 0 rejected"
    )


def test_an_input_of_which_much_is_in_no_window_is_warned_of() -> None:
    second, day = 1_000_000, 86_400_000_000
    assert list(input_warnings(1_000, 10, 10, 59 * second)) == []
    late, rejected = input_warnings(1_000, 11, 500, 59 * second)
    assert late == (
        "11 of 1,000 events are late and in no window, up to 59 s behind an earlier event of their "
        "source: sort the input by time, or raise lateness"
    )
    assert rejected.startswith("500 of 1,000 events are rejected and in no window: ")
    (both,) = input_warnings(10, 9, 0, 3 * day)
    assert both.endswith(
        "up to 3 days behind an earlier event of their source: sort the input by time, or raise lateness; "
        "see that all times have the same unit"
    )


def test_windows_that_were_not_printed_are_found_elsewhere() -> None:
    summary = Summary("plant", 8, windows=323, printed=111)
    assert _closing(summary)[-1] == "111 of 323 windows were printed; --output DIR keeps all"
    summary.output = "kept"
    assert _closing(summary)[-1] == "results: kept  (headwater results kept); 111 of 323 windows were printed"
    for printed in (None, 323):
        summary.printed = printed
        assert _closing(summary)[-1] == "results: kept  (headwater results kept)"


def _closing(summary: Summary) -> list[str]:
    console = Console(record=True, width=100, file=io.StringIO())
    told(summary, console)
    return console.export_text().splitlines()


def test_an_interrupted_run_counts_the_heartbeats_that_were_sent_and_no_others() -> None:
    run = Run(demo.topology(), demo.DOCUMENT, children=1, layers=[], seconds=600)
    done, going = Sensor("done", "", 10, 0, 1), Sensor("going", "", 10, 0, 2)
    # Of a process that does not listen: what is sent stays in the spools.
    child, root = Process("child", [], port=1), Process("root", [])
    run.local.processes = [root]

    async def interrupted() -> None:
        feeding = [
            asyncio.create_task(run.senders._feed(feed, child))
            for feed in (Generated(done, 0), Generated(going, 600))
        ]
        while "done" not in run.senders.tally.ended or run.senders.tally.records.get("going", 0) < 10:
            await asyncio.sleep(0.01)
        for task in feeding:
            task.cancel()
        await asyncio.gather(*feeding, return_exceptions=True)
        for client in run.senders.clients:
            await client.stop()

    try:
        asyncio.run(interrupted())
        sent = run.senders.tally.records["going"]
        assert sent >= 10
        for heartbeats in (0, 1):
            root.last = {"counted": 7 + heartbeats, "heartbeats": heartbeats, "late": 2}
            run._sum_up({})
            assert (run.summary.sent, run.summary.counted, run.summary.late) == (sent, 7, 2)
    finally:
        run.clean()


def test_a_full_spool_of_a_source_that_is_fenced_makes_nobody_wait(tmp_path: Path) -> None:
    run = Run(demo.topology(), demo.DOCUMENT, children=1, layers=[], seconds=600)

    async def given() -> None:
        # Nobody listens there, so nothing of the spool is ever counted.
        source = Source("s", "127.0.0.1:1", spool=tmp_path / "s", spool_bytes=1 << 16, without_keys=True)
        source.open()
        client = source.start()
        run.senders.clients = [client]
        feed, ts = Kept("s", "", 0), np.arange(100_000)
        giving = asyncio.create_task(run.senders._give(feed, source, Events(ts, np.ones(len(ts)))))
        while not source.accepted:
            await asyncio.sleep(0.01)
        client.machine.fenced = "it is in quarantine"
        async with asyncio.timeout(PATIENCE):
            accepted = await giving
        assert run.senders.fenced == {"s": "it is in quarantine"}
        assert 0 < accepted == run.senders.tally.records["s"] == source.accepted < len(ts)
        await source.close()

    try:
        asyncio.run(given())
    finally:
        run.clean()


def test_the_picture_and_the_closing_lines() -> None:
    console = Console(record=True, width=100, file=io.StringIO())
    rows = [
        Row("sources", 12, 2_000.4, None, 71_234.0, None),
        Row("root", 1, 1_999.0, 1_990.0, None, 300_000),
    ]
    watermark = 1_700_000_000_500_000
    console.print(Picture("plant", rows, watermark, 300_000, 1_234, 56.0, (80.2, 120.9), ["window"]))
    layers = [Layer("children", 2, 123, 0.0123)]
    told(Summary("plant", 2, raw_bytes=10_000, layers=layers, differing=0), console)
    text = console.export_text()
    assert "watermark 2023-11-14 22:13:20.500, 0.3 s behind the sources\n" in text
    assert "1,234 windows, 56/s; latency p50 80 ms, p99 121 ms" in text
    assert "71.2 kB" in text
    assert "sources to children  10.0 kB raw\nchildren to root     123 B (1.2% of raw)\n" in text
    assert "every window equals the oracle" in text


@pytest.mark.parametrize(
    "window, says",
    [
        ({}, "the input has ended, and all windows are closed"),
        (
            {"length": "2d"},
            "the input has ended, and all windows that end up to 2023-11-14 22:13:20.000 are closed",
        ),
    ],
)
def test_the_last_picture_has_the_end_in_place_of_a_watermark_beyond_it(
    window: dict[str, str], says: str
) -> None:
    document = copy.deepcopy(demo.DOCUMENT)
    document["spec"]["queries"][0]["window"] = {"type": "tumbling", "length": "10s"} | window
    run = Run(topology_of(document), document, children=1, layers=[], seconds=600)
    root, ended = Process("root", []), run.senders.tally.ended
    run.local.processes = [root]
    watermark = 1_700_000_000_000_000
    try:
        names = [feed.name for feed in run.senders.feeds]
        for name in names:
            run._latency.handed(name, watermark, 0.0)
        root.last = {"watermark": watermark}
        ended |= set(names[1:])
        assert "watermark 2023-11-14 22:13:20.000, 0.0 s behind the sources" in _text(run.picture())
        ended |= set(names)
        assert f"{says}\n" in _text(run.picture())
        assert "watermark" not in _text(run.picture())
        assert "Watermark" not in str(run.picture().legend())
        # The root has not heard all of them yet.
        root.last = {"watermark": watermark - 1}
        assert "watermark 2023-11-14 22:13:19.999" in _text(run.picture())
    finally:
        run.clean()


def _text(picture: Picture) -> str:
    console = Console(record=True, width=110, file=io.StringIO())
    console.print(picture)
    return console.export_text()


def test_a_recorded_picture_explains_itself(tmp_path: Path) -> None:
    rows = [Row("sources", 12, None, 2_000.0, 7.0, None), Row("root", 1, 1.0, None, None, 0, headroom=-0.1)]
    path = tmp_path / "run.svg"
    launch._save(path, Picture("plant", rows, None, None, 0, 0.0), Summary("plant", 2, differing=0))
    pieces = re.findall(r'<text class="(\S+)" [^>]*>([^<]*)</text>', path.read_text())
    text = " ".join(" ".join(html.unescape(piece) for _, piece in pieces).split())
    for word in (
        "Rows are the tree: ",
        "in: ",
        "out: ",
        "up: ",
        "lag: ",
        "Watermark: ",
        "Latency: ",
        "Headroom: ",
    ):
        assert word in text
    # Colours are shown in themselves: as the share that is below zero, and as the line of the oracle.
    style = {" ".join(html.unescape(piece).split()): kind for kind, piece in pieces}
    assert style["red"] == style["-10%"]
    assert style["green"] == style["every window equals the oracle"]


@pytest.mark.parametrize(
    "count, words",
    [(0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (2_500_000, "2.5 MB"), (3e12, "3,000.0 GB")],
)
def test_sizes_are_readable(count: float, words: str) -> None:
    assert size(count) == words


def test_times_are_readable_as_far_as_there_is_a_calendar() -> None:
    assert moment(0) == "1970-01-01 00:00:00.000"
    assert moment(-1_000) == "1969-12-31 23:59:59.999"
    assert moment(1 << 62) == f"{1 << 62:,}"
