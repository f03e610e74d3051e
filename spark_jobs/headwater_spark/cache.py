"""Where things are kept that take long to make, between runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def directory(environment: Mapping[str, str]) -> Path:
    """The user's cache directory of this program (XDG)."""
    given = environment.get("XDG_CACHE_HOME", "")
    # The standard says that one which is not absolute counts as not given.
    base = Path(given) if given.startswith("/") else Path(environment.get("HOME") or Path.home()) / ".cache"
    return base / "headwater"
