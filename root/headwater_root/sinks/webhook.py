"""Results sent to an address by HTTP: at least once, and once for a receiver that minds the idempotency key.

A request is a POST of JSON lines, of `PART_BYTES` at most unless one line alone is longer. Its
`Idempotency-Key` names the log, the position behind which the lines stand, and which bytes they are; it is
the same with every attempt, also after a restart, because what is being sent is noted in `cursor.json`
before. A receiver that does not mind the key has the `id` of each line.

Redirects are not followed: headers may hold a secret, and it is for one address alone.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from headwater import topology
from headwater.errors import Invalid, Problem, RetryableError
from headwater_root import files
from headwater_root.files import Damaged
from headwater_root.sinks.deadline import TooSlow, within
from headwater_root.sinks.writer import Writer, word_of
from headwater_wire import failpoints

PART_BYTES = 256 * 2**10
# Of an answer, no more is read.
ANSWER_BYTES = 64 * 2**10
# In seconds; a receiver may ask for more patience, and gets this at most.
LONGEST_WAIT = 300.0


class NotTaken(RetryableError):
    """The receiver did not take a request; `wait` is how many seconds it asks for."""

    def __init__(self, where: str, problem: str, wait: float = 0.0) -> None:
        self.wait = wait
        super().__init__(f"{where}: {problem}")


@dataclass(frozen=True, slots=True)
class Place:
    """Everything up to `position` is delivered. Then `sent` bytes of what stands behind that up to `until`,
    which are `size` bytes; both are 0 if nothing is being sent."""

    position: int = 0
    until: int = 0
    size: int = 0
    sent: int = 0


def parts(rows: bytes, begin: int, limit: int = PART_BYTES) -> Iterator[tuple[int, int]]:
    """Where the requests for whole lines begin and end."""
    while begin < len(rows):
        end = len(rows)
        if end - begin > limit:
            end = rows.rfind(b"\n", begin, begin + limit) + 1 or rows.find(b"\n", begin) + 1 or end
        yield begin, end
        begin = end


def headers_of(asked: topology.Sink, field: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The headers that the environment holds."""
    what, found = "the sink cannot be opened", {}
    if asked.secret_ref is not None and not asked.headers_env:
        remedy = "outside of a cluster give headersEnv; only the operator reads the Secret"
        raise Invalid(
            what, [Problem(f"{field}.secretRef", "says where the headers are in a cluster", remedy)]
        )
    for name, variable in asked.headers_env:
        value = environment.get(variable)
        if value is None:
            remedy = f"put the header into {variable}"
            raise Invalid(
                what,
                [Problem(f"{field}.headersEnv[{name}]", f"{variable} is not set in the environment", remedy)],
            )
        # Not shown: it is a secret.
        if not (value.isascii() and value.isprintable()):
            said = f"{variable} holds characters that no header has"
            raise Invalid(
                what, [Problem(f"{field}.headersEnv[{name}]", said, "give printable ASCII, on one line")]
            )
        found[name] = value
    return found


class Webhook:
    """Posts to one address; a connection is kept as long as the receiver keeps it."""

    name = "webhook"

    def __init__(
        self,
        directory: Path | str,
        url: str,
        writer: Writer,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        trusted: ssl.SSLContext | None = None,
    ) -> None:
        """`trusted` is whose certificates are taken: those of the system's authorities if nothing is said."""
        self._directory = Path(directory)
        files.make_directory(self._directory)
        files.sweep(self._directory)
        self._url, self._timeout, self._trusted = urlsplit(url), timeout, trusted
        self._headers = dict(headers or {})
        self._log = f"{writer.topology}:{word_of(self._directory)}"
        self._place = self._found()
        self._connection: http.client.HTTPConnection | None = None

    @property
    def cursor(self) -> int:
        """The last position that is delivered, durably."""
        return self._place.position

    def deliver(self, position: int, rows: bytes) -> None:
        """Send the rows, in as many requests as it takes."""
        if position <= self.cursor:
            return
        begun = self._place
        if 0 < begun.until < position and rows[begun.size - 1 : begun.size] == b"\n":
            # What was being sent before is sent first, in the same requests.
            self._send(begun.until, rows[: begun.size])
            rows = rows[begun.size :]
        if position > self.cursor:
            self._send(position, rows)

    def recall(self) -> None:
        """Read the cursor again."""
        self._place = self._found()

    def tidy(self) -> None:
        """Nothing waits to be tidied."""

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _send(self, until: int, rows: bytes) -> None:
        position, sent = self.cursor, 0
        if (self._place.until, self._place.size) == (until, len(rows)):
            sent = self._place.sent
        elif rows:
            self._move(Place(position, until, len(rows), 0))
        for begin, end in parts(rows, sent):
            self._post(f"{self._log}:{position}:{begin}-{end}", rows[begin:end])
            failpoints.reached("root.sink.written")
            if end < len(rows):
                self._move(Place(position, until, len(rows), end))
        self._move(Place(until))

    def _post(self, key: str, body: bytes) -> None:
        kept = self._connection is not None
        try:
            try:
                status, reason, wait = self._answer(key, body)
            except (http.client.RemoteDisconnected, ConnectionError, BrokenPipeError):
                self.close()
                if not kept:
                    raise
                # The receiver has closed a connection that was idle: a new one will do.
                status, reason, wait = self._answer(key, body)
        except (OSError, http.client.HTTPException, TooSlow) as error:
            self.close()
            raise NotTaken(self._where, _told(error)) from None
        except BaseException:
            self.close()
            raise
        if not 200 <= status < 300:
            self.close()
            raise NotTaken(
                self._where, f"the receiver answers {status} {reason}".rstrip() + _hint(status), wait
            )

    def _answer(self, key: str, body: bytes) -> tuple[int, str, float]:
        if self._connection is None:
            self._connection = self._connected()
        connection = self._connection
        with within(self._timeout, connection.sock.fileno()):
            target = self._url.path or "/"
            connection.request(
                "POST",
                f"{target}?{self._url.query}" if self._url.query else target,
                body,
                {
                    **self._headers,
                    "Content-Type": "application/x-ndjson",
                    "Idempotency-Key": key,
                    "User-Agent": "headwater",
                },
            )
            answer = connection.getresponse()
            said = answer.read(ANSWER_BYTES)
            if len(said) == ANSWER_BYTES or answer.will_close:
                self.close()
        reason = "".join(c for c in answer.reason[:100] if c.isprintable())
        return answer.status, reason, _seconds(answer.getheader("Retry-After"))

    def _connected(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        connection: http.client.HTTPConnection
        if self._url.scheme == "https":
            trusted = self._trusted or ssl.create_default_context()
            connection = http.client.HTTPSConnection(host, port, timeout=self._timeout, context=trusted)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=self._timeout)
        try:
            connection.connect()
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def _where(self) -> str:
        # Without the rest: a query may hold a token.
        shown = SplitResult(self._url.scheme, self._url.netloc, self._url.path, "", "")
        return shown.geturl()

    def _found(self) -> Place:
        path = self._directory / "cursor.json"
        if not path.exists():
            return Place()
        try:
            return Place(**{name: int(value) for name, value in json.loads(path.read_bytes()).items()})
        except (ValueError, TypeError, AttributeError):
            remedy = "put it back, or remove it to begin with the oldest results of the outbox"
            raise Damaged(path, 0, "this is no cursor", remedy) from None

    def _move(self, place: Place) -> None:
        files.replace(self._directory / "cursor.json", json.dumps(asdict(place)).encode() + b"\n")
        self._place = place


def _told(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _hint(status: int) -> str:
    if 300 <= status < 400:
        return "; redirects are not followed, so give the address that it leads to"
    if status in (401, 403):
        return "; see to what headersEnv names"
    if 400 <= status < 500 and status not in (408, 425, 429):
        return "; the request is tried again, and nothing behind it is sent before it is taken"
    return ""


def _seconds(asked: str | None) -> float:
    """What a header Retry-After asks for; a date is not looked at."""
    if asked is None or not asked.strip().isdecimal():
        return 0.0
    return min(float(asked), LONGEST_WAIT)
