"""`headwater-operator`: keeps a tree and a root running for each AggregationTopology of a cluster."""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys

from headwater.errors import HeadwaterError
from headwater_operator.settings import VARIABLES, log_environment, settings_of
from headwater_wire import logs

log = logging.getLogger("headwater_operator")

EPILOG = """\
It calls the API server that KUBECONFIG names or, in a pod, that of the cluster. Of several replicas one
works, the others stand by. The chart in charts/headwater sets all of this and grants the rights.

environment:
{variables}

exit codes:
  0  ended by SIGTERM or SIGINT; another replica takes over at once
  1  an error of the program itself; the log has the trace
  2  the settings cannot be used; the log names variable and remedy
  3  the lease was lost, such as because the API server did not answer; start it anew
"""


def main() -> int:
    width = max(map(len, VARIABLES))
    variables = "\n".join(f"  {name:<{width}}  {said}" for name, said in VARIABLES.items())
    argparse.ArgumentParser(
        prog="headwater-operator",
        description=__doc__,
        epilog=EPILOG.format(variables=variables),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    try:
        logs.configure("headwater-operator", log_environment(os.environ))
        settings = settings_of(os.environ, socket.gethostname())
        # Behind that: gRPC looks at its own log's settings when it is imported.
        from headwater_operator import program
        from headwater_operator.reconciling import Reconciler

        return program.run(settings, os.environ, Reconciler)
    except HeadwaterError as error:
        log.error(logs.told("the operator cannot be started", error))
        return 2


if __name__ == "__main__":
    sys.exit(main())
