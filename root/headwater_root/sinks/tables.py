"""The table of results in PostgreSQL beside its rows: the indexes that readers need, and how old rows go.

A new table gets its indexes at once. A table that an earlier release made may be large, and an index of it
may take longer than a delivery may: the log names the statements, and a person runs them.

With a retention the table has a further column, `written_at`, and rows that are older are deleted in small
transactions. It is the time of the server and not that of the events, so that windows of ranks and old
recordings stay as long as others. A table that is there gets the column, which needs no look at its rows,
between deliveries; its index only while it is small. Without the index nothing is deleted, since finding old
rows would read all of the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, LiteralString, TypeAlias

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

    Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

# Columns by which the documented queries look for rows: a time span of a query, and of one key of it.
INDEXES = (("query", "start_time"), ("query", "key", "start_time"))
WRITTEN = "written_at"
# Rows of one transaction that deletes.
BATCH_ROWS = 10_000
# A table of at most so many bytes is indexed at once: that takes less than a second.
SMALL_TABLE = 64 * 2**20
# How long a change of the table waits for readers, which wait behind it, in milliseconds.
LOCK_WAIT = 1_000

_COLUMNS_OF_INDEXES = """
SELECT array_agg(a.attname::text ORDER BY k.place)
FROM pg_index i
CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k (number, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = to_regclass(%s) AND i.indpred IS NULL AND i.indisvalid AND k.place <= i.indnkeyatts
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

    found = _indexed_columns(connection, table)
    statement = sql.SQL(_creation_beside_writers(connection, table) + " ON {} ({})")
    return [
        _creation(results, columns, statement).as_string(connection)
        for columns in INDEXES
        if not any(have[: len(columns)] == columns for have in found)
    ]


def add_retention(connection: Connection, results: sql.Identifier) -> None:
    """Give a table that is new the time at which each row was written, and its index."""
    connection.execute(_written_column(results))
    connection.execute(_written_index(results, "CREATE INDEX"))


def prepare_retention(connection: Connection, table: str, results: sql.Identifier) -> str | None:
    """Make a table ready for deletions, without a look at the rows of a large one; within a transaction.

    Rows that are there count as written now. Gives the statement that somebody has to run first, if one is
    lacking. Raises LockNotAvailable where readers hold the table.
    """
    known = (
        "SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = %s AND NOT attisdropped"
    )
    small = (
        "SELECT 1 FROM pg_class WHERE oid = to_regclass(%s) AND relkind = 'r' AND pg_relation_size(oid) <= %s"
    )
    connection.execute("SELECT set_config('lock_timeout', %s, true)", [str(LOCK_WAIT)])
    if connection.execute(known, [table, WRITTEN]).fetchone() is None:
        connection.execute(_written_column(results))
    if any(columns[0] == WRITTEN for columns in _indexed_columns(connection, table)):
        return None
    if connection.execute(small, [table, SMALL_TABLE]).fetchone() is not None:
        connection.execute(_written_index(results, "CREATE INDEX"))
        return None
    return _written_index(results, _creation_beside_writers(connection, table)).as_string(connection)


def _creation_beside_writers(connection: Connection, table: str) -> LiteralString:
    """How a statement begins that creates an index beside deliveries.

    PostgreSQL refuses CONCURRENTLY for a partitioned table. Deliveries wait for the index there.
    """
    partitioned = "SELECT 1 FROM pg_class WHERE oid = to_regclass(%s) AND relkind = 'p'"
    if connection.execute(partitioned, [table]).fetchone() is not None:
        return "CREATE INDEX"
    return "CREATE INDEX CONCURRENTLY"


def _written_column(results: sql.Identifier) -> sql.Composed:
    from psycopg import sql

    # The default is the same for all rows that are there, so no row is touched.
    column = sql.SQL("ALTER TABLE {} ADD COLUMN {} timestamptz NOT NULL DEFAULT now()")
    return column.format(results, sql.Identifier(WRITTEN))


def _written_index(results: sql.Identifier, begin: LiteralString) -> sql.Composed:
    from psycopg import sql

    # Rows come in the order of this time, so an index of a few pages finds the oldest.
    index = sql.SQL("{} ON {} USING brin ({}) WITH (autosummarize = on)")
    return index.format(sql.SQL(begin), results, sql.Identifier(WRITTEN))


def _indexed_columns(connection: Connection, table: str) -> list[tuple[str, ...]]:
    """The columns of each index that queries use: of none that came to no end, and of none of some rows."""
    return [tuple(columns) for (columns,) in connection.execute(_COLUMNS_OF_INDEXES, [table]).fetchall()]


def delete_expired(connection: Connection, results: sql.Identifier, microseconds: int) -> int:
    """Delete rows that were written longer ago than this; how many they were.

    They are at most BATCH_ROWS, of a partitioned table as many of each partition.
    """
    from psycopg import sql

    # The age is checked again: rows of two partitions may have the same ctid.
    statement = sql.SQL(
        "DELETE FROM {results} WHERE ctid = ANY (ARRAY (SELECT ctid FROM {results} "
        "WHERE {written} < now() - %(age)s * interval '1 microsecond' LIMIT %(most)s)) "
        "AND {written} < now() - %(age)s * interval '1 microsecond'"
    ).format(results=results, written=sql.Identifier(WRITTEN))
    return connection.execute(statement, {"age": microseconds, "most": BATCH_ROWS}).rowcount


def _creation(results: sql.Identifier, columns: tuple[str, ...], statement: sql.SQL) -> sql.Composed:
    from psycopg import sql

    return statement.format(results, sql.SQL(", ").join(map(sql.Identifier, columns)))
