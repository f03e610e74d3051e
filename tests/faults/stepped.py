"""A program whose wall clock can be stepped: `python -m tests.faults.stepped FILE MODULE ARGUMENT...`.

FILE holds by how many microseconds the clock is off. The clock that never goes back stays as it is, as it
does when somebody sets the time of a machine.
"""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path


def main() -> None:
    offset, module = Path(sys.argv[1]), sys.argv[2]
    true = time.time_ns

    def stepped() -> int:
        return true() + 1_000 * int(offset.read_text())

    time.time_ns = stepped
    time.time = lambda: stepped() / 1e9
    sys.argv = sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
