"""The way up from a source or node: one ordered stream at a time, retries under the same id (rule 9)."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.machines.messages import Stream


@dataclass(slots=True)
class Link:
    """The stream of `who` to its parent; another one is opened when the parent changes or is silent."""

    who: str
    parent: str
    patience: int
    generation: int = 0
    number: int = 0
    heard: int = 0
    issued: int = 0
    opened: bool = False
    # How often in a row a stream was given up.
    silent: int = 0

    @property
    def stream(self) -> Stream:
        return Stream(self.who, self.generation, self.number)

    def open(self, parent: str, now: int) -> bool:
        """Look whether the stream still serves; True if it is a new one."""
        if self.opened and parent == self.parent:
            # Longer each time: where answers take longer than one waits, none would ever count.
            if now - self.heard <= self.patience << min(self.silent, 4):
                return False
            self.silent += 1
        self.parent, self.heard = parent, now
        self.number += 1
        self.opened = True
        return True

    def mine(self, stream: Stream, now: int) -> bool:
        """Whether an answer is for this stream; any other one is not heeded."""
        if stream != self.stream:
            return False
        self.heard, self.silent = now, 0
        return True

    def next_id(self) -> str:
        self.issued += 1
        return f"{self.who}/{self.generation}.{self.number}/{self.issued}"
