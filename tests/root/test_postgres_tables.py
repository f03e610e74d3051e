"""The table of the PostgreSQL sink for its readers: indexes, retention, and the queries of docs/sinks.md."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headwater import topology
from headwater.durations import SECOND
from headwater.results import Result
from headwater_root import resultlines
from headwater_root.delivery import sinks_of
from headwater_root.sinks import postgres as module
from headwater_root.sinks import tables
from headwater_root.sinks.postgres import FencedOff, NotDelivered, Postgres, address_of
from headwater_root.sinks.writer import Writer

DOCS = Path(__file__).parents[2] / "docs"
PANELS = re.findall(
    r"```sql\n(SELECT (?:(?!```).)*headwater_results.*?)```", (DOCS / "sinks.md").read_text(), re.S
)
HOUR = 3_600 * SECOND
BEGIN = 1_700_000_000 * SECOND
# What Grafana makes of its macro.
SPAN = "start_time BETWEEN '2023-11-14T22:30:00Z' AND '2023-11-14T22:45:00Z'"


def opened(directory: Path, database: str, epoch: int = 1, **options: Any) -> Postgres:
    address = address_of(topology.Sink("postgres", dsn=database), "sink", {})
    return Postgres(directory, address, Writer("plant", epoch), **options)


def rows(*numbers: int) -> bytes:
    return resultlines.encode(
        Result("smooth", "", f"machine-{n}", BEGIN, BEGIN + SECOND, 1, {"avg": n / 7, "max": float(n)})
        for n in numbers
    )


def fetched(database: str, statement: str, *given: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(database, autocommit=True) as connection:
        found = connection.execute(statement.encode(), given)
        return found.fetchall() if found.description else []


def indexes(database: str, table: str = "headwater_results") -> set[str]:
    found = fetched(database, "SELECT indexdef FROM pg_indexes WHERE tablename = %s", table)
    return {definition.partition(" USING ")[2] for (definition,) in found}


# Indexes


def filled(database: str, directory: Path) -> None:
    """The table as the sink makes it, with 200,000 windows of 20 queries and 100 keys."""
    sink = opened(directory, database)
    sink.deliver(1, rows(1))
    sink.close()
    fetched(
        database,
        """
        INSERT INTO headwater_results
            (id, query, incarnation, site, key, start, "end", start_time, end_time, count, "values")
        SELECT q || '/' || k || '/' || w, CASE q WHEN 0 THEN 'smooth' ELSE 'query-' || q END, 1, '',
            'machine-' || k, 0, 0, to_timestamp(1700000000 + 60 * w), to_timestamp(1700000060 + 60 * w), 5,
            jsonb_build_object('avg', k + w, 'max', 2 * k + w)
        FROM generate_series(0, 19) q, generate_series(0, 99) k, generate_series(1, 100) w
        """,
    )
    fetched(database, "ANALYZE headwater_results")


def scans(plan: dict[str, Any]) -> list[dict[str, Any]]:
    below = [node for part in plan.get("Plans", ()) for node in scans(part)]
    return [plan, *below] if "Scan" in plan["Node Type"] else below


def test_the_documented_queries_use_an_index_and_give_rows(tmp_path: Path, database: str) -> None:
    filled(database, tmp_path)
    assert len(PANELS) >= 5
    for panel in PANELS:
        statement = panel.replace("$__timeFilter(start_time)", SPAN)
        found = fetched(database, statement)
        assert found, statement
        ((answer,),) = fetched(database, f"EXPLAIN (FORMAT JSON) {statement}")
        plan = answer if isinstance(answer, list) else json.loads(answer)
        kinds = {node["Node Type"] for node in scans(plan[0]["Plan"])}
        assert kinds, (statement, plan)
        assert "Seq Scan" not in kinds, (statement, plan)


def test_the_panels_give_what_they_say(tmp_path: Path, database: str) -> None:
    filled(database, tmp_path)
    course, one, latest, highest, behind = (
        fetched(database, panel.replace("$__timeFilter(start_time)", SPAN)) for panel in PANELS[:5]
    )
    # 22:30 to 22:45 are the windows 17 to 31: the first one begins at 22:13:20.
    assert len(course) == 15 * 100
    assert {key for _, key, _ in course} == {f"machine-{k}" for k in range(100)}
    assert [average for _, average, _ in one] == [1.0 + w for w in range(17, 32)]
    assert {key: value for key, _, value in latest} == {f"machine-{k}": k + 31.0 for k in range(100)}
    assert highest == [(f"machine-{k}", 2.0 * k + 31) for k in range(99, 89, -1)]
    assert float(behind[0][0]) > 0


@pytest.mark.parametrize("table", ["headwater_results", "mill.results", "t" * 63])
def test_a_new_table_has_the_indexes(tmp_path: Path, database: str, table: str) -> None:
    sink = opened(tmp_path, database, table=table)
    sink.deliver(1, rows(1))
    sink.close()
    assert indexes(database, table.rpartition(".")[2]) == {
        "btree (id)",
        "btree (query, start_time)",
        "btree (query, key, start_time)",
    }


def test_a_table_of_a_release_before_is_written_and_the_log_has_what_it_lacks(
    tmp_path: Path, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    sink = opened(tmp_path, database)
    sink.deliver(1, rows(1))
    sink.close()
    for (name,) in fetched(
        database,
        "SELECT indexrelid::regclass::text FROM pg_index i JOIN pg_class c "
        "ON c.oid = i.indrelid WHERE relname = 'headwater_results' AND NOT indisprimary",
    ):
        fetched(database, f"DROP INDEX {name}")
    with caplog.at_level(logging.WARNING):
        sink.deliver(2, rows(2))
        sink.close()
    found = [record for record in caplog.records if record.message == "the table of results lacks an index"]
    remedies = [vars(record)["remedy"] for record in found]
    assert remedies == [
        'CREATE INDEX CONCURRENTLY ON "headwater_results" ("query", "start_time")',
        'CREATE INDEX CONCURRENTLY ON "headwater_results" ("query", "key", "start_time")',
    ]
    for remedy in remedies:
        fetched(database, remedy)
    caplog.clear()
    sink.deliver(3, rows(3))
    sink.close()
    assert not caplog.records
    assert fetched(database, "SELECT count(*) FROM headwater_results") == [(3,)]


# Retention


def aged(database: str, hours: int, *keys: str) -> None:
    fetched(
        database,
        "UPDATE headwater_results SET written_at = now() - %s * interval '1 hour' WHERE key = ANY (%s)",
        hours,
        list(keys),
    )


def keys(database: str) -> list[str]:
    return [key for (key,) in fetched(database, "SELECT key FROM headwater_results ORDER BY key")]


def test_rows_past_the_retention_are_deleted(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EXPIRY_PERIOD", 0.0)
    monkeypatch.setattr(tables, "BATCH_ROWS", 2)
    sink = opened(tmp_path, database, retention=24 * HOUR)
    sink.deliver(1, rows(*range(1, 8)))
    sink.tidy()
    # The windows are of 2023: what counts is when a row was written.
    assert len(keys(database)) == 7
    aged(database, 25, *(f"machine-{n}" for n in range(1, 6)))
    aged(database, 23, "machine-6")
    # A batch at a time: deliveries come in between.
    left = []
    for _ in range(3):
        sink.tidy()
        left.append(len(keys(database)))
    assert left == [5, 3, 2]
    assert keys(database) == ["machine-6", "machine-7"]
    # What comes again is there again, once.
    sink.deliver(2, rows(1, 6))
    assert keys(database) == ["machine-1", "machine-6", "machine-7"]
    sink.close()


def test_without_a_retention_nothing_is_deleted_and_the_table_stays_as_it_was(
    tmp_path: Path, database: str
) -> None:
    sink = opened(tmp_path, database)
    sink.deliver(1, rows(1))
    sink.tidy()
    sink.close()
    assert keys(database) == ["machine-1"]
    names = fetched(
        database, "SELECT column_name FROM information_schema.columns WHERE table_name = 'headwater_results'"
    )
    assert ("written_at",) not in names


def test_rows_from_before_the_setting_count_as_written_when_it_came(tmp_path: Path, database: str) -> None:
    sink = opened(tmp_path, database)
    sink.deliver(1, rows(1))
    sink.close()
    sink = opened(tmp_path, database, epoch=2, retention=HOUR)
    sink.deliver(2, rows(2))
    sink.tidy()
    assert keys(database) == ["machine-1", "machine-2"]
    aged(database, 2, "machine-1")
    sink._expiry = 0.0
    sink.tidy()
    sink.close()
    assert keys(database) == ["machine-2"]


@pytest.fixture
def large(tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table that is too large for an index at once, and a sink's directory from before the retention."""
    sink = opened(tmp_path, database)
    sink.deliver(1, rows(1, 2))
    sink.close()
    monkeypatch.setattr(tables, "SMALL_TABLE", 0)
    monkeypatch.setattr(module, "EXPIRY_PERIOD", 0.0)
    return tmp_path


def test_a_large_table_is_not_read_when_the_retention_comes(
    large: Path, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = "SELECT relfilenode FROM pg_class WHERE relname = 'headwater_results'"
    before = fetched(database, file), indexes(database)
    sink = opened(large, database, epoch=2, retention=HOUR)
    sink.deliver(2, rows(3))
    for _ in range(3):
        sink.tidy()
    # It was neither written anew nor indexed.
    assert (fetched(database, file), indexes(database)) == before
    aged(database, 2, "machine-1")
    sink.tidy()
    assert keys(database) == ["machine-1", "machine-2", "machine-3"]
    (record,) = (record for record in caplog.records if record.levelno == logging.WARNING)
    assert vars(record)["problem"] == "rows past the retention are not deleted before it is there"
    remedy = vars(record)["remedy"]
    assert remedy == (
        'CREATE INDEX CONCURRENTLY ON "headwater_results" USING brin ("written_at") WITH (autosummarize = on)'
    )
    fetched(database, remedy)
    sink.tidy()
    sink.close()
    assert keys(database) == ["machine-2", "machine-3"]


def test_the_retention_waits_for_readers_and_holds_no_delivery_up(
    large: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "LOCK_WAIT", 50)
    monkeypatch.setattr(tables, "SMALL_TABLE", 2**20)
    sink = opened(large, database, epoch=2, retention=HOUR)
    with psycopg.connect(database) as reader:
        reader.execute("SELECT count(*) FROM headwater_results")
        sink.deliver(2, rows(3))
        sink.tidy()
        sink.deliver(3, rows(4))
    assert "brin (written_at) WITH (autosummarize='on')" not in indexes(database)
    sink.tidy()
    sink.close()
    assert "brin (written_at) WITH (autosummarize='on')" in indexes(database)


def test_a_root_that_has_nothing_to_deliver_deletes(tmp_path: Path, database: str) -> None:
    sink = opened(tmp_path, database, retention=HOUR)
    sink.deliver(1, rows(1, 2))
    aged(database, 2, "machine-1")
    again = opened(tmp_path, database, epoch=2, retention=HOUR)
    again.tidy()
    assert keys(database) == ["machine-2"]
    # The cursor is its own from then on, where it was.
    with pytest.raises(FencedOff, match="a root with the later epoch 2"):
        sink.deliver(2, rows(3))
    assert fetched(database, "SELECT epoch, position FROM headwater_cursors") == [(2, 1)]
    again.deliver(2, rows(3))
    # A root with another log has delivered nothing yet: it takes nothing over by deleting.
    aged(database, 2, "machine-2")
    other = opened(tmp_path / "other", database, retention=HOUR)
    other.tidy()
    again.deliver(3, rows(4))
    assert keys(database) == ["machine-2", "machine-3", "machine-4"]
    for each in (sink, again, other):
        each.close()


def test_an_index_that_came_to_no_end_counts_as_missing(
    tmp_path: Path, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    sink = opened(tmp_path, database)
    sink.deliver(1, rows(1))
    sink.close()
    fetched(
        database,
        "UPDATE pg_index SET indisvalid = false WHERE indrelid = 'headwater_results'::regclass "
        "AND NOT indisprimary AND indnkeyatts = 2",
    )
    sink.deliver(2, rows(2))
    sink.close()
    remedies = [vars(record)["remedy"] for record in caplog.records if "lacks an index" in record.message]
    assert remedies == ['CREATE INDEX CONCURRENTLY ON "headwater_results" ("query", "start_time")']


def test_a_root_that_is_fenced_deletes_nothing(tmp_path: Path, database: str) -> None:
    older = opened(tmp_path, database, retention=HOUR)
    older.deliver(1, rows(1))
    newer = opened(tmp_path, database, epoch=2)
    newer.deliver(2, rows(2))
    aged(database, 2, "machine-1")
    with pytest.raises(FencedOff, match="a root with the later epoch 2"):
        older.tidy()
    older.close()
    newer.close()
    assert keys(database) == ["machine-1", "machine-2"]


def test_a_role_that_may_not_delete_says_so(tmp_path: Path, database: str) -> None:
    sink = opened(tmp_path, database, retention=HOUR)
    sink.deliver(1, rows(1))
    sink.close()
    fetched(database, "CREATE ROLE writer_without_delete LOGIN")
    fetched(
        database,
        "GRANT SELECT, INSERT, UPDATE ON headwater_results, headwater_cursors TO writer_without_delete",
    )
    try:
        sink._address["user"] = "writer_without_delete"
        sink.deliver(2, rows(2))
        with pytest.raises(NotDelivered, match="permission denied for table headwater_results"):
            sink.tidy()
        sink.close()
        assert keys(database) == ["machine-1", "machine-2"]
    finally:
        fetched(database, "DROP OWNED BY writer_without_delete")
        fetched(database, "DROP ROLE writer_without_delete")


@pytest.fixture
def partitioned(tmp_path: Path, database: str) -> Path:
    """A table that somebody has split in two, and a sink's directory."""
    sink = opened(tmp_path, database)
    sink.deliver(1, rows(1))
    sink.close()
    fetched(database, "ALTER TABLE headwater_results RENAME TO unsplit")
    fetched(
        database,
        "CREATE TABLE headwater_results (LIKE unsplit INCLUDING DEFAULTS, PRIMARY KEY (id)) "
        "PARTITION BY HASH (id)",
    )
    for place in (0, 1):
        fetched(
            database,
            f"CREATE TABLE part_{place} PARTITION OF headwater_results "
            f"FOR VALUES WITH (MODULUS 2, REMAINDER {place})",
        )
    return tmp_path


def test_a_partitioned_table_is_indexed_by_statements_that_postgresql_takes(
    partitioned: Path, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    sink = opened(partitioned, database, epoch=2, retention=HOUR)
    sink.deliver(2, rows(2))
    sink.tidy()
    remedies = [vars(record)["remedy"] for record in caplog.records if "lacks an index" in record.message]
    assert remedies == [
        'CREATE INDEX ON "headwater_results" ("query", "start_time")',
        'CREATE INDEX ON "headwater_results" ("query", "key", "start_time")',
        'CREATE INDEX ON "headwater_results" USING brin ("written_at") WITH (autosummarize = on)',
    ]
    for remedy in remedies:
        fetched(database, remedy)
    sink.close()
    caplog.clear()
    sink = opened(partitioned, database, epoch=3, retention=HOUR)
    sink.deliver(3, rows(3))
    aged(database, 2, "machine-2")
    sink.tidy()
    sink.close()
    assert not caplog.records
    assert keys(database) == ["machine-3"]


def test_only_rows_past_the_retention_leave_a_partitioned_table(partitioned: Path, database: str) -> None:
    sink = opened(partitioned, database, epoch=2, retention=HOUR)
    sink.deliver(2, rows(*range(1, 21)))
    sink.tidy()
    fetched(database, "CREATE INDEX ON headwater_results (written_at)")
    # Rows of two partitions may have the same place (ctid).
    fetched(database, "UPDATE part_0 SET written_at = now() - interval '2 hours'")
    left = fetched(database, "SELECT key FROM part_1 ORDER BY key")
    assert 0 < len(left) < 20
    sink._expiry = 0.0
    sink.tidy()
    sink.close()
    assert [(key,) for key in keys(database)] == left


def test_the_manifest_sets_it(tmp_path: Path, database: str) -> None:
    asked = topology.Sink("postgres", dsn=database, retention=90 * 24 * HOUR)
    (sink,) = sinks_of([asked], tmp_path, Writer("plant", 1), {})
    sink.deliver(1, rows(1))
    sink.close()
    assert "brin (written_at) WITH (autosummarize='on')" in indexes(database)
