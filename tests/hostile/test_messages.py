"""What somebody without a certificate sends to real programs: each gets its status, one line and one figure,
and the source that behaves meanwhile loses nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from time import time

import grpc
import numpy as np
import pytest

from headwater.node import Node
from headwater.topology import topology_of
from headwater_cli.feeds import beat
from headwater_source.columns import Events
from headwater_wire.v1 import events_pb2, partials_pb2
from headwater_wire.v1 import tree_pb2 as pb
from tests.hostile import steady
from tests.hostile.ground import Ground, Talker, columns, first, ground
from tests.programs import until
from tests.tree.processes import QUERIES, document

SECOND = 1_000_000
INVALID = grpc.StatusCode.INVALID_ARGUMENT
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with ground(tmp_path_factory.mktemp("plain")) as found:
        yield found
        found.assert_exact()


def events(source: str, ts: list[int], value: list[float], begin: int = 1) -> events_pb2.Events:
    return events_pb2.Events(
        source=source,
        incarnation=1,
        first=begin,
        count=len(ts),
        ts_int64=np.array(ts, "<i8").tobytes(),
        value=np.array(value, "<f8").tobytes(),
    )


def of(name: str, to: str) -> pb.Envelope:
    """An envelope that says nothing yet."""
    return pb.Envelope(sender=name, to=to)


# What cannot be read

Make = Callable[[str, str], bytes | pb.Envelope]


def noise(name: str, to: str) -> bytes:
    return b"\xff" + random.Random(7).randbytes(5_000)


def truncated(name: str, to: str) -> bytes:
    return columns(name, to, events(name, [1, 2, 3], [1.0, 2.0, 3.0])).SerializeToString()[:-5]


def nested(name: str, to: str) -> bytes:
    """Groups in groups, which a reader that goes down into them would not come back from."""
    return of(name, to).SerializeToString() + b"\xa3\x06" * 100_000 + b"\xa4\x06" * 100_000


def nested_query(name: str, to: str) -> pb.Envelope:
    change = pb.Change(kind=pb.Change.KIND_ADD, query="[" * 200_000)
    return pb.Envelope(sender=name, to=to, tell=pb.Tell(changes=[change]))


def nested_state(name: str, to: str) -> pb.Envelope:
    row = partials_pb2.Objects(row=[b'{"()":[' * 100_000])
    column = partials_pb2.Column(objects=row)
    cell = partials_pb2.Selection(
        start_int64=bytes(8), code_int64=bytes(8), states=[partials_pb2.State(columns=[column])]
    )
    sliced = partials_pb2.Sliced(places=partials_pb2.Places(count=1), selections=[cell])
    partial = partials_pb2.Partial(parts=[partials_pb2.Part(group=0, sliced=sliced)])
    return pb.Envelope(sender=name, to=to, delivery=pb.Delivery(partial=partial))


def wrong_enum(name: str, to: str) -> pb.Envelope:
    query = '{"id":"q","aggregate":"sum","window":{"type":"tumbling","length":"1s"}}'
    found = pb.Envelope(sender=name, to=to, tell=pb.Tell(changes=[pb.Change(query=query)]))
    # As a program of another version would write it: enums are open.
    found.tell.changes[0].kind = 77  # type: ignore[assignment]
    return found


def nothing_in_it(name: str, to: str) -> pb.Envelope:
    return pb.Envelope(sender=name, to=to, columns=pb.Columns())


def no_prefix(name: str, to: str) -> pb.Envelope:
    return pb.Envelope(sender=name, to=to, silent=pb.Silent(child=name))


def fewer_values(name: str, to: str) -> pb.Envelope:
    given = events(name, [1, 2, 3], [1.0, 2.0, 3.0])
    given.value = given.value[:-1]
    return columns(name, to, given)


def long_key(name: str, to: str) -> pb.Envelope:
    given = events(name, [1], [1.0])
    given.keys.append("k" * 1_000_000)
    given.key = b"\0"
    return columns(name, to, given)


def number_zero(name: str, to: str) -> pb.Envelope:
    return columns(name, to, events(name, [1], [1.0], 0))


def beyond_all_numbers(name: str, to: str) -> pb.Envelope:
    return columns(name, to, events(name, [1], [1.0], (1 << 63) + 5))


def a_spool_beyond_all_numbers(name: str, to: str) -> pb.Envelope:
    number = (1 << 64) - 1
    hello = pb.Hello(name=name, spool="spool", opening="o", opened_at=number, head=number)
    return pb.Envelope(sender=name, to=to, hello=hello)


def a_spool_that_ends_before_it_begins(name: str, to: str) -> pb.Envelope:
    hello = pb.Hello(name=name, spool="spool", opening="o", base=10, head=5)
    return pb.Envelope(sender=name, to=to, hello=hello)


def beyond_all_generations(name: str, to: str) -> pb.Envelope:
    register = pb.Register(node=name, token="t", address="nowhere:1", generation=(1 << 64) - 1)
    return pb.Envelope(sender=name, to=to, register=register)


def low_above_high(name: str, to: str) -> pb.Envelope:
    """A batch of records behind 10 up to 5."""
    span = partials_pb2.Span(
        source=0, low=partials_pb2.Prefix(position=10), high=partials_pb2.Prefix(position=5)
    )
    source = partials_pb2.Source(code=0, name=steady.NAME, incarnation=1)
    partial = partials_pb2.Partial(sources=[source], vector=[span])
    stream = pb.StreamId(opener=name, number=1, generation=1)
    return pb.Envelope(sender=name, to=to, delivery=pb.Delivery(stream=stream, id="1", partial=partial))


def long_name(name: str, to: str) -> pb.Envelope:
    return pb.Envelope(sender="n" * 1_000_000, to=to, hello=pb.Hello(name=name))


def no_name(name: str, to: str) -> pb.Envelope:
    return pb.Envelope(to=to, hello=pb.Hello(name=name))


UNREADABLE: list[Make] = [
    noise,
    truncated,
    nested,
    nested_query,
    nested_state,
    wrong_enum,
    nothing_in_it,
    no_prefix,
    fewer_values,
    long_key,
    number_zero,
    beyond_all_numbers,
    a_spool_beyond_all_numbers,
    a_spool_that_ends_before_it_begins,
    beyond_all_generations,
    low_above_high,
    long_name,
    no_name,
]


@pytest.mark.parametrize("victim", ["leaf", "mid", "root"])
@pytest.mark.parametrize("make", UNREADABLE)
def test_what_cannot_be_read_ends_the_stream(tree: Ground, victim: str, make: Make) -> None:
    name = f"x-{make.__name__}"
    # Whoever does it again is counted again, and not told of again.
    for _ in range(2 if victim == "leaf" else 1):
        with tree.attacked(victim, "unreadable", name), Talker(tree.programs[victim].port) as talker:
            talker.begin(name)
            talker.say(make(name, victim))
            code, sentence = talker.status()
            assert code is INVALID, sentence
            # The field, the problem and the remedy.
            assert ": " in sentence
            assert "; " in sentence
            assert len(sentence) < 1_000


def test_noise_before_a_name_is_that_of_a_host(tree: Ground) -> None:
    with tree.attacked("leaf", "unreadable", "127.0.0.1"), Talker(tree.programs["leaf"].port) as talker:
        talker.say(noise("", ""))
        assert talker.status()[0] is INVALID


def test_another_version_of_the_protocol(tree: Ground) -> None:
    with tree.attacked("mid", "version", "x-version"), Talker(tree.programs["mid"].port) as talker:
        talker.say(first("x-version", 99))
        assert talker.status()[0] is grpc.StatusCode.FAILED_PRECONDITION


# Sizes


@pytest.mark.parametrize("victim", ["leaf", "root"])
def test_what_is_too_large(tree: Ground, victim: str) -> None:
    with tree.attacked(victim, "too_large", "x-large"), Talker(tree.programs[victim].port) as talker:
        talker.begin("x-large")
        talker.say(bytes(8 << 20))
        assert talker.status()[0] is EXHAUSTED


@pytest.mark.parametrize("victim", ["leaf", "root"])
def test_what_grows_when_it_is_inflated(tree: Ground, victim: str) -> None:
    bomb = pb.Envelope(sender="x-bomb", to=victim, piece=pb.Piece(data=bytes(256 << 20)))
    with (
        tree.attacked(victim, "too_large", "x-bomb"),
        Talker(tree.programs[victim].port, compression=grpc.Compression.Gzip) as talker,
    ):
        talker.begin("x-bomb")
        talker.say(bomb)
        assert talker.status()[0] is EXHAUSTED


def test_pieces_that_never_end(tree: Ground) -> None:
    piece = pb.Envelope(sender="x-pieces", to="mid", piece=pb.Piece(data=bytes(1_000_000)))
    with tree.attacked("mid", "unreadable", "x-pieces"), Talker(tree.programs["mid"].port) as talker:
        talker.begin("x-pieces")
        for _ in range(70):
            talker.say(piece)
        assert talker.status()[0] is INVALID


# Sources


def test_records_that_cannot_count(tree: Ground) -> None:
    name, huge = "x-records", 1 << 62
    ts = [1 * SECOND, 2 * SECOND, 3 * SECOND, -huge - 1, huge + 1, 4 * SECOND]
    value = [float("nan"), float("inf"), float("-inf"), 1.0, 1.0, 7.0]
    with tree.attacked("leaf", "records", name, times=5), Talker(tree.programs["leaf"].port) as talker:
        talker.begin(name)
        talker.admitted(name, "leaf")
        talker.say(columns(name, "leaf", events(name, ts, value)))
        assert talker.hear_of("ack").id == "1"
        end = events(name, [steady.LAST], [float("nan")], len(ts) + 1)
        end.bare = b"\1"
        talker.say(columns(name, "leaf", end, "2"))
        assert talker.hear_of("ack").id == "2"
    tree.sent(name, Events(np.array(ts), np.array(value)), beat(steady.LAST))
    (line,) = tree.told("leaf", "records", name)
    assert "value not finite" in line["problem"] or "ts out of range" in line["problem"]


def test_a_time_far_in_the_future_waits(tree: Ground) -> None:
    name = "x-future"
    far = int(time() + 10 * 365 * 86_400) * SECOND
    with Talker(tree.programs["leaf"].port) as talker:
        talker.begin(name)
        talker.admitted(name, "leaf")

        def waits() -> bool:
            # Again and again, as sources do what is not acknowledged.
            talker.say(columns(name, "leaf", events(name, [far], [1.0])))
            return ("future", name) in tree.offences("leaf")

        until(waits, "it does not wait")
        assert tree.offences("leaf")["future", name] == 1
    said = tree.programs["leaf"].said("a source waits: its next event lies too far in the future")
    assert [line["source"] for line in said] == [name]
    tree.healthy()
    tree.retire(name)
    tree.sent(name)


def test_a_gap_is_answered_with_where_the_source_stands(tree: Ground) -> None:
    name = "x-gap"
    with tree.attacked("leaf", "sequence", name), Talker(tree.programs["leaf"].port) as talker:
        talker.begin(name)
        talker.admitted(name, "leaf")
        talker.say(columns(name, "leaf", events(name, [SECOND], [1.0], 10)))
        answer = talker.hear_of("resync")
        assert [each.prefix.position for each in answer.standings] == [0]
    tree.retire(name)
    tree.sent(name)


def test_a_number_that_comes_again_with_something_else_in_it_counts_once(tree: Ground) -> None:
    """That it is something else nobody can know any more: what was counted first stays."""
    name, ts = "x-again", [1 * SECOND, 2 * SECOND, 3 * SECOND]
    with Talker(tree.programs["leaf"].port) as talker:
        talker.begin(name)
        talker.admitted(name, "leaf")
        for turn in range(5):
            talker.say(columns(name, "leaf", events(name, ts, [1.0 + 1_000 * turn] * 3), str(turn)))
            assert talker.hear_of("ack").id == str(turn)
        end = events(name, [steady.LAST], [float("nan")], 4)
        end.bare = b"\1"
        talker.say(columns(name, "leaf", end, "end"))
        assert talker.hear_of("ack").id == "end"
    tree.sent(name, Events(np.array(ts), np.array([1.0] * 3)), beat(steady.LAST))
    tree.healthy()


def test_records_of_somebody_else(tree: Ground) -> None:
    name = "x-liar"
    with tree.attacked("leaf", "identity", name), Talker(tree.programs["leaf"].port) as talker:
        talker.begin(name)
        talker.say(columns(name, "leaf", events(steady.NAME, [SECOND], [1e9])))
        code, sentence = talker.status()
        assert code is grpc.StatusCode.PERMISSION_DENIED
        assert f"says columns of '{steady.NAME}', which is not itself" in sentence


# Nodes


def registered(talker: Talker, name: str, token: str) -> int:
    """Become a node of the tree; gives the generation."""
    register = pb.Register(node=name, token=token, address="nowhere:1")
    talker.say(pb.Envelope(sender=name, to="root", register=register))
    register.echo = talker.hear_of("registered").nonce
    talker.say(pb.Envelope(sender=name, to="root", register=register))
    return int(talker.hear_of("registered").generation)


def test_a_stale_generation_is_told_that_it_is_over(tree: Ground) -> None:
    name = "x-stale"
    with tree.attacked("root", "stale", name), Talker(tree.programs["root"].port) as talker:
        talker.begin(name)
        assert registered(talker, name, "one") == 1
        assert registered(talker, name, "two") == 2
        batch = low_above_high(name, "root")
        batch.delivery.partial.vector[0].high.position = 11
        talker.say(batch)
        assert talker.hear_of("stale").stream.generation == 1


def test_a_batch_of_records_that_are_not_the_next_ones_is_not_taken(tree: Ground) -> None:
    name = "x-thief"
    with tree.attacked("root", "sequence", name), Talker(tree.programs["root"].port) as talker:
        talker.begin(name)
        assert registered(talker, name, "one") == 1
        batch = low_above_high(name, "root")
        batch.delivery.partial.vector[0].high.position = 1 << 40
        talker.say(batch)
        (standing,) = talker.hear_of("resync").standings
        assert standing.name == steady.NAME


def test_a_batch_that_no_sound_node_makes_is_counted_and_not_answered(tree: Ground) -> None:
    name = "x-batch"
    with tree.attacked("root", "batch", name, times=2), Talker(tree.programs["root"].port) as talker:
        talker.begin(name)
        assert registered(talker, name, "one") == 1
        # One source has said hello and nothing since: a batch of it would fit.
        with Talker(tree.programs["leaf"].port) as source:
            source.begin("x-hello")
            source.admitted("x-hello", "leaf")
        stream = pb.StreamId(opener=name, number=1, generation=1)
        ask = pb.Ask(stream=stream, sources=[pb.Named(name="x-hello", incarnation=1)])
        talker.say(pb.Envelope(sender=name, to="root", ask=ask))
        (standing,) = talker.hear_of("tell").standings
        span = partials_pb2.Span(source=0, low=standing.prefix, high=standing.prefix)
        span.high.position += 1
        partial = partials_pb2.Partial(
            signature=Node(topology_of(document(QUERIES)).queries).flush().signature,
            sources=[partials_pb2.Source(code=0, name="x-hello", incarnation=1)],
            vector=[span],
            parts=[partials_pb2.Part(group=99, sliced=partials_pb2.Sliced())],
        )
        delivery = pb.Delivery(stream=stream, id="1", partial=partial)
        batch = pb.Envelope(sender=name, to="root", delivery=delivery)
        talker.say(batch, batch)
        talker.say(pb.Envelope(sender=name, to="root", probe=pb.Probe(stream=stream, id="p")))
        # Behind them on the same stream: had they been answered, that would have come before.
        assert talker.hear().WhichOneof("message") == "commit"
    tree.retire("x-hello")
    tree.sent("x-hello")


@pytest.mark.parametrize("above", ["root", "mid", "leaf"])
def test_nobody_below_speaks_as_those_above(tree: Ground, above: str) -> None:
    name = f"x-as-{above}"
    with tree.attacked("leaf", "identity", name), Talker(tree.programs["leaf"].port) as talker:
        talker.begin(name)
        # It would give the child other queries.
        talker.say(pb.Envelope(sender=above, to="leaf", registered=pb.Registered(node="leaf", generation=9)))
        assert talker.status()[0] is grpc.StatusCode.PERMISSION_DENIED


def test_nobody_below_is_believed_what_only_the_root_can_say(tree: Ground) -> None:
    with Talker(tree.programs["leaf"].port) as talker:
        talker.begin("x-king")
        stale = pb.Stale(stream=pb.StreamId(opener="leaf", generation=1, number=1))
        fenced = pb.Fenced(name=steady.NAME, reason="because")
        talker.say(pb.Envelope(sender="x-king", to="leaf", stale=stale))
        talker.say(pb.Envelope(sender="x-king", to="leaf", fenced=fenced))
        stream = pb.StreamId(opener="x-king", number=1)
        talker.say(pb.Envelope(sender="x-king", to="leaf", probe=pb.Probe(stream=stream, id="p")))
        talker.hear_of("commit")
    tree.healthy()
