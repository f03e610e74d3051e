"""Runs a module with fewer open files: `python -m tests.hostile.limited FILES MODULE ARGUMENTS...`."""

from __future__ import annotations

import resource
import runpy
import sys

if __name__ == "__main__":
    files, module = int(sys.argv[1]), sys.argv[2]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    sys.argv = sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
