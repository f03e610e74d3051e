"""Names of sources that the root takes nothing of until somebody releases them (protocol, rule 15)."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote

from headwater.machines.records import Quarantined, Released
from headwater.sources import SourceId


class Quarantine:
    """Changed by records of the log alone."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def apply(self, body: Quarantined | Released) -> None:
        if isinstance(body, Quarantined):
            self._reasons[SourceId.of(body.source).name] = body.reason
        else:
            self._reasons.pop(body.name, None)

    @property
    def reasons(self) -> Mapping[str, str]:
        """Why, by name."""
        return self._reasons

    def refusal(self, name: str) -> str | None:
        """What a source of this name is told; None if it may come."""
        reason = self._reasons.get(name)
        if reason is None:
            return None
        return (
            f"it is in quarantine: {reason}; mend the source, or raise that bound where the keys are meant, "
            f"then release it with: headwater source release {quote(name)}"
        )
