"""Control of a root over real gRPC: every change is in the log, and what cannot be taken says why."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub
from rich.console import Console

from headwater.changes import Change
from headwater.errors import Problem
from headwater.events import Batch
from headwater.machines.messages import Commit, Crowded, Delivery, Hello, Stream
from headwater.machines.root import Settings
from headwater.node import Node
from headwater.queries import Query, Where
from headwater.rows import TS_MIN
from headwater.sources import SourceId
from headwater.topology import Sink, query_document
from headwater.windows import Punctuation, Session, Sliding, Tumbling
from headwater_cli import status
from headwater_root import control, problems
from headwater_root.runtime import RootRuntime
from headwater_root.sinks.jsonlines import JsonLines
from headwater_wire.messages import Codec
from headwater_wire.outgoing import ENVELOPE_LIMIT
from headwater_wire.v1 import control_pb2 as pb
from headwater_wire.v1 import control_pb2_grpc, tree_pb2
from tests.harness import joined
from tests.patience import PATIENCE

QUERIES = [Query("per-10", Tumbling(10), ["sum", "count"]), Query("n", Tumbling(count=3), "sum")]
SOURCE = str(SourceId("s", 1))


class Reached:
    """A root that runs, with one source that is sent by hand, and a stub that speaks to it."""

    def __init__(self, root: RootRuntime, stub: Any, channel: grpc.aio.Channel) -> None:
        self.root, self.stub, self.channel = root, stub, channel
        self._batches = 0

    def admit(self, name: str = "s", site: str = "hall") -> None:
        machine = self.root.machine
        hello = Hello(name, f"spool-{name}", f"opening-{name}", 0, 0, 0, site)
        (challenge,) = machine.step("c", hello, 0)
        nonce = challenge.message.nonce  # type: ignore[union-attr]  # it is one
        machine.step("c", replace(hello, echo=nonce), 0)

    def push(self, *times: int, value: float | None = 1.0) -> None:
        """Events of the source, through a child that knows all changes; they wait to be committed."""
        machine = self.root.machine
        self.commit()
        source = machine.engine.sources[SOURCE]
        node = Node(QUERIES)
        for change in machine.engine.changes:
            node.apply(change)
        node.admit(SOURCE, lateness=source.lateness, site=source.site, prefix=source.prefix)
        node.push(Batch.from_records(SOURCE, source.position + 1, [(ts, None, value, None) for ts in times]))
        self._batches += 1
        machine.step("c", Delivery(joined(machine), f"c/{self._batches}", 0, node.flush()), 0)

    def commit(self) -> None:
        self.root.exchange.send(self.root.machine.commit())

    async def add(self, query: Query) -> pb.AddQueryReply:
        reply = await self.stub.AddQuery(pb.AddQueryRequest(document=json.dumps(query_document(query))))
        assert isinstance(reply, pb.AddQueryReply)
        return reply


@asynccontextmanager
async def reached(directory: Path, settings: Settings) -> AsyncIterator[Reached]:
    root = RootRuntime(QUERIES, directory, settings, [Sink("jsonlines", "lines")], name="plant")
    port = await root.start("127.0.0.1:0")
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = control_pb2_grpc.ControlStub(channel)  # type: ignore[no-untyped-call]  # generated
            yield Reached(root, stub, channel)
    finally:
        await root.stop()


def on_a_root(
    directory: Path, scene: Callable[[Reached], Awaitable[None]], settings: Settings | None = None
) -> None:
    async def played() -> None:
        async with asyncio.timeout(PATIENCE), reached(directory, settings or Settings()) as at:
            await scene(at)

    asyncio.run(played())


async def refused(call: Awaitable[object]) -> tuple[grpc.StatusCode, str, pb.Problems]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    trailer: dict[str, Any] = dict(cast(Any, caught.value.trailing_metadata()) or ())
    told = pb.Problems.FromString(trailer.get(problems.PROBLEMS, b""))
    return caught.value.code(), caught.value.details() or "", told


def test_the_list_tells_who_shares_a_pass_and_how_far_behind_it_is(tmp_path: Path) -> None:
    async def scene(at: Reached) -> None:
        before = await at.stub.ListQueries(pb.ListQueriesRequest())
        assert not any(each.HasField("lag") for each in before.queries)
        at.admit()
        at.push(1, 12, 25)
        await at.add(Query("same", Sliding(10, 5), "max"))
        await at.add(Query("keyed", Tumbling(10), "max", key_by="k"))
        at.push(31, 46)
        at.commit()
        listed = await at.stub.ListQueries(pb.ListQueriesRequest())
        groups = {each.id: each.group for each in listed.queries}
        # What is cut into the same slices of the same events is one pass; keys, and orders, are others.
        assert groups["same"] == groups["per-10"]
        assert len({groups["per-10"], groups["n"], groups["keyed"]}) == 3
        status = await at.stub.Status(pb.StatusRequest())
        assert {each.lag for each in listed.queries} == {status.largest - status.watermark}
        assert {each.lane for each in listed.queries} == {0}
        await at.stub.RemoveQuery(pb.RemoveQueryRequest(id="same", at_once=True))
        listed = await at.stub.ListQueries(pb.ListQueriesRequest())
        (gone,) = (each for each in listed.queries if each.id == "same")
        assert gone.state == pb.ListedQuery.STATE_ENDED
        assert not gone.HasField("group")
        assert not gone.HasField("lag")

    on_a_root(tmp_path, scene)


def test_a_field_that_is_wrong_is_called_as_in_a_manifest(tmp_path: Path) -> None:
    async def scene(at: Reached) -> None:
        await at.add(Query("keyed", Tumbling(10), key_by="k"))
        _, _, told = await refused(at.add(Query("other", Tumbling(10), key_by="line")))
        assert [each.field for each in told.problems] == ["keyBy"]

    on_a_root(tmp_path, scene)


def test_a_query_comes_and_goes_and_the_list_tells_its_life(tmp_path: Path) -> None:
    async def scene(at: Reached) -> None:
        at.admit()
        at.push(1, 12, 25)
        added = await at.add(Query("new", Sliding(10, 5), "max"))
        # Above everything applied, with what waited: 25. The first whole window is the first result.
        assert (added.id, added.version, added.edge) == ("new", 1, 30)
        assert (added.first_window.start, added.first_window.end) == (30, 40)
        at.push(31, 46)
        removed = await at.stub.RemoveQuery(pb.RemoveQueryRequest(id="per-10"))
        assert (removed.version, removed.edge) == (2, 50)
        listed = await at.stub.ListQueries(pb.ListQueriesRequest())
        old, count, new = listed.queries
        assert listed.version == 2
        assert not listed.next
        assert (old.id, old.state, old.until) == ("per-10", pb.ListedQuery.STATE_ENDING, 50)
        assert not old.HasField("since")
        assert old.windows == 4  # [0 10) [10 20) [20 30) [30 40)
        assert "order of all events" in count.central
        assert (new.version, new.since, new.central) == (1, 30, "")
        assert json.loads(new.document) == query_document(Query("new", Sliding(10, 5), "max"))
        at.push(100)
        at.commit()
        listed = await at.stub.ListQueries(pb.ListQueriesRequest())
        assert listed.queries[0].state == pb.ListedQuery.STATE_ENDED
        again = await at.add(Query("per-10", Tumbling(10)))
        assert again.edge == 110
        listed = await at.stub.ListQueries(pb.ListQueriesRequest(after=3))
        assert [(each.id, each.incarnation) for each in listed.queries] == [("per-10", 2)]

    on_a_root(tmp_path, scene)

    async def after_a_restart(at: Reached) -> None:
        listed = await at.stub.ListQueries(pb.ListQueriesRequest())
        assert [each.id for each in listed.queries] == ["per-10", "n", "new", "per-10"]
        rows = (tmp_path / "sinks" / "lines" / "results.jsonl").read_bytes().splitlines()
        emitted = [json.loads(row)["query"] for row in rows]
        # The windows of every query are those in the sink, and no others.
        assert sum(each.windows for each in listed.queries[:1]) == emitted.count("per-10")
        assert listed.queries[2].windows == emitted.count("new") > 0

    on_a_root(tmp_path, after_a_restart)


@pytest.mark.parametrize(
    "query, edge, first, words",
    [
        (Query("q", Tumbling(10, offset=3)), 33, (33, 43), "first whole window is [33, 43)"),
        (Query("q", Sliding(30, 20)), 40, (40, 70), "first whole window is [40, 70)"),
        (Query("q", Session(5)), 26, None, "first event at or behind 26"),
        (Query("q", Punctuation("go")), 26, None, "first mark 'go' at or behind 26"),
        (Query("q", Tumbling(count=7)), 26, None, "first 7 events at or behind 26"),
        (Query("q", Tumbling(10)), TS_MIN, None, "that of the first event"),
    ],
)
def test_the_first_result_is_told(query: Query, edge: int, first: tuple[int, int] | None, words: str) -> None:
    change = Change("add", query, edge, 1)
    assert control.first_window(change) == first
    assert words in control.first_result(change)


def test_what_cannot_be_added_is_told_with_field_and_remedy(tmp_path: Path) -> None:
    async def scene(at: Reached) -> None:
        window = {"type": "sliding", "length": "1s", "slide": "2s"}
        wrong = {"id": "w", "aggregate": "summ", "window": window}
        call = at.stub.AddQuery(pb.AddQueryRequest(document=json.dumps(wrong)))
        code, words, told = await refused(call)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert {problem.field for problem in told.problems} == {"aggregate", "window.slide"}
        assert all(problem.message and problem.remedy for problem in told.problems)
        assert "window.slide" in words
        document = json.dumps(query_document(QUERIES[0]))
        code, _, told = await refused(at.stub.AddQuery(pb.AddQueryRequest(document=document)))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert [(each.field, each.message) for each in told.problems] == [("id", "is there already")]
        window = {"type": "tumbling", "length": "1s"}
        other = {
            "apiVersion": "headwater.dev/v1alpha1",
            "kind": "AggregationQuery",
            "metadata": {"name": "load"},
            "spec": {
                "topologyRef": "mill",
                "aggregate": "sum",
                "window": {"type": "tumbling", "length": "1s"},
            },
        }
        _, _, told = await refused(at.stub.AddQuery(pb.AddQueryRequest(document=json.dumps(other))))
        assert [each.field for each in told.problems] == ["spec.topologyRef"]
        for document in ("", "[", "[" * 60_000, "7", '"text"', "x" * 65_100, '{"id": "q"}'):
            code, _, _ = await refused(at.stub.AddQuery(pb.AddQueryRequest(document=document)))
            assert code is grpc.StatusCode.INVALID_ARGUMENT
        # Nothing of it has reached the log: there is the beginning of the term.
        assert at.root.log.committed - 1 == at.root.machine.engine.version == 0
        other["spec"]["topologyRef"] = "plant"  # type: ignore[index]  # it is a dictionary
        reply = await at.stub.AddQuery(pb.AddQueryRequest(document=json.dumps(other)))
        assert (reply.id, reply.version) == ("load", 1)
        assert not reply.HasField("edge")

    on_a_root(tmp_path, scene)


def test_what_nodes_could_not_be_told_is_not_added(tmp_path: Path) -> None:
    async def scene(at: Reached) -> None:
        large = Where(keys=frozenset(f"{n:040}" for n in range(1_000)))
        queries = [Query(f"q{n}", Tumbling(10), where=large) for n in range(100)]
        size = len(json.dumps(query_document(queries[99]), separators=(",", ":")))
        added = control.CHANGES_BYTES // (2 * size)
        for query in queries[:added]:
            await at.add(query)
        code, words, _ = await refused(at.add(queries[99]))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "start the topology anew" in words
        for query in queries[:added]:
            await at.stub.RemoveQuery(pb.RemoveQueryRequest(id=query.id))
        # All that a node is told of it still is one envelope, and a small one.
        commit = Codec().encode(
            "root", "c", Commit(Stream("c", 0, 1), {}, 0, tuple(at.root.machine.engine.changes))
        )
        assert commit.ByteSize() < 2 * control.CHANGES_BYTES < ENVELOPE_LIMIT
        page = await at.stub.ListQueries(pb.ListQueriesRequest(limit=5))
        rest = await at.stub.ListQueries(pb.ListQueriesRequest(after=page.next))
        listed = [each.id for each in (*page.queries, *rest.queries)]
        assert listed == ["per-10", "n", *(query.id for query in queries[:added])]

    on_a_root(tmp_path, scene)


def test_problems_fit_into_a_trailer() -> None:
    many = [Problem(f"field-{n}", "x" * 600, "é" * 300) for n in range(40)]
    message = problems.problems_message(many)
    assert message.ByteSize() <= problems.PROBLEMS_BYTES
    assert len(message.problems) + message.left_out == 40
    assert len(message.problems) > 2


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    async def scene(at: Reached) -> None:
        at.admit()
        nobody = tree_pb2.Named(name="nobody")
        for call, named in (
            (at.stub.RemoveQuery(pb.RemoveQueryRequest(id="nothing")), "give one of per-10, n"),
            (at.stub.Skip(pb.SkipRequest(source=nobody, seq=1)), "headwater status"),
            (at.stub.Retire(pb.RetireRequest(source=nobody)), "headwater status"),
            (at.stub.Retire(pb.RetireRequest(source=tree_pb2.Named(name="s", incarnation=2))), "'s/2'"),
        ):
            code, words, _ = await refused(call)
            assert code is grpc.StatusCode.NOT_FOUND
            assert named in words

    on_a_root(tmp_path, scene)


def test_status_tells_sources_page_by_page(tmp_path: Path) -> None:
    async def scene(at: Reached) -> None:
        told = await at.stub.Status(pb.StatusRequest())
        assert (told.topology, told.expected, told.started, told.next) == ("plant", 1, False, 0)
        assert not told.HasField("watermark")
        at.admit()
        at.push(1, 12, 3, 25)
        at.commit()
        for n in range(4):
            at.admit(f"t{n}")
        told = await at.stub.Status(pb.StatusRequest(limit=3))
        assert [source.name for source in told.sources] == ["s", "t0", "t1"]
        source = told.sources[0]
        assert (source.incarnation, source.site, source.position, source.largest) == (1, "hall", 4, 25)
        assert (source.counted, source.late, source.rejected) == (3, 1, 0)
        assert (told.totals.sources, told.totals.accepted, told.totals.late) == (5, 4, 1)
        assert told.watermark == told.largest == 25
        rest = await at.stub.Status(pb.StatusRequest(after=told.next, limit=3))
        assert [source.name for source in rest.sources] == ["t2", "t3"]
        assert not rest.next
        async with asyncio.timeout(PATIENCE):
            while (await at.stub.Status(pb.StatusRequest(limit=1))).sinks[0].behind:
                await asyncio.sleep(0.02)
        (sink,) = (await at.stub.Status(pb.StatusRequest(limit=1))).sinks
        assert (sink.name, sink.behind, sink.failure) == ("0-jsonlines", 0, "")

    on_a_root(tmp_path, scene)


def test_the_status_tells_of_a_sink_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(self: JsonLines, position: int, rows: bytes) -> None:
        raise OSError(28, "no room")

    monkeypatch.setattr(JsonLines, "deliver", no_room)

    async def scene(at: Reached) -> None:
        at.admit()
        at.push(1, 12, 25)
        at.commit()
        async with asyncio.timeout(PATIENCE):
            while not (told := await at.stub.Status(pb.StatusRequest(limit=1))).sinks[0].failure:
                await asyncio.sleep(0.02)
        (sink,) = told.sinks
        assert re.fullmatch(r"for \d+ s, tried (once|\d+ times): .*no room", sink.failure)
        assert sink.behind > 0
        shown = Console(file=io.StringIO(), width=200)
        shown.print(status.picture(told))
        assert isinstance(shown.file, io.StringIO)
        assert f"positions behind; failing: {sink.failure}" in shown.file.getvalue()
        assert status.plain(told)["sinks"][0]["failure"] == sink.failure

    on_a_root(tmp_path, scene)


def test_heartbeats_are_no_events_of_the_status(tmp_path: Path) -> None:
    async def scene(at: Reached) -> None:
        at.admit()
        at.push(1, 12, 3)
        at.push(25, 40, value=None)
        at.push(41)
        at.push(100, value=None)
        at.commit()
        told = await at.stub.Status(pb.StatusRequest())
        totals, source = told.totals, told.sources[0]
        assert (totals.accepted, totals.counted, totals.late, totals.rejected) == (4, 3, 1, 0)
        assert (source.position, source.counted, source.late) == (7, 3, 1)
        assert told.watermark == 100

    on_a_root(tmp_path, scene)


def test_a_record_is_skipped_and_a_source_retired_for_good(tmp_path: Path) -> None:
    async def scene(at: Reached) -> None:
        at.admit()
        at.push(1, 12)
        named = tree_pb2.Named(name="s")
        code, words, _ = await refused(at.stub.Skip(pb.SkipRequest(source=named, seq=2)))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "above 2" in words
        reply = await at.stub.Skip(pb.SkipRequest(source=named, seq=3))
        assert (reply.source.incarnation, reply.position) == (1, at.root.log.committed)
        at.push(13, 14)
        reply = await at.stub.Retire(pb.RetireRequest(source=named))
        assert reply.counted_to == 4
        committed = at.root.log.committed
        assert (await at.stub.Retire(pb.RetireRequest(source=named))).counted_to == 4
        assert at.root.log.committed == committed
        code, _, _ = await refused(at.stub.Skip(pb.SkipRequest(source=named, seq=9)))
        assert code is grpc.StatusCode.INVALID_ARGUMENT

    on_a_root(tmp_path, scene)

    async def after_a_restart(at: Reached) -> None:
        (source,) = (await at.stub.Status(pb.StatusRequest())).sources
        assert source.state == pb.SourceStatus.STATE_RETIRED
        assert (source.position, source.counted, source.rejected) == (4, 3, 1)

    on_a_root(tmp_path, after_a_restart)


def test_a_name_in_quarantine_is_told_and_released(tmp_path: Path) -> None:
    async def scene(at: Reached) -> None:
        at.admit()
        at.push(1, 12)
        at.root.machine.assign({"s": "c"})
        source = at.root.machine.engine.sources[SOURCE]
        at.commit()
        at.root.machine.step("c", Crowded("c", 1, SOURCE, source.prefix, 6), 0)

    on_a_root(tmp_path, scene, Settings(keys_per_source=5))

    async def after_a_restart(at: Reached) -> None:
        told = await at.stub.Status(pb.StatusRequest())
        (quarantined,) = told.quarantined
        assert (quarantined.name, told.totals.quarantined) == ("s", 1)
        assert quarantined.reason == "it has brought 6 distinct keys, and limits.keysPerSource is 5"
        assert not (await at.stub.Status(pb.StatusRequest(after=1))).quarantined
        code, words, _ = await refused(at.stub.Release(pb.ReleaseRequest(name="nobody")))
        assert code is grpc.StatusCode.NOT_FOUND
        assert "'nobody' is not known" in words
        before = at.root.log.committed
        for released in (True, False):
            reply = await at.stub.Release(pb.ReleaseRequest(name="s"))
            assert (reply.released, reply.source.incarnation, reply.counted_to) == (released, 1, 2)
        assert at.root.log.committed == before + 1
        assert not (await at.stub.Status(pb.StatusRequest())).quarantined

    on_a_root(tmp_path, after_a_restart)


def test_reflection_names_the_service(tmp_path: Path) -> None:
    async def scene(at: Reached) -> None:
        stub = ServerReflectionStub(at.channel)
        call = stub.ServerReflectionInfo(iter([ServerReflectionRequest(list_services="")]))
        async for answer in call:
            names = {service.name for service in answer.list_services_response.service}
            assert {"headwater.v1.Control", "headwater.v1.Tree"} <= names
            break

    on_a_root(tmp_path, scene)


def test_sources_are_assigned_to_children_that_take_part(tmp_path: Path) -> None:
    async def scene(at: Reached) -> None:
        at.admit()
        machine = at.root.machine
        joined(machine)
        children = [name for name, member in machine.members.nodes.items() if member.child and member.live]
        assert children
        asked = [pb.Assignment(source=name, child=children[0]) for name in ("s", "not-there-yet")]
        assert (await at.stub.Assign(pb.AssignRequest(assignments=asked))).moved == 2
        assert machine.members.assigned("s") == machine.members.assigned("not-there-yet") == children[0]
        committed = at.root.log.committed
        assert (await at.stub.Assign(pb.AssignRequest(assignments=asked))).moved == 0
        assert at.root.log.committed == committed
        wrong = [pb.Assignment(source="", child="nobody"), pb.Assignment(source="s", child="root")]
        code, words, problems = await refused(at.stub.Assign(pb.AssignRequest(assignments=wrong)))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "'nobody' is no child that takes part" in words
        assert [problem.field for problem in problems.problems] == [
            "assignments[0].source",
            "assignments[0].child",
            "assignments[1].child",
        ]
        code, words, _ = await refused(at.stub.Assign(pb.AssignRequest()))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "has 0 entries; send 1 to 4096" in words

    on_a_root(tmp_path, scene)
