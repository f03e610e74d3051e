"""Who goes by a name: the incarnations of sources, their spools and openings (protocol, rule 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b

from headwater.machines.messages import Hello
from headwater.machines.records import Admitted, Opened, Retired
from headwater.progress import Source
from headwater.sources import SourceId

# Bytes that stand for an opening, among those of one spool.
DIGEST = 8


@dataclass(frozen=True, slots=True)
class Opening:
    """Who has a name at present: the incarnation, its spool and opening, and the spool's number before its
    record 1."""

    incarnation: int
    spool: str
    opening: str
    offset: int


@dataclass(slots=True)
class _Spool:
    """Whose a spool is, and what was said of it last; all of its openings that there were, as digests.

    None of it may be forgotten, however long ago: a spool or a process that comes back from a copy would be
    counted twice.
    """

    name: str
    held: Opening
    openings: bytes = b""

    def has(self, opening: str) -> bool:
        digest = _digest(opening)
        found = self.openings.find(digest)
        while found % DIGEST:
            # It lies across two of them, or nowhere (-1).
            if found < 0:
                return False
            found = self.openings.find(digest, found + 1)
        return True


def _no_lane(source: str) -> bool:
    """None is behind."""
    return False


class Openings:
    """Changed by records of the log alone. A name that ever was takes what its spool does, and each opening
    of that eight bytes."""

    def __init__(self) -> None:
        self._names: dict[str, Opening] = {}
        self._spools: dict[str, _Spool] = {}

    def admitted(self, body: Admitted) -> None:
        source = SourceId.of(body.source)
        held = Opening(source.incarnation, body.spool, body.opening, body.offset)
        self._name(source.name, held, body.earlier)

    def opened(self, body: Opened) -> None:
        name = SourceId.of(body.source).name
        self._name(name, replace(self._names[name], opening=body.opening), body.earlier)

    def _name(self, name: str, held: Opening, earlier: Iterable[str]) -> None:
        self._names[name] = held
        spool = self._spools.setdefault(held.spool, _Spool(name, held))
        spool.held = held
        for opening in (*earlier, held.opening):
            if not spool.has(opening):
                spool.openings += _digest(opening)

    def held(self, name: str) -> Opening | None:
        return self._names.get(name)

    def is_news(
        self, hello: Hello, sources: Mapping[str, Source], finishes: Callable[[str], bool] = _no_lane
    ) -> bool:
        """Whether something would be logged: that of one who is retired, say, whose last hello comes late."""
        if not self.is_known(hello):
            return True
        placed = self.place(hello, sources, finishes)
        return not isinstance(placed, str) and bool(placed)

    def is_known(self, hello: Hello) -> bool:
        """Whether the log has this opening."""
        return hello.spool in self._spools and self._spools[hello.spool].has(hello.opening)

    def place(
        self, hello: Hello, sources: Mapping[str, Source], finishes: Callable[[str], bool] = _no_lane
    ) -> tuple[Admitted | Opened | Retired, ...] | str:
        """What has to be logged so that the source can send, or why it may not. One that is retired and
        `finishes` sends for the lanes that are behind, and comes as another one when that is done."""
        held = self._names.get(hello.name)
        if held is None:
            if hello.spool in self._spools:
                return f"its spool is that of {self._spools[hello.spool].name!r}; give each source its own"
            # What lies before the base was counted by another root, or never will be.
            return (self._admission(hello, 1, hello.base),)
        present = sources[str(SourceId(hello.name, held.incarnation))]
        reached, shared = held.offset + present.position, self._shared(hello)
        if hello.spool != held.spool:
            return self._other_spool(hello, held, present, sources)
        if hello.opening != held.opening and self.is_known(hello):
            return "its spool was opened again since; end this process"
        if present.retired and not finishes(present.name):
            same = hello.opening == held.opening
            return self._succession(hello, held, present, reached if same else min(reached, shared))
        if hello.opening == held.opening:
            return ()
        if reached > shared:
            # Records that were counted are no longer in the spool: what follows is another source.
            return self._succession(hello, held, present, shared)
        if reached < hello.base:
            return (
                f"its spool begins behind record {hello.base}, but the root has counted up to {reached}: "
                "records are lost; retire the source"
            )
        return (Opened(present.name, hello.opening, shared - held.offset, _earlier(hello)),)

    def _shared(self, hello: Hello) -> int:
        """Up to which record a spool that was opened again is what the root may have counted from.

        It may be a copy from before it heard that its last opening is confirmed: what was written while an
        opening lasted that the log has, is what the root knows by these numbers.
        """
        spool = self._spools.get(hello.spool)
        known = [upto for opening, upto in hello.earlier if spool is not None and spool.has(opening)]
        return known[-1] if known else hello.opened_at

    def _other_spool(
        self, hello: Hello, held: Opening, present: Source, sources: Mapping[str, Source]
    ) -> tuple[Admitted | Retired, ...] | str:
        if hello.spool not in self._spools:
            return self._succession(hello, held, present, hello.base)
        spool = self._spools[hello.spool]
        if spool.name != hello.name:
            return f"its spool is that of {spool.name!r}; give each source its own"
        if hello.opening != spool.held.opening and self.is_known(hello):
            return "its spool was opened again since; end this process"
        if not (present.idle or present.retired):
            return "another spool has its name; end this process, or that one"
        # A spool that was fenced returns behind what was counted of it.
        earlier = spool.held
        was = sources[str(SourceId(hello.name, earlier.incarnation))]
        end = earlier.offset + was.position
        offset = end if hello.opening == earlier.opening else min(end, self._shared(hello))
        return self._succession(hello, held, present, max(offset, hello.base))

    def _succession(
        self, hello: Hello, held: Opening, present: Source, offset: int
    ) -> tuple[Admitted | Retired, ...]:
        admission = self._admission(hello, held.incarnation + 1, max(offset, hello.base))
        # Admitted first, with the watermark from before: then nothing it says is below it.
        return (admission,) if present.retired else (admission, Retired(present.name))

    def _admission(self, hello: Hello, incarnation: int, offset: int) -> Admitted:
        source = str(SourceId(hello.name, incarnation))
        return Admitted(
            source, hello.site, hello.lateness, hello.spool, hello.opening, offset, _earlier(hello)
        )


def _earlier(hello: Hello) -> tuple[str, ...]:
    return tuple(opening for opening, _ in hello.earlier)


def _digest(opening: str) -> bytes:
    return blake2b(opening.encode(), digest_size=DIGEST).digest()
