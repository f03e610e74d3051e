"""The way up from a source or node: one ordered stream at a time, retries under the same id (rule 9)."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.machines.messages import Stream

# How many times the patience may double.
DOUBLINGS, SLOW_DOUBLINGS = 4, 6


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
    # How often an answer came to a stream that was given up, the last of these, and when that was noted.
    slow: int = 0
    late: int = 0
    noted: int = 0

    @property
    def stream(self) -> Stream:
        return Stream(self.who, self.generation, self.number)

    def open(self, parent: str, now: int) -> bool:
        """Look whether the stream still serves; True if it is a new one."""
        if self.opened and parent == self.parent:
            # Longer each time: where answers take longer than one waits, none would ever count.
            if now - self.heard <= self.patience << max(min(self.silent, DOUBLINGS), self.slow):
                return False
            self.silent += 1
        if self.slow and now - self.noted > self.patience << SLOW_DOUBLINGS:
            self.slow, self.noted = self.slow - 1, now
        self.parent, self.heard = parent, now
        self.number += 1
        self.opened = True
        return True

    def reset(self) -> None:
        """There is another connection: the next stream is opened at once, as patient as a first one."""
        self.opened, self.silent = False, 0

    def mine(self, stream: Stream, now: int) -> bool:
        """Whether an answer is for this stream; any other one is not heeded."""
        if stream != self.stream:
            self._look(stream, now)
            return False
        self.heard, self.silent = now, 0
        return True

    def _look(self, stream: Stream, now: int) -> None:
        """An answer to a stream that was given up says that the parent was not silent but the way slow: on a
        narrow one what is said again takes as long, and would be given up too."""
        given_up = (stream.opener, stream.generation) == (self.who, self.generation)
        if given_up and self.late < stream.number < self.number:
            self.slow, self.late, self.noted = min(self.slow + 1, SLOW_DOUBLINGS), stream.number, now

    def next_id(self) -> str:
        self.issued += 1
        return f"{self.who}/{self.generation}.{self.number}/{self.issued}"
