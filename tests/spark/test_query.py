"""What a Spark query that has failed says: the cause, not where it was noticed."""

from __future__ import annotations

import pytest

from headwater_spark.query import raised

WORKER = """\
org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] Thrown from the Python worker: \
Traceback (most recent call last):
  File "worker.py", line 4327, in invoke_udf
    run_process()
    ^^^^^^^^^^^^^
{said}
 SQLSTATE: 38000
JVM stacktrace:
org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
"""


@pytest.mark.parametrize(
    "said, told",
    [
        ("ValueError: no such number", "ValueError: no such number"),
        ("headwater_spark.pieces.OtherState: bucket 1 stands at 3", None),
        ("AssertionError", "AssertionError"),
        (
            "plant.InvalidTopology: they cannot be taken:\n  - spec.a: is 1\n  - spec.b: is 2",
            "plant.InvalidTopology: they cannot be taken: - spec.a: is 1 - spec.b: is 2",
        ),
        (
            "KeyError: 'x'\n\nThe above exception was the direct cause of the following exception:\n\n"
            'Traceback (most recent call last):\n  File "a.py", line 1, in b\n    c()\n'
            "plant.Broken: the press is out of order",
            "plant.Broken: the press is out of order",
        ),
    ],
)
def test_a_worker_that_raises_is_the_cause(said: str, told: str | None) -> None:
    assert raised(WORKER.format(said=said)) == (told or said)


def test_a_jvm_that_fails_has_no_trace_of_python() -> None:
    assert raised("org.apache.spark.SparkException: no space\n\tat java.base/java.io.A.b(A.java:1)") is None
