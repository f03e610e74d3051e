"""How long a test waits for what it wants to see, in seconds.

Only a fault lasts longer, also on a machine that is three times slower and has other work."""

from __future__ import annotations

PATIENCE = 180.0
