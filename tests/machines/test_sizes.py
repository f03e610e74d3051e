"""Sizes: a batch is bounded by bytes, however many layers gather."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.events import Batch
from headwater.machines import sizes
from headwater.machines.messages import (
    Ask,
    Columns,
    Delivery,
    Registered,
    Send,
    Standing,
    Stream,
    Tell,
)
from headwater.machines.node import NodeMachine, Settings
from headwater.node import Node
from headwater.prefix import Prefix
from headwater.queries import Query
from headwater.windows import Session, Sliding, Tumbling
from tests.machines.test_delivery import QUERIES
from tests.machines.world import CODEC, World

# What holds values, and what is forwarded as it is: both grow with the events.
GROWING = [Query("t", Tumbling(1_000), "median"), Query("n", Tumbling(count=700), "sum")]
BOUND = 1_000


class Weighed(World):
    """A world that looks at each batch."""

    largest = 0

    def _send(self, sender: str, sends: Sequence[Send]) -> None:
        for send in sends:
            if isinstance(send.message, Delivery):
                self.largest = max(self.largest, sizes.of_partial(send.message.partial))
        super()._send(sender, sends)


@pytest.mark.parametrize("seed", range(6))
def test_no_layer_makes_larger_batches_than_the_one_below(seed: int) -> None:
    world = Weighed(seed, GROWING, faults=12, above=2)
    # Answers take long: much is gathered meanwhile.
    world.delay = 20
    world.run()
    world.check()
    assert BOUND / 2 < world.largest <= BOUND + sizes.SPAN * len(world.sources)


@settings(max_examples=60)
@example(records=1, keys=4, span=1, seed=0)
@given(st.integers(1, 3_000), st.integers(1, 300), st.integers(1, 2_000), st.integers(0, 2**32 - 1))
def test_what_is_gathered_and_what_is_sent_weigh_as_they_seem(
    records: int, keys: int, span: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    asked = [
        *QUERIES,
        Query("v", Sliding(40, 20), ["median", "mode"], key_by="key"),
        Query("w", Session(7), ["quantile(0.9)", "sum"], key_by="key"),
    ]
    node = Node(asked)
    node.admit("s", lateness=10_000)
    names = tuple(f"key {number}" for number in range(keys))
    node.push(
        Batch(
            "s",
            1,
            rng.integers(0, span, records),
            rng.normal(size=records),
            key=rng.integers(0, keys, records).astype(np.int32),
            keys=names,
        )
    )
    gathered = sizes.of_gathered(node, records)
    assert gathered <= records * sizes.of_record(node)[1]
    partial = node.flush()
    sent = sizes.of_partial(partial)
    cells = len(partial.parts) * (records + keys) * 20
    assert sent <= gathered + cells + sizes.SPAN + 2 * sizes.MARK * len(asked) * (keys + 1)
    message = CODEC.encode("a", "b", Delivery(Stream("a", 1, 1), "id", 0, partial))
    encoded = len(message.SerializeToString())
    assert encoded <= 1.2 * sent + 2_000


def told(machine: NodeMachine, sends: Sequence[Send]) -> list[Send]:
    """Tell a node that a source stands at its beginning, where it asks for it."""
    out: list[Send] = []
    for send in sends:
        if isinstance(send.message, Ask):
            ask = send.message
            standings = {name: Standing(Prefix(opening="o"), 0, "") for name in ask.sources}
            out += machine.step("p", Tell(ask.stream, ask.lane, standings), 0)
    return out


def test_a_child_cuts_columns_that_are_larger_than_a_batch() -> None:
    bound, count = 40_000, 9_000
    given = Settings(batch_bytes=bound, under_way=3)
    machine = NodeMachine("c", "p", given, child=True, token="t")
    machine.step("root", Registered("c", "t", 1, tuple(GROWING)), 0)
    ts = np.arange(count)
    batch = Batch("s", 1, ts, np.ones(count))
    columns = Columns(Stream("s", 0, 1), "s/1", batch, "o")
    sends = told(machine, machine.step("s", columns, 0))
    deliveries = [send.message for send in sends if isinstance(send.message, Delivery)]
    # What is said of the source and the windows comes on top. One more than usual is under way, since the
    # source is waited for; one is gathered, and the rest waits until they are answered.
    assert len(deliveries) == given.under_way + 1
    assert all(sizes.of_partial(each.partial) <= bound + 2 * sizes.SPAN for each in deliveries)
    assert machine.read == 5 * count // 9
    assert machine.sources["s"].position == machine.read
