"""The PostgreSQL sink, on a real server: every row once, by one writer, whatever breaks."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from math import inf, nan
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headwater import topology
from headwater.errors import Invalid
from headwater.results import Result
from headwater_root import resultlines
from headwater_root.delivery import AheadOfLog, Deliveries, catch_up, sinks_of
from headwater_root.outbox import Outbox
from headwater_root.sinks import postgres as module
from headwater_root.sinks.deadline import within
from headwater_root.sinks.postgres import (
    FencedOff,
    Holder,
    NotDelivered,
    Postgres,
    TakenTable,
    WentBack,
    address_of,
    fenced_by,
)
from headwater_root.sinks.texts import restored
from headwater_root.sinks.writer import Writer
from headwater_wire import failpoints
from tests.patience import PATIENCE
from tests.root.database import Server
from tests.root.earlier import earlier

SECRET = "hush-hush"


def rows(*numbers: int, add: float = 0.0) -> bytes:
    return resultlines.encode(
        Result("q", "", f"k{n}", 10 * n, 10 * n + 10, 1, {"sum": n / 7 + add}) for n in numbers
    )


def opened(
    directory: Path, database: str, epoch: int = 1, *, name: str = "plant", **options: Any
) -> Postgres:
    asked = topology.Sink("postgres", dsn=database)
    return Postgres(directory, address_of(asked, "sink", {}), Writer(name, epoch), **options)


def asked(database: str, query: str, *given: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(database) as connection:
        return connection.execute(query.encode(), given).fetchall()


def done(database: str, statement: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute(statement.encode())


def numbers(database: str, table: str = "headwater_results") -> list[int]:
    return [start // 10 for (start,) in asked(database, f"SELECT start FROM {table} ORDER BY start")]


# What is written


def test_a_row_has_every_column(tmp_path: Path, database: str) -> None:
    sink = opened(tmp_path, database)
    begin = 1_700_000_000_123_456
    values = {"avg": 0.1, "top(2)": (3.0, nan), "max": inf, "none": None, "long": 2**70, "text": "ä"}
    first = Result("load", "hall", "m7", begin, begin + 10_000_000, 3, values)
    sink.deliver(4, resultlines.encode([first, Result("runs", "", None, -5, 2**62, 0, {}, 2, 4)]))
    sink.close()
    found = asked(database, "SELECT * FROM headwater_results ORDER BY query")
    assert found[0] == (
        f"load/1/hall/m7/{begin}",
        "load",
        1,
        "hall",
        "m7",
        begin,
        begin + 10_000_000,
        datetime(2023, 11, 14, 22, 13, 20, 123456, UTC),
        datetime(2023, 11, 14, 22, 13, 30, 123456, UTC),
        3,
        {"avg": 0.1, "top(2)": [3.0, "NaN"], "max": "Infinity", "none": None, "long": 2**70, "text": "ä"},
        None,
    )
    assert found[1][1:7] == ("runs", 4, "", None, -5, 2**62)
    assert found[1][8:] == (None, 0, {}, 2)
    assert found[1][7] == datetime(1969, 12, 31, 23, 59, 59, 999995, UTC)


def test_a_count_window_has_the_times_of_its_events(tmp_path: Path, database: str) -> None:
    begin = 1_700_000_000_000_000
    counted = Result("a", "", None, 6, 9, 3, {}, measure="count", first_time=begin, last_time=begin + 1)
    older = replace(counted, query="c", first_time=None)
    sink = opened(tmp_path, database)
    sink.deliver(1, resultlines.encode([counted, older]))
    # Lines of a release before, which do not say what their bounds are.
    timed = Result("d", "", None, begin, begin + 10, 3, {})
    sink.deliver(2, earlier(resultlines.encode([replace(counted, query="b"), timed])))
    sink.close()
    first = datetime(2023, 11, 14, 22, 13, 20, 0, UTC)
    found = asked(
        database, 'SELECT query, start, "end", start_time, end_time FROM headwater_results ORDER BY query'
    )
    assert found == [
        ("a", 6, 9, first, first.replace(microsecond=1)),
        ("b", 6, 9, None, None),
        ("c", 6, 9, None, first.replace(microsecond=1)),
        ("d", begin, begin + 10, first, first.replace(microsecond=10)),
    ]


def test_texts_that_postgres_has_not(tmp_path: Path, database: str) -> None:
    keys = ["a\0b", "\ud800", "\\u0000", "\\", "a\\b", "ä\U0001f600", "", "'; DROP TABLE x; --", "\t\n\\N"]
    sink = opened(tmp_path, database)
    sink.deliver(
        1,
        resultlines.encode(
            Result("q", "\udc80\0", key, 0, 10, 1, {"\0": "\ud800", "list": [key]}, n)
            for n, key in enumerate(keys)
        ),
    )
    sink.close()
    found = asked(database, 'SELECT key, site, "values" FROM headwater_results ORDER BY ordinal')
    assert [restored(key) for key, _, _ in found] == keys
    assert {restored(site) for _, site, _ in found} == {"\udc80\0"}
    assert [restored(values["list"][0]) for _, _, values in found] == keys
    assert {restored(name) for _, _, values in found for name in values} == {"\0", "list"}
    assert {
        restored(value) for _, _, values in found for value in values.values() if value == str(value)
    } == {"\ud800"}


def test_delivered_once_and_again_after_a_restart(tmp_path: Path, database: str) -> None:
    sink = opened(tmp_path, database)
    assert sink.cursor == 0
    sink.deliver(3, rows(1, 2))
    sink.deliver(3, rows(9))
    sink.deliver(4, b"")
    sink.close()
    sink = opened(tmp_path, database, 2)
    assert sink.cursor == 4
    sink.deliver(7, rows(3))
    sink.close()
    assert numbers(database) == [1, 2, 3]
    (cursor,) = asked(database, "SELECT topology, sink, epoch, position FROM headwater_cursors")
    assert cursor == ("plant", "headwater_results", 2, 7)


def test_the_same_id_is_updated_and_the_later_one_counts(tmp_path: Path, database: str) -> None:
    sink = opened(tmp_path, database)
    sink.deliver(1, rows(1, 2))
    sink.deliver(2, rows(2, add=1.0) + rows(2, add=2.0))
    sink.close()
    found = asked(database, "SELECT (\"values\"->>'sum')::float FROM headwater_results ORDER BY start")
    assert found == [(1 / 7,), (2 / 7 + 2.0,)]


def test_a_table_in_a_schema_and_two_sinks_beside_each_other(tmp_path: Path, database: str) -> None:
    one = opened(tmp_path / "1", database, table="mill.results")
    two = opened(tmp_path / "2", database, table="mill.others")
    one.deliver(1, rows(1))
    two.deliver(2, rows(2))
    one.deliver(3, rows(3))
    assert (numbers(database, "mill.results"), numbers(database, "mill.others")) == ([1, 3], [2])
    one.close()
    two.close()


def test_who_may_not_make_tables_can_write_to_those_there_are(tmp_path: Path, database: str) -> None:
    sink = opened(tmp_path / "1", database)
    sink.deliver(1, rows(1))
    sink.close()
    role = f"writer{os.getpid()}"
    done(database, f"CREATE ROLE {role} LOGIN")
    done(database, f"GRANT SELECT, INSERT, UPDATE ON headwater_results, headwater_cursors TO {role}")
    done(database, "ALTER TABLE headwater_results ADD COLUMN seen timestamptz DEFAULT now()")
    sink = opened(tmp_path / "1", f"{database} user={role}", 2)
    sink.deliver(2, rows(2))
    sink.close()
    assert numbers(database) == [1, 2]


# One writer


def test_who_is_fenced() -> None:
    mine = Holder("log", 5, "me", 0)
    for found, held, fenced in [
        (Holder("", 0, "", 0), False, False),
        (Holder("", 0, "", 0), True, False),
        (Holder("log", 4, "old", 9), False, False),
        (Holder("log", 4, "old", 9), True, False),
        (Holder("log", 5, "me", 9), True, False),
        (Holder("log", 5, "copy", 9), True, True),
        (Holder("log", 6, "new", 9), True, True),
        (Holder("log", 6, "new", 9), False, True),
        (Holder("other", 9, "theirs", 9), False, False),
        (Holder("other", 1, "theirs", 9), True, True),
    ]:
        assert (fenced_by(found, mine, held=held) is not None) == fenced


def test_an_earlier_epoch_writes_nothing_more(tmp_path: Path, database: str) -> None:
    old = opened(tmp_path, database, 3)
    old.deliver(1, rows(1))
    new = opened(tmp_path, database, 4)
    new.deliver(2, rows(2))
    for _ in range(2):
        with pytest.raises(FencedOff, match="a root with the later epoch 4 writes here now"):
            old.deliver(3, rows(30))
    late = opened(tmp_path, database, 2)
    with pytest.raises(FencedOff, match="later epoch 4"):
        late.deliver(3, rows(31))
    new.deliver(3, rows(3))
    assert numbers(database) == [1, 2, 3]
    for sink in (old, new, late):
        sink.close()


def test_another_log_begins_anew_and_the_one_before_is_fenced(
    tmp_path: Path, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = opened(tmp_path / "lost", database, 7)
    before.deliver(100, rows(1, 2))
    after = opened(tmp_path / "new", database, 1)
    after.deliver(1, rows(3))
    assert [record.getMessage() for record in caplog.records] == ["results of another log were written here"]
    assert (after.cursor, numbers(database)) == (1, [1, 2, 3])
    with pytest.raises(FencedOff):
        before.deliver(101, rows(4))
    after.close()


def test_a_table_of_another_topology_is_left_alone(tmp_path: Path, database: str) -> None:
    mill = opened(tmp_path / "1", database, name="mill")
    mill.deliver(1, rows(1))
    plant = opened(tmp_path / "2", database, name="plant")
    with pytest.raises(TakenTable, match=r"topology 'mill'.*give another table"):
        plant.deliver(1, rows(1, add=1.0))
    mill.close()


# What breaks


def test_nothing_is_written_without_its_cursor(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(name: str) -> None:
        assert name == "root.sink.written"
        raise RuntimeError("killed")

    sink = opened(tmp_path, database)
    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "reached", dies)
        with pytest.raises(RuntimeError, match="killed"):
            sink.deliver(1, rows(1))
    assert asked(database, "SELECT to_regclass('headwater_results')") == [(None,)]
    sink.deliver(2, rows(1, 2))
    assert numbers(database) == [1, 2]
    sink.close()


def test_who_has_more_to_write_may_take_longer(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = []

    def noted(seconds: float, connected: int) -> AbstractContextManager[None]:
        limits.append(seconds)
        return within(seconds, connected)

    monkeypatch.setattr(module, "within", noted)
    sink = opened(tmp_path, database)
    sink.deliver(1, rows(1))
    monkeypatch.setattr(module, "TIMEOUT_BYTES", len(rows(2, 3)) / 8)
    sink.deliver(3, rows(2, 3))
    assert limits == [30.0, 240.0]
    assert numbers(database) == [1, 2, 3]
    sink.close()


def test_a_commit_of_which_nobody_heard(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = opened(tmp_path, database)
    written = sink._written

    def lost(connection: Any, position: int, given: bytes, limit: float) -> int:
        written(connection, position, given, limit)
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    with monkeypatch.context() as patch:
        patch.setattr(sink, "_written", lost)
        with pytest.raises(NotDelivered, match="closed the connection"):
            sink.deliver(2, rows(1, 2))
    assert sink.cursor == 0
    # More has come by now.
    sink.deliver(3, rows(1, 2, 3))
    assert (sink.cursor, numbers(database)) == (3, [1, 2, 3])
    sink.close()


def test_a_connection_that_is_cut_is_opened_again(tmp_path: Path, database: str) -> None:
    sink = opened(tmp_path, database)
    sink.deliver(1, rows(1))
    done(
        database,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'headwater' AND datname = current_database()",
    )
    with pytest.raises(NotDelivered):
        sink.deliver(2, rows(2))
    sink.recall()
    sink.deliver(3, rows(2, 3))
    assert numbers(database) == [1, 2, 3]
    sink.close()


def test_tables_that_are_removed_are_made_again(tmp_path: Path, database: str) -> None:
    sink = opened(tmp_path, database)
    sink.deliver(1, rows(1))
    done(database, "DROP TABLE headwater_results, headwater_cursors")
    with pytest.raises(NotDelivered):
        sink.deliver(2, rows(2))
    # Everything that the outbox still has.
    with pytest.raises(WentBack, match="up to position 1, and now says 0"):
        sink.deliver(2, rows(2))
    assert sink.cursor == 0
    sink.deliver(2, rows(1, 2))
    assert numbers(database) == [1, 2]
    sink.close()


def test_a_server_that_was_restored_gets_everything_again(tmp_path: Path, database: str) -> None:
    sink = opened(tmp_path, database)
    sink.deliver(1, rows(1))
    sink.deliver(2, rows(2))
    done(database, "DELETE FROM headwater_results WHERE start = 20")
    done(database, "UPDATE headwater_cursors SET position = 1")
    with pytest.raises(WentBack):
        sink.deliver(3, rows(3))
    assert sink.cursor == 1
    sink.deliver(3, rows(2, 3))
    assert numbers(database) == [1, 2, 3]
    sink.close()


def test_a_server_that_is_silent(tmp_path: Path, database: str) -> None:
    sink = opened(tmp_path, database, timeout=30.0)
    sink.deliver(1, rows(1))
    ((pid,),) = asked(
        database,
        "SELECT pid FROM pg_stat_activity "
        "WHERE application_name = 'headwater' AND datname = current_database()",
    )
    os.kill(pid, signal.SIGSTOP)
    try:
        sink._timeout = 0.2
        with pytest.raises(NotDelivered, match=r"no answer within 0\.2 s"):
            sink.deliver(2, rows(2))
        assert sink.cursor == 1
    finally:
        os.kill(pid, signal.SIGCONT)
    sink._timeout = 30.0
    sink.deliver(2, rows(2))
    assert numbers(database) == [1, 2]
    sink.close()


def test_a_cursor_that_somebody_holds(tmp_path: Path, database: str) -> None:
    sink = opened(tmp_path, database)
    sink.deliver(1, rows(1))
    with psycopg.connect(database) as connection:
        connection.execute("SELECT * FROM headwater_cursors FOR UPDATE")
        sink._timeout = 0.3
        with pytest.raises(NotDelivered, match=r"timeout|no answer"):
            sink.deliver(2, rows(2))
    sink._timeout = 30.0
    sink.deliver(2, rows(2))
    assert numbers(database) == [1, 2]
    sink.close()


def test_a_server_that_is_gone_for_a_while_holds_no_other_sink_back(
    tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    database = postgres.database()
    outbox = Outbox(tmp_path / "outbox")
    wanted = [topology.Sink("postgres", dsn_env="PLANT"), topology.Sink("jsonlines", "lines")]
    sinks = sinks_of(
        wanted, tmp_path / "sinks", Writer("plant", 1), {"PLANT": f"{database} password={SECRET}"}
    )

    async def until(reached: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not reached():
                await asyncio.sleep(0.01)

    async def run() -> None:
        deliveries = Deliveries(outbox, sinks)
        deliveries.start()
        outbox.write(1, 1, rows(1))
        await until(lambda: not deliveries.behind)
        await asyncio.to_thread(postgres.stop)
        try:
            outbox.write(2, 1, rows(2))
            await until(lambda: "0-postgres" in deliveries.failing)
            outbox.write(3, 1, rows(3))
            await until(lambda: deliveries.lags == {"0-postgres": 2, "1-jsonlines": 0})
            before = deliveries.failures["0-postgres"]
            await until(lambda: deliveries.failures["0-postgres"] > before)
            assert SECRET not in str(deliveries.failing["0-postgres"])
            assert "table headwater_results at" in str(deliveries.failing["0-postgres"])
            assert deliveries.failing_seconds["0-postgres"] > 0
            assert deliveries.failing_seconds["1-jsonlines"] == 0
        finally:
            await asyncio.to_thread(postgres.start)
        await until(lambda: not deliveries.behind and not deliveries.failing)
        await deliveries.stop()

    asyncio.run(run())
    assert numbers(database) == [1, 2, 3]
    assert (tmp_path / "sinks" / "lines" / "results.jsonl").read_bytes() == rows(1, 2, 3)
    said = [record.getMessage() for record in caplog.records if record.name == "headwater_root.delivery"]
    assert said == ["a sink fails", "a sink has recovered"]
    assert SECRET not in json.dumps(
        [{k: str(v) for k, v in vars(record).items()} for record in caplog.records]
    )
    for path in (tmp_path / "sinks").rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes()


def test_a_log_that_is_older_than_what_the_server_has(tmp_path: Path, database: str) -> None:
    sink = opened(tmp_path / "sink", database)
    sink.deliver(1, rows(1))
    shutil.copytree(tmp_path / "sink", tmp_path / "copy")
    sink.deliver(100, rows(*range(2, 50)))
    sink.close()
    # The volume as it was before, with another result at a position that was delivered.
    outbox, older = Outbox(tmp_path / "outbox"), opened(tmp_path / "copy", database, 2)
    outbox.write(2, 2, rows(60))
    for _ in range(2):
        with pytest.raises(
            AheadOfLog, match=r"up to position 100, but it ends with 2.*newest copy of its log"
        ):
            catch_up(outbox, older)
    older.close()


# Addresses


def test_the_environment_adds_to_the_address() -> None:
    sink = topology.Sink("postgres", dsn="host=db dbname=plant user=me", dsn_env="PLANT")
    found = address_of(sink, "sink", {"PLANT": f"postgresql://mill:{SECRET}@/?connect_timeout=3"})
    assert found["host"] == "db"
    assert (found["user"], found["password"], found["connect_timeout"]) == ("mill", SECRET, "3")
    assert found["application_name"] == "headwater"


@pytest.mark.parametrize(
    "sink, environment, field, told",
    [
        (
            topology.Sink("postgres", secret_ref="db"),
            {},
            "secretRef",
            "outside of a cluster give dsn or dsnEnv",
        ),
        (topology.Sink("postgres", dsn_env="PLANT"), {}, "dsnEnv", "PLANT is not set in the environment"),
        (topology.Sink("postgres", dsn_env="PLANT"), {"PLANT": ""}, "dsnEnv", "put the address"),
        (
            topology.Sink("postgres", dsn_env="P"),
            {"P": f"host {SECRET}"},
            "dsnEnv",
            "no address of a database",
        ),
        (topology.Sink("postgres", dsn_env="P"), {"P": f"password={SECRET} bad=1"}, "dsnEnv", "no address"),
        (topology.Sink("postgres", dsn="host"), {}, "dsn", "give an address such as postgresql://"),
    ],
)
def test_addresses_that_are_none(
    tmp_path: Path, sink: topology.Sink, environment: dict[str, str], field: str, told: str
) -> None:
    with pytest.raises(Invalid) as caught:
        sinks_of([topology.Sink("console"), sink], tmp_path, Writer("plant", 1), environment)
    (problem,) = caught.value.problems
    assert problem.field == f"spec.root.sinks[1].{field}"
    assert told in f"{problem.message}; {problem.remedy}"
    assert SECRET not in str(caught.value)


def test_without_psycopg_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(Invalid, match=r"pip install 'headwater\[postgres\]'"):
        sinks_of([topology.Sink("postgres", dsn="host=db")], tmp_path)


def test_what_a_server_says_is_told_without_the_password(tmp_path: Path, database: str) -> None:
    # The server repeats the name of the database, which is the password here.
    sink = opened(tmp_path, database)
    sink._address |= {"dbname": SECRET, "password": SECRET}
    with pytest.raises(NotDelivered, match=r'database "\*\*\*" does not exist') as caught:
        sink.deliver(1, rows(1))
    assert SECRET not in str(caught.value)
