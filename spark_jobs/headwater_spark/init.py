"""The first process of a container: runs a program, passes signals on to it, ends with it, and takes in the
processes that have lost their parent, which a JVM would leave as they are.

It is run by its path, in an interpreter of its own: it stays, so it imports nothing but these.
"""

from __future__ import annotations

import os
import signal
import sys

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
# What a shell makes of a program that ended by a signal.
_BY_SIGNAL = 128


def run(command: list[str]) -> int:
    """Run a program to its end; gives its exit code."""
    # What comes before there is anybody to tell has to wait.
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    child = os.posix_spawn(command[0], command, os.environ, setsigmask=())
    for number in _PASSED_ON:
        signal.signal(number, lambda number, frame: os.kill(child, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else _BY_SIGNAL - code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
