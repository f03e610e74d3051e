"""`headwater-root`: the embedded root of a topology, on a directory."""

from __future__ import annotations

import argparse
import logging
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater.errors import HeadwaterError, Invalid, Problem
from headwater_wire import failpoints, handshakes, logs

log = logging.getLogger("headwater_root")

EPILOG = """\
HEADWATER_TLS_CERTIFICATE, HEADWATER_TLS_KEY, HEADWATER_TLS_CA and HEADWATER_METRICS stand for options that
are not given. Without certificates everything is plain text.
HEADWATER_LOG_LEVEL is debug, info, warning, error or critical.

exit codes:
  0  ended by SIGTERM or SIGINT
  1  an error of the program itself; the log has the trace
  2  the configuration cannot be used; the log names field and remedy
  4  halted, such as by a volume that failed or a log that another program holds; the log says why
"""


def main() -> int:
    return start("headwater-root", __doc__, lambda parser: None, _embedded)


def _embedded(arguments: argparse.Namespace) -> Callable[..., Any]:
    from headwater_root.runtime import RootRuntime

    return RootRuntime


def start(
    name: str,
    about: str | None,
    options: Callable[[argparse.ArgumentParser], None],
    kind: Callable[[argparse.Namespace], Callable[..., Any]],
    more: str = "",
) -> int:
    """The program of a kind of root, which has `options` of its own; `kind` imports it. `more` is said behind
    the exit codes."""
    parser = argparse.ArgumentParser(
        prog=name,
        description=about,
        epilog=EPILOG + more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--topology",
        metavar="FILE",
        required=True,
        help="the manifest as JSON or, where PyYAML is installed, YAML",
    )
    parser.add_argument("--directory", metavar="DIR", required=True, help="log and outbox are kept here")
    parser.add_argument("--listen", metavar="ADDRESS", default="127.0.0.1:0")
    parser.add_argument("--status", action="store_true", help="print figures as JSON lines, and no results")
    parser.add_argument(
        "--metrics", metavar="ADDRESS", help="host and port of /metrics, /healthz and /readyz"
    )
    parser.add_argument(
        "--keep-results",
        action="store_true",
        help="leave everything in outbox and log, also what every sink has",
    )
    parser.add_argument(
        "--snapshot-mib",
        metavar="MIB",
        type=float,
        help="MiB of records in the log behind which it begins anew with the root's state, in place of what "
        "root.snapshotAfter of the manifest says",
    )
    parser.add_argument(
        "--ingest-limit",
        metavar="ITEMS",
        type=float,
        help="rows a second that it takes at most, to see what an overrun does; more have to wait",
    )
    parser.add_argument(
        "--managed",
        action="store_true",
        help="queries and nodes come by Control.ApplySpec: no source is admitted before",
    )
    parser.add_argument("--tls-certificate", metavar="FILE", help="PEM, with the name root")
    parser.add_argument("--tls-key", metavar="FILE", help="PEM, without a password")
    parser.add_argument("--tls-ca", metavar="FILE", help="PEM; the certificates of all parties are its")
    options(parser)
    arguments = parser.parse_args()
    try:
        watched = handshakes.watch(os.environ)
        logs.configure(name, os.environ)
        failpoints.arm(os.environ)
        # Behind that: gRPC looks at its own log's settings when it is imported.
        from headwater_root import program

        tls = {
            field: getattr(arguments, f"tls_{field}") or os.environ.get(f"HEADWATER_TLS_{field.upper()}")
            for field in ("certificate", "key", "ca")
        }
        if arguments.snapshot_mib is not None and not 0 < arguments.snapshot_mib < math.inf:
            problem = Problem("--snapshot-mib", f"is {arguments.snapshot_mib}", "give MiB, such as 64")
            raise Invalid("the root cannot be started", [problem])
        if arguments.ingest_limit is not None and not 0 < arguments.ingest_limit < math.inf:
            said = f"is {arguments.ingest_limit}"
            problem = Problem("--ingest-limit", said, "give rows a second, above 0")
            raise Invalid("the root cannot be started", [problem])
        metrics = arguments.metrics or os.environ.get("HEADWATER_METRICS")
        return program.run(
            Path(arguments.topology),
            Path(arguments.directory),
            arguments.listen,
            status=arguments.status,
            keep_results=arguments.keep_results,
            snapshot_bytes=None if arguments.snapshot_mib is None else int(arguments.snapshot_mib * 2**20),
            metrics=metrics,
            tls=tls,
            handshakes=watched,
            make=kind(arguments),
            ingest_limit=arguments.ingest_limit,
            managed=arguments.managed,
        )
    except Invalid as error:
        log.error(logs.told("the root cannot be started", error))
        return 2
    except HeadwaterError as error:
        log.error("halted", extra={"reason": type(error).__name__, "problem": str(error)})
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
