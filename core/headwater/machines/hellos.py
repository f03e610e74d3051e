"""The hellos that the root has refused lately, which may be why a source stands still."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headwater.machines.messages import Hello
from headwater.machines.recent import Recent

# Who was refused says hello again every minute. For so long a refusal counts, in microseconds.
LASTS = 130_000_000


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the root refuses a process that uses the name of a source. `is_contested`: the root accepts another
    process under that name meanwhile, so the refusal does not keep the source from going on."""

    reason: str
    opening: str
    at: int
    is_contested: bool = False


class RefusedHellos:
    """The last refusal of each name."""

    def __init__(self) -> None:
        self._refusals: Recent[str, Refusal] = Recent(LASTS)

    def find(self, name: str, now: int) -> Refusal | None:
        found = self._refusals.get(name)
        return None if found is None or now - found.at > LASTS else found

    def on_refused(self, hello: Hello, reason: str, now: int) -> None:
        found = self.find(hello.name, now)
        is_contested = found is not None and found.is_contested
        self._refusals.put(hello.name, Refusal(reason, hello.opening, now, is_contested), now)

    def on_welcomed(self, hello: Hello, now: int) -> None:
        found = self.find(hello.name, now)
        if found is None or found.opening == hello.opening:
            self._refusals.pop(hello.name)
        else:
            self._refusals.put(hello.name, replace(found, is_contested=True), now)
