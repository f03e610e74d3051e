"""The table of results in PostgreSQL beside its rows: the indexes that readers need, and how old rows go.

A new table gets its indexes at once. A table that an earlier release made may be large, and an index of it
may take longer than a delivery may: the log names the statements, and a person runs them.

With a retention the table has a further column, `written_at`, and rows that are older are deleted in small
transactions. It is the time of the server and not that of the events, so that windows of ranks and old
recordings stay as long as others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

    Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

# Columns by which the documented queries look for rows: a time span of a query, and of one key of it.
INDEXES = (("query", "start_time"), ("query", "key", "start_time"))
WRITTEN = "written_at"
# Rows of one transaction that deletes.
BATCH_ROWS = 10_000

_COLUMNS_OF_INDEXES = """
SELECT array_agg(a.attname::text ORDER BY k.place)
FROM pg_index i
CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k (number, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = to_regclass(%s) AND i.indpred IS NULL
GROUP BY i.indexrelid
"""


def create_indexes(connection: Connection, results: sql.Identifier) -> None:
    """Create all indexes of a table that is new."""
    from psycopg import sql

    for columns in INDEXES:
        connection.execute(_creation(results, columns, sql.SQL("CREATE INDEX ON {} ({})")))


def missing_indexes(connection: Connection, table: str, results: sql.Identifier) -> list[str]:
    """The statements that create what a table lacks; an index that goes on with more columns is as good."""
    from psycopg import sql

    found = [tuple(columns) for (columns,) in connection.execute(_COLUMNS_OF_INDEXES, [table]).fetchall()]
    statement = sql.SQL("CREATE INDEX CONCURRENTLY ON {} ({})")
    return [
        _creation(results, columns, statement).as_string(connection)
        for columns in INDEXES
        if not any(have[: len(columns)] == columns for have in found)
    ]


def add_written_column(connection: Connection, table: str, results: sql.Identifier) -> None:
    """Give a table the time at which each row was written; rows that are there count as written now."""
    from psycopg import sql

    known = (
        "SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = %s AND NOT attisdropped"
    )
    if connection.execute(known, [table, WRITTEN]).fetchone() is not None:
        return
    column = sql.SQL("ALTER TABLE {} ADD COLUMN {} timestamptz NOT NULL DEFAULT now()")
    connection.execute(column.format(results, sql.Identifier(WRITTEN)))
    # Rows come in the order of this time, so an index of a few pages finds the oldest.
    index = sql.SQL("CREATE INDEX ON {} USING brin ({}) WITH (autosummarize = on)")
    connection.execute(index.format(results, sql.Identifier(WRITTEN)))


def delete_expired(connection: Connection, results: sql.Identifier, microseconds: int) -> int:
    """Delete rows that were written longer ago than this, at most BATCH_ROWS; how many they were."""
    from psycopg import sql

    statement = sql.SQL(
        "DELETE FROM {results} WHERE ctid = ANY (ARRAY (SELECT ctid FROM {results} "
        "WHERE {written} < now() - %s * interval '1 microsecond' LIMIT %s))"
    ).format(results=results, written=sql.Identifier(WRITTEN))
    return connection.execute(statement, [microseconds, BATCH_ROWS]).rowcount


def _creation(results: sql.Identifier, columns: tuple[str, ...], statement: sql.SQL) -> sql.Composed:
    from psycopg import sql

    return statement.format(results, sql.SQL(", ").join(map(sql.Identifier, columns)))
