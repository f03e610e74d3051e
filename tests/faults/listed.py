"""All cells there are."""

from __future__ import annotations

from tests.faults import sparkcells
from tests.faults.cells import CELLS

__all__ = ["CELLS", "sparkcells"]
