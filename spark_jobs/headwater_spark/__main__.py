"""`headwater-spark`: the root of a topology as a Spark job, on a directory."""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from headwater.errors import Invalid, Problem
from headwater.topology.manifest import EXECUTORS_LIMIT
from headwater_root.__main__ import start
from headwater_spark.settings import MASTER, MASTERS, Executors, SparkSettings, amount

# Each costs something with every micro-batch.
BUCKETS_LIMIT = 1_024
# Of an executor.
CORES_LIMIT = 256
# The pod of the root itself: option, what it is, and the variable that stands for it.
_POD = (
    ("namespace", "the namespace of this root's pod", "POD_NAMESPACE"),
    ("pod-name", "the name of this root's pod", "POD_NAME"),
    ("pod-ip", "the address of this root's pod", "POD_IP"),
)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


MORE = """\
  6  CheckpointNotShared: an executor does not see the checkpoint; nothing is lost, the log says what to do
"""


def main() -> int:
    # So Spark's scheduler calls the image of its executors.
    if sys.argv[1:] == ["executor"]:
        from headwater_spark import executor

        return executor.main()
    return start("headwater-spark", __doc__, _options, _root, MORE)


def _options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Spark")
    group.add_argument("--master", type=_master, help=f"where tasks run ({MASTER}: here, on every core)")
    group.add_argument(
        "--checkpoint",
        metavar="DIR",
        type=_directory,
        help="where the state of windows is kept, at this path for every executor too (checkpoint in "
        "--directory)",
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
    _executor_options(
        parser.add_argument_group(
            "executors",
            "As pods of the cluster that this root is a pod of, made by Spark itself. The service account "
            "of the root has to have all rights on pods, and executors have to see the checkpoint.",
        )
    )


def _executor_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--executors",
        metavar="N",
        type=_executors,
        default=0,
        help="how many (%(default)s: none, all tasks run here)",
    )
    group.add_argument("--executor-image", metavar="IMAGE", help="that of this root")
    group.add_argument(
        "--executor-cores",
        metavar="CORES",
        type=_cores,
        help="of each, such as 0.5 or 2; it runs as many tasks at once, one at least (1)",
    )
    group.add_argument(
        "--executor-memory",
        metavar="SIZE",
        type=_memory,
        help="heap of each one's JVM; its pod has 0.6 of that beside it, 384 MiB at least (1g)",
    )
    group.add_argument(
        "--executor-template",
        metavar="FILE",
        type=_template,
        help="a pod, as YAML or JSON: volumes, node selector, tolerations, security context; its first "
        "container is the executor",
    )
    for name, what, variable in _POD:
        group.add_argument(f"--{name}", metavar=variable, help=f"{what}; else that of ${variable}")


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


def _executors(given: str) -> int:
    if not given.isdecimal() or int(given) > EXECUTORS_LIMIT:
        raise argparse.ArgumentTypeError(f"{given!r} is no number of executors; give 0 to {EXECUTORS_LIMIT}")
    return int(given)


def _cores(given: str) -> str:
    if not re.fullmatch(r"\d{1,3}(\.\d{1,3})?|\d{1,6}m", given) or not 0 < amount(given) <= CORES_LIMIT:
        raise argparse.ArgumentTypeError(f"{given!r} are no cores; give them as 0.5, 500m or 2")
    return given


def _directory(given: str) -> Path:
    scheme, colon, path = given.partition("://")
    if colon and scheme != "file":
        raise argparse.ArgumentTypeError(
            f"{given!r} is in no file system; give a directory that every executor mounts"
        )
    return Path(path if colon else given)


def _template(given: str) -> Path:
    path = Path(given).absolute()
    try:
        if path.read_bytes().strip():
            return path
        why = "it is empty"
    except OSError as error:
        why = str(error.strerror)
    raise argparse.ArgumentTypeError(
        f"{given!r} cannot be read ({why}); give a file with a pod as YAML or JSON"
    )


def _master(given: str) -> str:
    if not MASTERS.fullmatch(given):
        raise argparse.ArgumentTypeError(
            f"{given!r} is none that this root can use: tasks run on its own machine; give local[4], or "
            "local-cluster[2,1,1024] for two executors of one core and 1024 MiB, or --executors for pods"
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


def executors_of(given: argparse.Namespace, environment: Mapping[str, str]) -> Executors | None:
    """The executors that are asked for; raises `Invalid` if something is missing for them, or left over."""
    pod = {name: getattr(given, name.replace("-", "_")) or environment.get(key) for name, _, key in _POD}
    asked = {name: getattr(given, f"executor_{name}") for name in ("image", "cores", "memory", "template")}
    problems = []
    if not given.executors:
        for name, value in asked.items():
            if value is not None:
                remedy = "give --executors as well, or leave it out"
                problems.append(Problem(f"--executor-{name}", "is of no use without executors", remedy))
    else:
        if given.master is not None:
            remedy = "leave it out: executors are pods of this root's cluster"
            problems.append(Problem("--master", "does not go with --executors", remedy))
        if not asked["image"]:
            problems.append(Problem("--executor-image", "is missing", "give the image of this root"))
        for name, what, variable in _POD:
            if not pod[name]:
                remedy = f"give {what}, or let {variable} have it (downward API)"
                problems.append(Problem(f"--{name}", "is missing", remedy))
        if pod["pod-ip"] and not _is_address(pod["pod-ip"]):
            remedy = "give the address of this root's pod, such as 10.244.1.7"
            problems.append(Problem("--pod-ip", f"{pod['pod-ip']!r} is no IP address", remedy))
        if pod["pod-name"] and not _NAME.fullmatch(pod["pod-name"]):
            remedy = "give the name of this root's pod, of 63 characters at most"
            problems.append(Problem("--pod-name", f"{pod['pod-name']!r} cannot be one", remedy))
    if problems:
        raise Invalid("the root cannot be started", problems)
    if not given.executors:
        return None
    chosen = {name: value for name, value in asked.items() if value is not None}
    return Executors(
        given.executors,
        namespace=pod["namespace"] or "",
        pod=pod["pod-name"] or "",
        address=pod["pod-ip"] or "",
        **chosen,
    )


def _is_address(given: str) -> bool:
    try:
        ip_address(given)
    except ValueError:
        return False
    return True


def _root(arguments: argparse.Namespace) -> Callable[..., Any]:
    executors = executors_of(arguments, os.environ)
    from headwater_spark.runtime import SparkRoot

    # It tells every call, and of a JVM that is gone what is told better elsewhere.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)
    settings = SparkSettings(
        master=arguments.master or MASTER,
        executors=executors,
        checkpoint=arguments.checkpoint,
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
