"""What is removed from the host's packet filter when a private engine ends."""

from __future__ import annotations

from pathlib import Path

from airgap_kind.engine import mounts_below
from airgap_kind.traces import undoing

FILTER = """\
*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:DOCKER - [0:0]
:DOCKER-USER - [0:0]
-A INPUT -s 10.0.0.1/32 -m comment --comment "not ours" -j ACCEPT
-A FORWARD -j DOCKER-USER
-A FORWARD -o br-0123456789ab -j DOCKER
-A FORWARD -i br-0123456789ab ! -o br-0123456789ab -j ACCEPT
-A FORWARD -i br-ffffffffffff -j ACCEPT
-A DOCKER -d 172.18.0.2/32 ! -i br-0123456789ab -j ACCEPT
-A DOCKER-USER -j RETURN
COMMIT
"""


def test_only_dockers_own_is_removed() -> None:
    assert [" ".join(command) for command in undoing(FILTER, ["br-0123456789ab"])] == [
        "-D FORWARD -j DOCKER-USER",
        "-D FORWARD -o br-0123456789ab -j DOCKER",
        "-D FORWARD -i br-0123456789ab ! -o br-0123456789ab -j ACCEPT",
        "-F DOCKER",
        "-F DOCKER-USER",
        "-X DOCKER",
        "-X DOCKER-USER",
    ]


def test_a_clean_table_needs_nothing() -> None:
    assert undoing("*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n", []) == []


def test_mounts_are_undone_from_within() -> None:
    mounts = (
        "/dev/a / ext4 rw 0 0\n/dev/a /c/engine/data ext4 rw 0 0\nnone /c/engine/data/x\\040y tmpfs rw 0 0\n"
    )
    assert mounts_below(mounts, Path("/c/engine")) == ["/c/engine/data/x y", "/c/engine/data"]
    assert mounts_below(mounts, Path("/d")) == []
