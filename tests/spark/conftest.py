"""One session of Spark for all tests of a worker: it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from headwater_spark import session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    directory = tmp_path_factory.mktemp("spark")
    # Small tables: to compile each plan would take longer than to run it.
    conf = {
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    options = {"master": "local[2]", "partitions": 1, "memory": "1g", "brief": True, "conf": conf}
    with session.running("tests", directory, **options) as found:
        yield found
