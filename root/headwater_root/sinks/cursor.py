"""How far a sink has come, in a small file of JSON that is replaced whole."""

from __future__ import annotations

import json
from pathlib import Path

from headwater_root import files
from headwater_root.files import Damaged


class Cursor:
    """A position in the outbox, and the size that the sink's own file had with it (0 if it has none)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position, self.size = 0, 0
        self.load()

    def load(self) -> None:
        """Take what the file says, and make that durable: a write that raised may yet have changed it."""
        if not self.path.exists():
            self.position, self.size = 0, 0
            return
        try:
            found = json.loads(self.path.read_bytes())
            position, size = int(found["position"]), int(found["size"])
        except (ValueError, KeyError, TypeError):
            remedy = "put it back, or remove it to begin with the oldest results of the outbox"
            raise Damaged(self.path, 0, "this is no cursor", remedy) from None
        self.move(position, size)

    def move(self, position: int, size: int = 0) -> None:
        """Everything up to a position is delivered."""
        files.replace(self.path, json.dumps({"position": position, "size": size}).encode() + b"\n")
        self.position, self.size = position, size
