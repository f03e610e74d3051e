"""Spark's parent of Python workers, with what ours need imported: workers are forks of it, and have it then.

`spark.python.daemon.module` names it; its argument is the module of the workers. None of the imports makes a
gRPC channel: each worker makes its own.
"""

from __future__ import annotations

import sys
from importlib import import_module

# By the module of the workers: what they will import.
_NEEDED = {
    "pyspark.worker": "headwater_spark.merging",
    "pyspark.sql.worker.plan_data_source_read": "headwater_spark.source",
}


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] in _NEEDED:
        import_module(_NEEDED[sys.argv[1]])
    # It looks at the argument when it is imported.
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
