"""Results in a table of PostgreSQL, each exactly once.

Rows and cursor change in one transaction: COPY into a temporary table, from there INSERT with an update of
what has the same id, then the cursor. It stands in `headwater_cursors`, by topology and table, together with
who wrote it: the word and the epoch of the log, and a word of the process. A writer that finds a higher epoch
there, or another process where it was itself, is fenced and writes nothing more.

The file `cursor.json` says what was known of the cursor last, so that the root can tell how far the sink is
without the server; what the server says counts.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

from headwater import topology
from headwater.errors import Invalid, PermanentError, Problem, RetryableError
from headwater_root import files, resultlines
from headwater_root.sinks import tables
from headwater_root.sinks.cursor import Cursor
from headwater_root.sinks.deadline import TooSlow, within
from headwater_root.sinks.texts import storable, storable_in
from headwater_root.sinks.writer import Writer, word_of
from headwater_wire import failpoints

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

    Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

log = logging.getLogger(__name__)
TABLE, CURSORS = "headwater_results", "headwater_cursors"
# For as many bytes the timeout of a sink is.
TIMEOUT_BYTES = 1 << 20
# How often the sink looks for rows that are past the retention, in seconds.
EXPIRY_PERIOD = 60.0
# In seconds; what the user's address says counts more. Of a server that is gone without a word, TCP tells.
DEFAULTS = {
    "application_name": "headwater",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
}

_COLUMNS = {
    "id": "text",
    "query": "text NOT NULL",
    "incarnation": "bigint NOT NULL",
    "site": "text NOT NULL",
    "key": "text",
    "start": "bigint NOT NULL",
    "end": "bigint NOT NULL",
    "start_time": "timestamptz",
    "end_time": "timestamptz",
    "count": "bigint NOT NULL",
    "values": "jsonb NOT NULL",
    "ordinal": "bigint",
}


class NotDelivered(RetryableError):
    """The server did not take the rows."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")


class WentBack(RetryableError):
    """The server knows less than it has confirmed, as after a restore."""

    def __init__(self, where: str, known: int, found: int) -> None:
        super().__init__(
            f"{where}: the server had taken results up to position {known}, and now says {found}: it was "
            "restored, a standby took over that lacked them, or it is another server; all that is still in "
            "the outbox is sent again"
        )


class FencedOff(PermanentError):
    """Another root writes here now."""

    def __init__(self, where: str, who: str) -> None:
        super().__init__(
            f"{where}: {who} writes here now, so this root writes nothing more; stop one of the two, or give "
            "one of them a table of its own"
        )


class TakenTable(PermanentError):
    """A table that holds the results of another topology."""

    def __init__(self, where: str, other: str) -> None:
        super().__init__(
            f"{where}: the table holds the results of the topology {other!r}, whose queries may have the "
            f"same names; give another table, or, if it is gone for good, remove its row from {CURSORS}"
        )


@dataclass(frozen=True, slots=True)
class Holder:
    """Who wrote the cursor last, and where it is."""

    log: str
    epoch: int
    process: str
    position: int


def fenced_by(found: Holder, mine: Holder, *, held: bool) -> str | None:
    """Who has taken over, if somebody has; `held` says that the cursor was this process's before."""
    if found.log == mine.log and found.epoch != mine.epoch:
        # An earlier one cannot take over: the server was restored.
        return f"a root with the later epoch {found.epoch}" if found.epoch > mine.epoch else None
    if held and found.process not in ("", mine.process):
        return "another root"
    return None


def address_of(asked: topology.Sink, field: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The parameters of the connection: those of `dsn`, and over them those of the environment variable."""
    what = "the sink cannot be opened"
    if find_spec("psycopg") is None:
        problem = Problem(
            field, "needs psycopg, which is not installed", "install it: pip install 'headwater[postgres]'"
        )
        raise Invalid(what, [problem])
    if asked.dsn is None and asked.dsn_env is None:
        remedy = "outside of a cluster give dsn or dsnEnv; only the operator reads the Secret"
        raise Invalid(what, [Problem(f"{field}.secretRef", "says where the address is in a cluster", remedy)])
    given = {f"{field}.dsn": asked.dsn} if asked.dsn is not None else {}
    if asked.dsn_env is not None:
        if not environment.get(asked.dsn_env):
            remedy = f"put the address of the database into {asked.dsn_env}"
            raise Invalid(
                what, [Problem(f"{field}.dsnEnv", f"{asked.dsn_env} is not set in the environment", remedy)]
            )
        given[f"{field}.dsnEnv"] = environment[asked.dsn_env]
    return DEFAULTS | _parameters(given, what)


def _parameters(given: Mapping[str, str], what: str) -> dict[str, str]:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    found: dict[str, str] = {}
    for field, text in given.items():
        try:
            found |= {name: str(value) for name, value in conninfo_to_dict(text).items() if value is not None}
        except (psycopg.Error, UnicodeError):
            # What the error says may hold a part of the password.
            remedy = "give an address such as postgresql://mill@db/plant or host=db dbname=plant"
            raise Invalid(what, [Problem(field, "is no address of a database", remedy)]) from None
    return found


class Postgres:
    """Writes to one table; a connection that is lost is opened again by the next delivery."""

    name = "postgres"

    def __init__(
        self,
        directory: Path | str,
        address: Mapping[str, str],
        writer: Writer,
        *,
        table: str = TABLE,
        timeout: float = 30.0,
        retention: int | None = None,
    ) -> None:
        directory = Path(directory)
        files.make_directory(directory)
        files.sweep(directory)
        self._cursor = Cursor(directory / "cursor.json")
        self._address, self._table, self._timeout = dict(address), table, timeout
        self._retention, self._expiry = retention, 0.0
        # Whether the table is known to be ready for deletions, and which statement it lacks was logged.
        self._deletes, self._lacks = False, ""
        self._topology = writer.topology
        self._mine = Holder(word_of(directory), writer.epoch, secrets.token_hex(8), 0)
        # Whether the cursor is this process's, and the tables are known to be there.
        self._held = self._prepared = False
        self._connection: Connection | None = None
        self._fenced: FencedOff | None = None

    @property
    def cursor(self) -> int:
        """The last position that is delivered, as far as it is known here."""
        return self._cursor.position

    def deliver(self, position: int, rows: bytes) -> None:
        """Write the rows and the cursor in one transaction."""
        if self._fenced is not None:
            raise self._fenced
        if position <= self.cursor:
            return
        # A file of results may be large: who has more to write may take longer.
        limit = self._timeout * max(1.0, len(rows) / TIMEOUT_BYTES)
        with self._attempt(limit) as connection:
            reached = self._written(connection, position, rows, limit)
        self._cursor.move(reached)

    @contextmanager
    def _attempt(self, limit: float) -> Iterator[Connection]:
        """A connection for so many seconds; whatever goes wrong with it, the next attempt opens another."""
        import psycopg

        try:
            connection = self._connected()
            with within(limit, connection.fileno()):
                yield connection
        except BaseException as error:
            # Whatever it was, nobody knows what state the connection is in.
            self.close()
            if isinstance(error, FencedOff):
                self._fenced = error
            if isinstance(error, psycopg.Error | OSError | TooSlow):
                raise NotDelivered(self._where, self._told(error)) from None
            raise

    def recall(self) -> None:
        """Nothing to do: the server is asked in every transaction."""

    def tidy(self) -> None:
        """Delete rows that are past the retention, if it is time."""
        if self._retention is None or self._fenced is not None or monotonic() < self._expiry:
            return
        with self._attempt(self._timeout) as connection:
            count = self._delete_expired(connection, self._retention)
        # What is left goes with the next calls: deliveries come in between.
        if count < tables.BATCH_ROWS:
            self._expiry = monotonic() + EXPIRY_PERIOD

    def close(self) -> None:
        """Close the connection; with the next one, the tables are looked for again."""
        self._prepared = self._deletes = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def _where(self) -> str:
        at = self._address.get("host") or self._address.get("hostaddr") or "the local server"
        return f"table {self._table} at {at}"

    def _told(self, error: Exception) -> str:
        """What went wrong in one line, without a password."""
        told = " ".join(str(error).split())[:500] or type(error).__name__
        for name in ("password", "sslpassword"):
            if secret := self._address.get(name):
                told = told.replace(secret, "***")
        return told

    def _connected(self) -> Connection:
        if self._connection is None:
            import psycopg
            from psycopg.conninfo import make_conninfo

            # Not prepared: behind a pool, the next transaction may be on another server process.
            self._connection = psycopg.connect(
                make_conninfo(**self._address), autocommit=True, prepare_threshold=None
            )
        return self._connection

    def _written(self, connection: Connection, position: int, rows: bytes, limit: float) -> int:
        """Up to where everything is written then."""
        with connection.transaction():
            connection.execute(_LIMITS, {"milliseconds": str(max(int(limit * 1000), 1))})
            if not self._prepared:
                self._prepare(connection)
            found = self._holder(connection)
            if who := fenced_by(found, self._mine, held=self._held):
                raise FencedOff(self._where, who)
            if found.log != self._mine.log:
                if found.log:
                    log.warning("results of another log were written here", extra={"sink": self.name})
                found = Holder(self._mine.log, 0, "", 0)
            if found.position < self.cursor:
                known = self.cursor
                self._cursor.move(found.position)
                raise WentBack(self._where, known, found.position)
            reached = max(position, found.position)
            if position > found.position:
                self._insert(connection, rows)
            failpoints.reached("root.sink.written")
            self._move(connection, reached)
        self._held = self._prepared = True
        return reached

    def _move(self, connection: Connection, position: int) -> None:
        """Write where the cursor is, and that it is this process's."""
        connection.execute(
            self._sql(
                "UPDATE {cursors} SET log = %s, epoch = %s, process = %s, position = %s, "
                "changed = now() WHERE topology = %s AND sink = %s"
            ),
            [self._mine.log, self._mine.epoch, self._mine.process, position, *self._key],
        )

    def _delete_expired(self, connection: Connection, retention: int) -> int:
        """Delete in one transaction what only the writer of this table may; how many rows they were."""
        with connection.transaction():
            connection.execute(_LIMITS, {"milliseconds": str(max(int(self._timeout * 1000), 1))})
            if not self._prepared:
                self._prepare(connection)
            found = self._holder(connection)
            if who := fenced_by(found, self._mine, held=self._held):
                raise FencedOff(self._where, who)
            if found.log != self._mine.log:
                # Nothing of this log was delivered yet; the first delivery takes the row over.
                return 0
            if not self._held:
                self._move(connection, found.position)
            count = 0
            if self._deletes or self._prepare_retention(connection):
                count = tables.delete_expired(connection, self._results, retention)
        self._held = self._prepared = True
        return count

    def _prepare_retention(self, connection: Connection) -> bool:
        """Whether rows can be deleted now; what the table lacks for that is logged once."""
        from psycopg.errors import LockNotAvailable

        try:
            with connection.transaction():
                lacks = tables.prepare_retention(connection, self._table, self._results)
        except LockNotAvailable:
            # Somebody reads for long: the next look is early enough.
            return False
        self._deletes = lacks is None
        if lacks is not None and lacks != self._lacks:
            self._lacks = lacks
            problem = "rows past the retention are not deleted before it is there"
            said = {"sink": self.name, "problem": problem, "remedy": lacks}
            log.warning("the table of results lacks an index", extra=said)
        return self._deletes

    @property
    def _key(self) -> list[str]:
        return [self._topology, self._table]

    def _prepare(self, connection: Connection) -> None:
        """Make what is missing: without a look first, one would need the right to make tables."""
        schema, _, _ = self._table.rpartition(".")
        found = connection.execute("SELECT to_regnamespace(%s)", [schema]).fetchone() if schema else (1,)
        if found is None or found[0] is None:
            connection.execute(self._sql("CREATE SCHEMA {schema}"))
        columns = ", ".join(f'"{name}" {kind}' for name, kind in _COLUMNS.items())
        for table, made in (
            (self._table, f"CREATE TABLE {{results}} ({columns}, PRIMARY KEY (id))"),
            (
                f"{schema}.{CURSORS}" if schema else CURSORS,
                "CREATE TABLE {cursors} (topology text, sink text, log text NOT NULL, epoch bigint NOT NULL, "
                "process text NOT NULL, position bigint NOT NULL, "
                "changed timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (topology, sink))",
            ),
        ):
            found = connection.execute("SELECT to_regclass(%s)", [table]).fetchone()
            if found is None or found[0] is None:
                connection.execute(self._sql(made))
                if table == self._table:
                    tables.create_indexes(connection, self._results)
                    if self._retention is not None:
                        tables.add_retention(connection, self._results)
        for statement in tables.missing_indexes(connection, self._table, self._results):
            said = {"sink": self.name, "problem": "queries by time read the whole table", "remedy": statement}
            log.warning("the table of results lacks an index", extra=said)
        other = connection.execute(
            self._sql("SELECT topology FROM {cursors} WHERE sink = %s AND topology <> %s LIMIT 1"),
            [self._table, self._topology],
        ).fetchone()
        if other is not None:
            raise TakenTable(self._where, other[0])
        connection.execute(
            self._sql("INSERT INTO {cursors} VALUES (%s, %s, '', 0, '', 0) ON CONFLICT DO NOTHING"), self._key
        )

    def _holder(self, connection: Connection) -> Holder:
        """The cursor, held until the end of the transaction."""
        found = connection.execute(
            self._sql(
                "SELECT log, epoch, process, position FROM {cursors} "
                "WHERE topology = %s AND sink = %s FOR UPDATE"
            ),
            self._key,
        ).fetchone()
        if found is None:
            # Removed while the root runs. It is made anew with the next attempt.
            self._held = False
            raise NotDelivered(self._where, f"the row of this sink in {CURSORS} is gone")
        return Holder(*found)

    def _insert(self, connection: Connection, rows: bytes) -> None:
        columns = ", ".join(f'"{name}"' for name in _COLUMNS)
        kinds = ", ".join(f'"{name}" {kind}' for name, kind in _COLUMNS.items())
        changed = ", ".join(f'"{name}" = excluded."{name}"' for name in _COLUMNS if name != "id")
        connection.execute(
            f"CREATE TEMP TABLE IF NOT EXISTS headwater_batch (place bigint, {kinds}) ON COMMIT DELETE ROWS"
        )
        with (
            connection.cursor() as cursor,
            cursor.copy(f"COPY pg_temp.headwater_batch (place, {columns}) FROM STDIN") as copy,
        ):
            for row in _table_rows(rows):
                copy.write_row(row)
        # Of two with the same id the later one: PostgreSQL refuses to update a row twice.
        connection.execute(
            self._sql(
                f"INSERT INTO {{results}} ({columns}) "
                f"SELECT DISTINCT ON (id) {columns} FROM pg_temp.headwater_batch ORDER BY id, place DESC "
                f"ON CONFLICT (id) DO UPDATE SET {changed}"
            )
        )

    @property
    def _results(self) -> sql.Identifier:
        from psycopg import sql

        schema, _, table = self._table.rpartition(".")
        return sql.Identifier(schema, table) if schema else sql.Identifier(table)

    def _sql(self, text: str) -> sql.Composed:
        """A statement with the names of the tables in it."""
        from psycopg import sql

        schema, _, _ = self._table.rpartition(".")
        within = [schema] if schema else []
        return sql.SQL(text).format(
            results=self._results,
            cursors=sql.Identifier(*within, CURSORS),
            schema=sql.Identifier(schema or "public"),
        )


# For this transaction alone. A commit that is confirmed must not be lost, so it waits for the disk.
_LIMITS = (
    "SELECT set_config('statement_timeout', %(milliseconds)s, true), "
    "set_config('lock_timeout', %(milliseconds)s, true), "
    "set_config('idle_in_transaction_session_timeout', %(milliseconds)s, true), "
    "set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' "
    "ELSE current_setting('synchronous_commit') END, true)"
)


def _table_rows(rows: bytes) -> Iterator[tuple[Any, ...]]:
    for place, row in enumerate(resultlines.decode(rows)):
        bounds = resultlines.bounds_of(row)
        yield (
            place,
            row["id"],
            storable(row["query"]),
            row["incarnation"],
            storable(row["site"]),
            None if row["key"] is None else storable(row["key"]),
            row["start"],
            row["end"],
            resultlines.time_of(bounds.first),
            resultlines.time_of(bounds.last),
            row["count"],
            resultlines.text(storable_in(row["values"])),
            row["ordinal"],
        )
