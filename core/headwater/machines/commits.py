"""What the root decides: appended to its log and applied, made durable, and only then put out or told."""

from __future__ import annotations

from collections.abc import Callable

from headwater.machines.messages import Ack, Delivery, Outbox
from headwater.machines.records import Body, Journal, Merged, Record
from headwater.machines.sizes import rows
from headwater.machines.state import State
from headwater.results import Results


class Commits:
    """The way into the log: decisions at once, batches in groups."""

    def __init__(self, state: State, journal: Journal, emit: Callable[[int, Results], None]) -> None:
        self._state, self._journal, self._emit = state, journal, emit
        # Batches that fit and wait to be made durable, and who has sent them.
        self._pending: list[tuple[str, Delivery]] = []
        # Results of records that are not durable yet.
        self._made: list[tuple[int, Results]] = []
        self._failed: Exception | None = None
        # Rows of the batches that were taken.
        self.items = 0

    @property
    def pending(self) -> int:
        """How many batches wait to be committed."""
        return len(self._pending)

    @property
    def settled(self) -> bool:
        """Whether nothing waits to be committed or put out."""
        return not self._pending and not self._made

    def refuse_if_failed(self) -> None:
        """What is applied may be more than what is durable: nothing of it may be told."""
        if self._failed is not None:
            raise self._failed

    def add(self, sender: str, message: Delivery) -> None:
        """A batch that fits."""
        self._pending.append((sender, message))
        self.items += rows(message.partial)
        vector = message.partial.vector
        self._state.lanes[message.lane].ahead.update({name: span.high for name, span in vector.items()})

    def commit(self, out: Outbox) -> None:
        """Make durable and apply the batches that wait: one group, one fsync."""
        self.refuse_if_failed()
        pending, self._pending = self._pending, []
        if not pending:
            return
        for lane in self._state.lanes.values():
            lane.ahead.clear()
        for _, message in pending:
            # One before it may have ended its lane: then it is of no use.
            if message.lane in self._state.lanes:
                self._write(Merged(message.partial, message.lane))
        self._sync()
        for sender, message in pending:
            out.add(sender, Ack(message.stream, message.id))

    def decide_behind(self, out: Outbox, *bodies: Body) -> None:
        """Decide behind the batches that wait."""
        self.commit(out)
        self.decide(*bodies)

    def decide(self, *bodies: Body) -> None:
        for body in bodies:
            self._write(body)
        # Most hellos change nothing: there is nothing to make durable.
        if bodies:
            self._sync()

    def replay(self, position: int, body: Body) -> None:
        """What the log has."""
        self._apply(position, body)
        self._publish()

    def _write(self, body: Body) -> None:
        engine = self._state.engine
        # The watermark that a record names is that of the records before it.
        record = Record(body, engine.watermark, engine.version)
        try:
            self._apply(self._journal.append(record), body)
        except Exception as error:
            # Whatever it is: what was appended must not become durable, and nothing may follow.
            self._failed = error
            raise

    def _apply(self, position: int, body: Body) -> None:
        results = self._state.apply(position, body)
        if results.blocks:
            self._made.append((position, results))

    def _sync(self) -> None:
        try:
            self._journal.sync()
            self._publish()
        except Exception as error:
            self._failed = error
            raise

    def _publish(self) -> None:
        # What cannot be put out stays for the next time.
        while self._made:
            self._emit(*self._made[0])
            del self._made[0]
