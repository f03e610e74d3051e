"""`headwater-spark`: the root of a topology as a Spark job, on a directory."""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from headwater_root.__main__ import start
from headwater_spark.settings import MASTER, MASTERS, SparkSettings

# Each costs something with every micro-batch.
BUCKETS_LIMIT = 1_024


def main() -> int:
    return start("headwater-spark", __doc__, _options, _root)


def _options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Spark")
    group.add_argument(
        "--master", default=MASTER, type=_master, help="where tasks run (%(default)s: here, on every core)"
    )
    group.add_argument(
        "--memory", default="1g", type=_memory, help="heap of the driver's JVM, such as 512m (%(default)s)"
    )
    group.add_argument(
        "--buckets",
        type=_buckets,
        default=0,
        help="into how many shares windows are parted; for a new directory alone (one for each core)",
    )
    group.add_argument(
        "--interval",
        type=_seconds,
        default=0.3,
        help="seconds from one micro-batch to the next, at least (%(default)s)",
    )
    group.add_argument(
        "--conf",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=_setting,
        help="a setting of Spark's own; may be given several times",
    )
    group.add_argument("--no-ui", action="store_true", help="without Spark's page")
    group.add_argument(
        "--brief", action="store_true", help="for a run of minutes: a JVM that compiles quickly, not well"
    )


def _seconds(given: str) -> float:
    try:
        found = float(given)
    except ValueError:
        found = 0.0
    if not 0.01 <= found <= 3_600:
        raise argparse.ArgumentTypeError(f"{given!r} is no interval; give seconds from 0.01 to 3600")
    return found


def _memory(given: str) -> str:
    if not re.fullmatch(r"[1-9]\d{0,8}[kmgKMG]", given):
        raise argparse.ArgumentTypeError(f"{given!r} is no size; give one such as 512m or 2g")
    return given


def _buckets(given: str) -> int:
    if not given.isdecimal() or not 1 <= int(given) <= BUCKETS_LIMIT:
        raise argparse.ArgumentTypeError(f"{given!r} is no number of buckets; give 1 to {BUCKETS_LIMIT}")
    return int(given)


def _master(given: str) -> str:
    if not MASTERS.fullmatch(given):
        raise argparse.ArgumentTypeError(
            f"{given!r} is none that this root can use: tasks run on its own machine; give local[4], or "
            "local-cluster[2,1,1024] for two executors of one core and 1024 MiB"
        )
    # With a second number a task that fails, with its worker for one, is tried again.
    return re.sub(r"^local(\[(\*|\d+)\])?$", lambda found: f"local[{found[2] or 1},4]", given)


def _setting(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not equals or not name.startswith("spark."):
        raise argparse.ArgumentTypeError(
            f"{given!r} is no setting; give one such as spark.executor.memory=2g"
        )
    return name, value


def _root(arguments: argparse.Namespace) -> Callable[..., Any]:
    from headwater_spark.runtime import SparkRoot

    # It tells every call, and of a JVM that is gone what is told better elsewhere.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)
    settings = SparkSettings(
        master=arguments.master,
        memory=arguments.memory,
        buckets=arguments.buckets,
        interval=arguments.interval,
        brief=arguments.brief,
        ui=not arguments.no_ui,
        conf=dict(arguments.conf),
    )
    return partial(SparkRoot, spark=settings)


if __name__ == "__main__":
    sys.exit(main())
