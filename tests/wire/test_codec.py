"""What is said over the wire is what was meant: every batch and every partial, and nothing impossible."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.events import Batch
from headwater.machines import messages as said
from headwater.machines.messages import Crowded, Fenced, Hello, Probe, Registered, Silent
from headwater.machines.records import Quarantined, Record, Released
from headwater.machines.stalls import Reason, Stall
from headwater.node import Node
from headwater.partials import Partial
from headwater.prefix import MarkState, Prefix
from headwater.queries import Query
from headwater.sources import SourceId
from headwater.windows import Tumbling
from headwater_wire import events, partials, records
from headwater_wire.errors import Malformed
from headwater_wire.messages import LATENESS_LIMIT, Codec
from headwater_wire.v1 import events_pb2, partials_pb2
from tests.harness import Network, batch_of
from tests.strategies import Stream, cases, streams, trees
from tests.test_engine import run


class WiredNetwork(Network):
    """A tree whose nodes hear nothing but bytes."""

    def push(self, batch: Batch) -> None:
        message = events_pb2.Events()
        message.ParseFromString(events.encode(batch).SerializeToString())
        super().push(events.decode(message))

    def carried(self, partial: Partial) -> Partial:
        message = partials_pb2.Partial()
        message.ParseFromString(partials.encode(partial).SerializeToString())
        return partials.decode(message)


@given(st.data(), cases())
def test_a_tree_over_the_wire_is_exact(data: st.DataObject, case: tuple[list[Query], list[Stream]]) -> None:
    run(data, case, data.draw(trees(len(case[1]))), WiredNetwork)


@given(streams(max_sources=2))
def test_a_batch_arrives_as_it_was(drawn: list[Stream]) -> None:
    for _, sent in drawn:
        if not sent:
            continue
        batch = batch_of(sent)
        message = events_pb2.Events()
        message.ParseFromString(events.encode(batch).SerializeToString())
        arrived = events.decode(message)
        assert (arrived.source, arrived.first, arrived.keys, arrived.marks) == (
            batch.source,
            batch.first,
            batch.keys,
            batch.marks,
        )
        for name in ("ts", "value", "key", "mark", "bare"):
            was, now = getattr(batch, name), getattr(arrived, name)
            assert (was is None) == (now is None)
            if was is not None:
                np.testing.assert_array_equal(was, now)


def test_times_near_each_other_cost_four_bytes() -> None:
    ts = np.arange(1_000) + 1_700_000_000_000_000
    message = events.encode(Batch("s", 1, ts, np.ones(1_000)))
    assert message.ByteSize() < 12.1 * 1_000
    far = events.encode(Batch("s", 1, np.array([-(1 << 62), 1 << 62]), np.ones(2)))
    assert far.WhichOneof("ts") == "ts_int64"


@pytest.mark.parametrize("names,bytes_", [(1, 1), (256, 1), (257, 2), (65_536, 2), (65_537, 4)])
def test_codes_take_as_few_bytes_as_hold_them(names: int, bytes_: int) -> None:
    keys = tuple(f"k{n}" for n in range(names))
    batch = Batch("s", 1, np.zeros(3, np.int64), np.ones(3), key=np.array([0, names - 1, 0]), keys=keys)
    message = events.encode(batch)
    assert len(message.key) == 3 * bytes_
    arrived = events.decode(message)
    assert arrived.key is not None
    assert arrived.key.tolist() == [0, names - 1, 0]


def good() -> events_pb2.Events:
    return events.encode(
        Batch.from_records("s", 5, [(1, "a", 1.0, None), (2, "b", None, "go"), (3, "a", 2.0, None)])
    )


@pytest.mark.parametrize(
    "field,change",
    [
        ("count", {"count": 0}),
        ("count", {"count": events.EVENT_LIMIT + 1}),
        ("first", {"first": 0}),
        ("value", {"value": b"123"}),
        ("ts_offsets", {"count": 2}),
        ("key", {"key": b"\x00\x01\x07"}),
        ("mark", {"mark": b"\x00\x02\x00"}),
        ("bare", {"bare": b"\x00\x00"}),
        ("source", {"source": ""}),
    ],
)
def test_impossible_events_are_refused(field: str, change: dict[str, object]) -> None:
    message = good()
    for name, value in change.items():
        setattr(message, name, value)
    with pytest.raises(Malformed, match=field):
        events.decode(message)


def test_impossible_partials_are_refused() -> None:
    node = Node([Query("q", Tumbling(10), "sum", key_by="key")])
    node.admit("s", lateness=0)
    node.push(batch_of_keys())
    message = partials.encode(node.flush())
    unknown = partials_pb2.Partial()
    unknown.CopyFrom(message)
    unknown.vector[0].source = 7
    with pytest.raises(Malformed, match="source"):
        partials.decode(unknown)
    short = partials_pb2.Partial()
    short.CopyFrom(message)
    short.parts[0].sliced.selections[0].start_int64 = b"12345678"
    with pytest.raises(Malformed):
        partials.decode(short)
    outside = partials_pb2.Partial()
    outside.CopyFrom(message)
    outside.parts[0].sliced.places.Clear()
    with pytest.raises(Malformed, match="code_int64"):
        partials.decode(outside)


def batch_of_keys() -> Batch:
    return Batch.from_records("s", 1, [(1, "a", 1.0, None), (2, "b", 2.0, None)])


HELLO = Hello("pump", "spool", "opening", 0, 2, 5, "hall", 2_000_000, "nonce", "child", "other")


def test_a_hello_comes_as_it_was_said() -> None:
    codec = Codec()
    for hello in (HELLO, replace(HELLO, site="", echo="nonce"), replace(HELLO, name="é" * 126)):
        assert codec.decode(codec.encode("pump", "root", hello)) == hello


@pytest.mark.parametrize("name", ["", "a" * 254, "é" * 127, "pump\0", "pump\x000000000002", "two\nlines"])
def test_a_hello_by_an_impossible_name_is_refused(name: str) -> None:
    codec = Codec()
    with pytest.raises(Malformed, match=r"^name: "):
        codec.decode(codec.encode("pump", "root", replace(HELLO, name=name)))
    if name:
        with pytest.raises(Malformed, match=r"^site: "):
            codec.decode(codec.encode("pump", "root", replace(HELLO, site=name)))


def test_a_hello_that_would_hold_the_fleet_up_for_ever_is_refused() -> None:
    codec = Codec()
    longest = replace(HELLO, lateness=LATENESS_LIMIT)
    assert codec.decode(codec.encode("pump", "root", longest)) == longest
    for lateness in (LATENESS_LIMIT + 1, 2**63 - 1):
        with pytest.raises(Malformed, match=r"^lateness: "):
            codec.decode(codec.encode("pump", "root", replace(HELLO, lateness=lateness)))


@pytest.mark.parametrize("field", ["spool", "opening", "echo", "via", "avoid"])
def test_a_hello_with_endless_words_is_refused(field: str) -> None:
    codec, words = Codec(), dict[str, Any]([(field, "x" * 254)])
    with pytest.raises(Malformed, match=f"^{field}: is too long"):
        codec.decode(codec.encode("pump", "root", replace(HELLO, **words)))


@pytest.mark.parametrize(
    "field, numbers",
    [
        ("head", {"head": 2**63}),
        ("head", {"head": 2**64 - 1, "base": 2**64 - 1}),
        ("head", {"head": 2**64 - 1, "opened_at": 2**64 - 1}),
        ("base", {"base": 6}),
        ("base", {"base": 2**64 - 1}),
        ("opened_at", {"opened_at": 6}),
        ("opened_at", {"opened_at": 2**64 - 1}),
    ],
)
def test_a_hello_with_numbers_that_no_spool_has_is_refused(field: str, numbers: dict[str, Any]) -> None:
    codec = Codec()
    with pytest.raises(Malformed, match=f"^{field}: is "):
        codec.decode(codec.encode("pump", "root", replace(HELLO, **numbers)))


@pytest.mark.parametrize(
    "numbers",
    [
        {"base": 5, "opened_at": 5},
        # What was there at the opening may be counted and trimmed by now.
        {"base": 4, "opened_at": 3},
        {"base": 2**63 - 1, "opened_at": 2**63 - 1, "head": 2**63 - 1},
    ],
)
def test_a_hello_with_the_numbers_of_a_spool_is_taken(numbers: dict[str, Any]) -> None:
    codec, hello = Codec(), replace(HELLO, **numbers)
    assert codec.decode(codec.encode("pump", "root", hello)) == hello


STREAM = said.Stream("c", 3, 1)


@pytest.mark.parametrize(
    "field, message",
    [
        ("generation", said.Register("c", "token", True, "here:1", 2**63)),
        ("generation", said.Leave("c", 2**64 - 1)),
        ("generation", Registered("c", "token", 2**63)),
        ("stream.generation", said.Ack(said.Stream("c", 2**63, 1), "1")),
        ("stream.number", said.Ack(said.Stream("c", 1, 2**63), "1")),
        ("version", said.Ask(STREAM, 0, (), 2**63)),
        ("version", Probe(STREAM, "1", 0, {}, (), 2**63)),
        ("version", said.Delivery(STREAM, "1", 0, Partial(version=2**63, signature=""))),
        ("echo.term", Probe(STREAM, "1", 0, {}, (), echoes=(said.Echo(2**63, "n", 1),))),
        ("echo.position", Probe(STREAM, "1", 0, {}, (), echoes=(said.Echo(1, "n", 2**63),))),
        ("position", Probe(STREAM, "1", 0, {"s": Prefix(2**63)}, ())),
        ("skips", Probe(STREAM, "1", 0, {"s": Prefix(1, skips=frozenset({2**63}))}, ())),
        (
            "barrier.number",
            Probe(STREAM, "1", 0, {"s": Prefix(1)}, (), barriers={"s": said.Barrier(2**63, "o")}),
        ),
        ("position", said.Commit(STREAM, {"s": 2**63}, None)),
        ("offset", said.Welcome("opening", "s", 2**63, "c", "here:1")),
        ("generation", Silent("c", 2**63, "s", Prefix(1))),
        ("generation", Crowded("c", 2**63, "s", Prefix(1), 5)),
        ("keys", Crowded("c", 3, "s", Prefix(1), 2**63)),
    ],
)
def test_a_number_that_nothing_can_have_is_refused(field: str, message: said.Message) -> None:
    codec = Codec()
    envelope = codec.encode("c", "root", message)
    with pytest.raises(Malformed, match=rf"^{field}: is \d+; send a number below 2\^63$"):
        codec.decode(envelope)


def test_a_welcome_says_by_which_column_queries_compute() -> None:
    codec, source = Codec(), str(SourceId("s", 1))
    sent = said.Welcome("opening", source, 7, "c", "here:1", "machine")
    envelope = codec.encode("root", "c", sent)
    assert codec.decode(envelope) == sent
    # That there is none is said too.
    none = replace(sent, key_by="")
    assert codec.decode(codec.encode("root", "c", none)) == none
    # A root of the release before does not say it, and a child of it drops it: what is passed on is unknown.
    envelope.welcome.ClearField("key_by")
    unknown = codec.decode(envelope)
    assert unknown == replace(sent, key_by=None)
    assert codec.decode(codec.encode("c", "s", unknown)) == unknown


def test_a_child_says_what_keeps_its_sources() -> None:
    codec, source = Codec(), str(SourceId("s", 1))
    stalls = (
        Stall(source, Reason.FUTURE, 5, record=1_204),
        Stall(source, Reason.SILENT, 7, idle_in=9),
        Stall(source, Reason.BACKPRESSURE, 1, node="fog-3"),
    )
    sent = said.Register("c", "token", True, "here:1", stalls=stalls)
    envelope = codec.encode("c", "root", sent)
    assert codec.decode(envelope) == sent
    # A child of the release before does not say which record it is.
    envelope.register.stalls[0].ClearField("record")
    assert codec.decode(envelope) == replace(sent, stalls=(stalls[0]._replace(record=0), *stalls[1:]))


PREFIX = Prefix(7, 60, {"o": {None: MarkState(2, 55)}}, frozenset({9}), "opening")


@pytest.mark.parametrize(
    "message",
    [
        Crowded("c", 3, str(SourceId("pump", 2)), PREFIX, 2**40),
        Silent("c", 3, str(SourceId("pump", 2)), PREFIX),
        Registered("c", "token", 3, assigned=(str(SourceId("pump", 2)),), keys_per_source=100_000),
        Registered("c", "token", 0, nonce="nonce"),
        Fenced("pump", "opening", "why"),
        Fenced("pump", "opening", "why", quarantined=True),
    ],
)
def test_what_a_child_and_the_root_say_of_sources_comes_as_it_was_said(
    message: Crowded | Silent | Registered | Fenced,
) -> None:
    codec = Codec()
    assert codec.decode(codec.encode("c", "root", message)) == message


def test_a_report_without_where_the_source_stands_is_refused() -> None:
    codec = Codec()
    envelope = codec.encode("c", "root", Crowded("c", 3, "pump", PREFIX, 5))
    envelope.crowded.source.ClearField("prefix")
    with pytest.raises(Malformed, match=r"^source\.prefix: is missing"):
        codec.decode(envelope)


@pytest.mark.parametrize(
    "body", [Quarantined(str(SourceId("pümp", 2)), "it has brought 4 distinct keys"), Released("pümp")]
)
def test_a_quarantine_is_read_from_the_log_as_it_was_written(body: Quarantined | Released) -> None:
    for watermark in (None, -5):
        record = Record(body, watermark, 3)
        assert records.decode(records.encode(record), Codec()) == record
