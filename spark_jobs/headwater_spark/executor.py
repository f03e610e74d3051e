"""An executor of Spark in a pod: what an image runs that Spark's scheduler for Kubernetes calls with the
argument `executor`.

What the JVM has to be told stands in variables that the scheduler has set. It runs on the Java that a driver
would find here too, behind a first process of its container.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from importlib.resources import files as resources
from importlib.util import find_spec
from pathlib import Path

from headwater_spark import init, java
from headwater_spark.java import NoJava

BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
# Options of the backend, each with the variable that has its value.
_OPTIONS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
_MEMORY = "SPARK_EXECUTOR_MEMORY"
_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")


def main() -> int:
    if missing := [name for name in (*_OPTIONS.values(), _MEMORY) if not os.environ.get(name)]:
        sys.stderr.write(
            f"{', '.join(missing)}: not set; `executor` is for Spark's scheduler, which sets them in pods "
            "of its own; leave it out to run a root\n"
        )
        return 2
    home = _spark()
    try:
        runtime = java.found(os.environ)
    except NoJava as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    environment = {**os.environ, "JAVA_HOME": str(runtime.home), "SPARK_HOME": str(home)}
    jvm = command(os.environ, runtime.home / "bin" / "java", home)
    os.execve(sys.executable, [sys.executable, "-I", "-S", init.__file__, *jvm], environment)


def command(environment: Mapping[str, str], program: Path, home: Path) -> list[str]:
    """The JVM of an executor, with Spark of `home`."""
    numbered = {int(found[1]): name for name in environment if (found := _OPTION.fullmatch(name))}
    quiet = Path(str(resources("headwater_spark") / "executor.log4j2.properties"))
    memory = environment[_MEMORY]
    return [
        str(program),
        # Before those of the scheduler, which may say otherwise.
        f"-Dlog4j2.configurationFile={quiet.as_uri()}",
        *(environment[numbered[number]] for number in sorted(numbered)),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        *("-cp", f"{home / 'jars'}/*"),
        BACKEND,
        *(each for option, name in _OPTIONS.items() for each in (option, environment[name])),
    ]


def _spark() -> Path:
    # Without an import, which takes longer than all else here.
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent
