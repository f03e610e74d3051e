"""What only a living process can echo: one word for each opening of a spool or start of a node."""

from __future__ import annotations

from collections.abc import Callable

# How many wait to be echoed at most: of one name, and how many names.
OF_A_NAME, NAMES = 4, 65_536


class Nonces:
    """By the name of whoever asks, so that nobody can crowd out the others however often they ask anew."""

    def __init__(self, draw: Callable[[], str], *, names: int = NAMES) -> None:
        self._draw, self._names = draw, names
        self._held: dict[str, dict[str, str]] = {}

    def of(self, name: str, whose: str) -> str:
        """The nonce of an opening, or of a process by its token. Whoever was forgotten gets another one.

        Of one name the newest goes for the next: those who were first are not driven out by somebody who has
        their name too. Of too many names the oldest goes.
        """
        held = self._held.get(name)
        if held is None:
            if len(self._held) >= self._names:
                del self._held[next(iter(self._held))]
            held = self._held[name] = {}
        if whose not in held:
            if len(held) >= OF_A_NAME:
                held.popitem()
            held[whose] = self._draw()
        return held[whose]

    def renew(self, name: str) -> None:
        """Something was logged under a name: an echo from before says nothing of who lives now."""
        self._held.pop(name, None)

    def forget(self, name: str, whose: str) -> None:
        """It was echoed, or is needed no more."""
        held = self._held.get(name, {})
        held.pop(whose, None)
        if not held:
            self._held.pop(name, None)
