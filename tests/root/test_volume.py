"""Whoever asks from another thread sees that the root waits for its disk, whatever it writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwater.machines.messages import Challenge, Hello
from headwater.machines.root import Settings
from headwater.queries import Query
from headwater.windows import Tumbling
from headwater_root.runtime import RootRuntime


def test_the_volume_is_busy_during_every_fsync_and_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = RootRuntime([Query("q", Tumbling("1s"), "sum")], tmp_path, Settings(expected=1))
    seen: list[bool] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        seen.append(root.volume.busy)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    try:
        (asked,) = root.machine.step("c", Hello("s", "spool", "o", 0, 0, 0), 0)
        assert isinstance(asked.message, Challenge)
        assert seen == []
        root.machine.step("c", Hello("s", "spool", "o", 0, 0, 0, echo=asked.message.nonce), 0)
        admitted = len(seen)
        root._roll()
        assert len(seen) > admitted > 0
        assert all(seen)
        assert not root.volume.busy

        def failing(descriptor: int) -> None:
            raise OSError(5, "the disk failed")

        monkeypatch.setattr(os, "fsync", failing)
        with pytest.raises(Exception, match="the disk failed"):
            root.machine.retire("s\0" + "1".zfill(10))
        assert not root.volume.busy
    finally:
        monkeypatch.undo()
        root.log.close()
