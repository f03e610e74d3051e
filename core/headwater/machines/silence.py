"""Of whom a child has heard nothing for long (protocol, rule 14)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator


class Silence:
    """The sources that the log says are read here, and when each was last heard of.

    A source that has not come since it was assigned here, or since this child itself was cut off from the
    tree, may still look for its way: it has `grace` for that, if that is longer.
    """

    def __init__(self, bound: int, grace: int = 0, recent: int = 0) -> None:
        """In microseconds of the caller's clock; `recent` is for how long records count that came before the
        source was known to be assigned here."""
        self.grace = grace
        self._bound, self._recent = bound, recent
        self._heard: dict[str, int] = {}
        # Of these nothing was heard yet.
        self._awaited: set[str] = set()
        # When others were last heard: this child learns of an assignment a moment after the source does,
        # which may have sent everything by then.
        self._strangers: dict[str, int] = {}

    @property
    def assigned(self) -> Collection[str]:
        return self._heard.keys()

    def assign(self, sources: Iterable[str], now: int) -> None:
        """Read these from now on; the silence of others than before counts from here on."""
        before, self._heard = self._heard, {}
        oldest = now - self._recent
        self._strangers = {name: heard for name, heard in self._strangers.items() if heard >= oldest}
        for name in sources:
            if name in before:
                self._heard[name] = before[name]
            elif name in self._strangers:
                self._heard[name] = self._strangers[name]
            else:
                self._heard[name] = now
                self._awaited.add(name)
        self._awaited &= self._heard.keys()
        self._strangers = {name: at for name, at in self._strangers.items() if name not in self._heard}

    def on_heard(self, name: str, now: int) -> None:
        if name in self._heard:
            self._heard[name] = now
            self._awaited.discard(name)
        else:
            self._strangers[name] = now

    def restart(self, now: int) -> None:
        """The tree was cut off: whoever is silent may have been so because of that."""
        self._heard = dict.fromkeys(self._heard, now)
        self._awaited = set(self._heard)
        self._strangers.clear()

    def spell(self, name: str, now: int) -> tuple[int, int]:
        """For how long nothing was heard of a source, and how much longer that may last."""
        quiet = now - self._heard.get(name, now)
        return quiet, max(self._patience(name) - quiet, 0)

    def quiet(self, now: int) -> Iterator[str]:
        """Those of whom nothing was heard for long, counted from the start here if they never came."""
        return (name for name, heard in self._heard.items() if now - heard > self._patience(name))

    def _patience(self, name: str) -> int:
        return max(self._bound, self.grace) if name in self._awaited else self._bound
