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
    "root.acknowledged": "a group is on its way to be acknowledged",
    "root.sink.written": "a sink has written, and its cursor does not say so",
    "root.sink.done": "a sink has delivered, cursor and all",
    "root.segment": "a segment with its snapshot is written, and has no name yet",
    "root.rolled": "a snapshot is durable, and the segments before it are still there",
    "spark.merged": "a micro-batch is merged, and its results are not in the outbox",
    "spark.written": "its results are in the outbox, and Spark has not committed it",
    "spark.finished": "Spark has done with records, and they are still in the log",
    "spark.merging": "in the midst of the merging of a bucket; the driver dies",
    "spark.state": "a bucket is merged, and its state is not committed; the driver dies",
    "node.read": "records or a batch from below are taken, and not acknowledged",
    "node.flushed": "a batch is made, and not sent",
    "node.acknowledged": "the parent's acknowledgement is taken",
    "source.written": "events are written to the spool, without fsync",
    "source.accepted": "events are durable in the spool, and the caller does not know it",
    "source.sent": "records are taken from the spool, and not sent",
    "source.trim": "the spool says that segments are gone, and they are still there",
}

# Who dies instead of the process itself, if that is a helper of another one.
VICTIM = "HEADWATER_FAILPOINT_PID"

_armed, _left, _victim = "", 0, 0


def arm(environment: Mapping[str, str]) -> None:
    """Take the place that the environment names, if it does; raises `Invalid` for one that there is not."""
    global _armed, _left, _victim
    name, _, times = environment.get(VARIABLE, "").partition(":")
    if not name:
        return
    if name not in NAMES or not (times or "1").isdecimal() or times == "0":
        remedy = f"leave it out; in tests, one of {', '.join(NAMES)}, and which time, such as root.synced:3"
        problem = Problem(VARIABLE, f"is {environment[VARIABLE]!r}", remedy)
        raise Invalid("the program cannot be started", [problem])
    _armed, _left, _victim = name, int(times or "1"), int(environment.get(VICTIM) or os.getpid())


def reached(name: str) -> None:
    """The program is at this place."""
    if name == _armed:
        _count()


def _count() -> None:
    global _left
    _left -= 1
    if _left == 0:
        os.kill(_victim, signal.SIGKILL)
