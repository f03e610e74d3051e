"""Results as the release before `measure` wrote them."""

from __future__ import annotations

import re


def earlier(lines: bytes) -> bytes:
    """The same lines without the fields that were added."""
    return re.sub(rb',"measure":[^{}]*}\n', b"}\n", lines)
