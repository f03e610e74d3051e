"""Named places at which a program kills itself, so that tests can see what a crash there leaves behind.

`HEADWATER_FAILPOINT=root.synced:3` in the environment of a program: the third time that it comes to that
place it ends by SIGKILL, as from outside and without a last word. It is read once, at the start; a program
without it compares a word at each of these places, and that is all.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

from headwater.errors import Invalid, Problem

VARIABLE = "HEADWATER_FAILPOINT"
NAMES = {
    "root.append": "before a record is appended to the log",
    "root.appended": "a record is appended, in memory, and not applied",
    "root.applied": "a group is applied, and nothing of it is written",
    "root.written": "a group is written to the log, without fsync",
    "root.synced": "a group is durable, and its results are not put out",
    "root.outbox": "a file of results is written, and has no name yet",
    "root.published": "results are in the outbox, and nothing is acknowledged",
    "root.segment": "a segment with its snapshot is written, and has no name yet",
    "root.rolled": "a snapshot is durable, and the segments before it are still there",
    "node.read": "records or a batch from below are taken, and not acknowledged",
    "node.flushed": "a batch is made, and not sent",
    "node.acknowledged": "the parent's acknowledgement is taken",
    "source.written": "events are written to the spool, without fsync",
    "source.accepted": "events are durable in the spool, and the caller does not know it",
    "source.sent": "records are taken from the spool, and not sent",
    "source.trim": "the spool says that segments are gone, and they are still there",
}

_armed, _left = "", 0


def arm(environment: Mapping[str, str]) -> None:
    """Take the place that the environment names, if it does; raises `Invalid` for one that there is not."""
    global _armed, _left
    name, _, times = environment.get(VARIABLE, "").partition(":")
    if not name:
        return
    if name not in NAMES or not (times or "1").isdecimal() or times == "0":
        remedy = f"leave it out; in tests, one of {', '.join(NAMES)}, and which time, such as root.synced:3"
        problem = Problem(VARIABLE, f"is {environment[VARIABLE]!r}", remedy)
        raise Invalid("the program cannot be started", [problem])
    _armed, _left = name, int(times or "1")


def reached(name: str) -> None:
    """The program is at this place."""
    if name == _armed:
        _count()


def _count() -> None:
    global _left
    _left -= 1
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
