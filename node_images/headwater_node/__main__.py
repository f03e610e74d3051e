"""`headwater-node`: a child or intermediate node, configured by a file and the environment."""

from __future__ import annotations

import argparse
import logging
import os
import sys

from headwater.errors import HeadwaterError
from headwater_wire import failpoints, handshakes, logs

log = logging.getLogger("headwater_node")

EPILOG = """\
The file is a JSON object; HEADWATER_ and a field in capitals, such as HEADWATER_PARENT_ADDRESS, overrides it.
  name, role            who it is; child or intermediate
  listen                host and port for those below, such as 0.0.0.0:7000
  root_address          the root's host and port: the root says who its parent is
  parent, parent_address  in place of it: the parent's name, and its host and port
  advertise             where others reach it, if that is not where it listens
  flush_interval        how often it sends on: seconds, or a duration such as 100ms
  future                how far beyond this machine's clock an event may lie to be read; 1d
  idle_after            after what silence of a source windows close without it; 1m
  horizon               how far ahead of the watermark a source is read, in event time; 1h
  metrics               host and port for /metrics, /healthz and /readyz; without it there are none
  archive               {path, rotate, retain, maxBytes}: where a child keeps raw events, as in the manifest
  tls                   {certificate, key, ca}: PEM files (HEADWATER_TLS_CERTIFICATE and so on);
                        without it everything is plain text
  ingest_tls            off: sources speak plain text to this child, whatever those above speak
HEADWATER_LOG_LEVEL is debug, info, warning, error or critical.

exit codes:
  0  ended by SIGTERM or SIGINT, and the parent has acknowledged everything
  1  an error of the program itself; the log has the trace
  2  the configuration cannot be used; the log names field and remedy
  3  ended before the parent had acknowledged everything; the sources will send it again
  4  halted, such as by a function of one's own that raised; the log says why
  5  a later process has the name of this one; nothing is lost
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="headwater-node",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", help="the configuration as JSON")
    parser.add_argument("--status", action="store_true", help="print figures as JSON lines, twice a second")
    arguments = parser.parse_args()
    try:
        watched = handshakes.watch(os.environ)
        logs.configure("headwater-node", os.environ)
        failpoints.arm(os.environ)
        # Behind that: gRPC looks at its own log's settings when it is imported.
        from headwater_node import program

        return program.run(arguments.config, os.environ, watched, status=arguments.status)
    except HeadwaterError as error:
        log.error(logs.told("the node cannot be started", error))
        return 2


if __name__ == "__main__":
    sys.exit(main())
