"""A source that makes a root put out results, without a tree around it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headwater.events import Batch
from headwater.machines.messages import Challenge, Delivery, Hello
from headwater.node import Node
from headwater.prefix import Prefix
from headwater.queries import Query
from headwater.sources import SourceId
from headwater.windows import Tumbling
from headwater_root.runtime import RootRuntime
from tests.harness import joined

QUERIES = [Query("q", Tumbling(10), ["sum", "count"])]


@dataclass
class Pump:
    """A source and the child that reads it: a window of ten microseconds with each delivery."""

    node: Node = field(default_factory=lambda: Node(QUERIES))
    unanswered: list[Delivery] = field(default_factory=list)
    seq: int = 0

    def introduce(self, root: RootRuntime) -> None:
        hello = Hello("pump", "spool", "opening", 0, 0, 0)
        (said,) = root.machine.step("pump", hello, 0)
        assert isinstance(said.message, Challenge)
        root.machine.step("pump", replace(hello, echo=said.message.nonce), 0)
        source = str(SourceId("pump", 1))
        self.node.admit(source, lateness=0, prefix=Prefix(opening="opening"))

    def offer(self, root: RootRuntime, windows: int) -> None:
        for _ in range(windows):
            self.seq += 1
            batch = Batch.from_records(
                str(SourceId("pump", 1)), self.seq, [(10 * self.seq, None, 1.0 * self.seq, None)]
            )
            assert self.node.push(batch) == 1
            self.unanswered.append(Delivery(joined(root.machine), str(self.seq), 0, self.node.flush()))
        for delivery in self.unanswered:
            root.machine.step("c", delivery, 0)

    def send(self, root: RootRuntime, windows: int) -> None:
        """Until it is counted; the window of the last event stays open."""
        self.offer(root, windows)
        self.unanswered.clear()
        assert len(root.machine.tick(0)) == windows
