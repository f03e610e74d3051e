"""Spark's session: started quietly, on a Java that was found, and ended whole.

What Spark and its processes say goes to two files in a directory of the caller, `spark.log` and `spark.out`;
of a start that fails the error has the last lines. The JVM is in a session of its own, so Ctrl-C in a
terminal reaches this process alone, which ends the JVM in its own time. If this process dies, by whatever,
the JVM and its Python workers end by themselves: the JVM reads the end of its standard input.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from headwater.errors import PermanentError
from headwater_spark import classes, java, jvm
from headwater_spark.java import Java
from headwater_spark.settings import MASTERS
from headwater_wire import handshakes

LOOPBACK = "127.0.0.1"
# The JVM has stopped everything when its standard input ends; then it has so many seconds.
PATIENCE = 20.0
# Of an error: how many causes below each other, and how many characters are told.
_DEPTH, _LONGEST = 20, 1_000
_STORE = "spark.sql.streaming.stateStore.rocksdb"
_STREAMING = "org.apache.spark.sql.execution.streaming"


class NotStarted(PermanentError):
    """Spark could not be started; it has the cause and says where the rest stands."""

    def __init__(self, what: str, directory: Path, said: str = "") -> None:
        told = "".join(f"\n    {line}" for line in said.splitlines())
        super().__init__(f"Spark did not start: {what}; its files are in {directory}{told}")


def started(
    name: str,
    directory: Path,
    *,
    master: str = "local[*]",
    memory: str = "1g",
    partitions: int = 2,
    streaming: bool = False,
    ui: bool = False,
    brief: bool = False,
    conf: Mapping[str, str] | None = None,
    runtime: Java | None = None,
    inherited: Sequence[int] = (),
    unwanted: Callable[[], bool] = lambda: False,
    scratch: Path | None = None,
) -> SparkSession:
    """A session, the only one of this process until `ended`.

    `directory` is for its logs and scratch files, and of no other session meanwhile; `scratch` is for scratch
    files that are to be elsewhere. `memory` is the heap of
    the JVM. `brief` is for sessions of a minute or two: the JVM then compiles quickly instead of well. `conf`
    is added to the settings, or replaces them. With `ui` the address is `session.sparkContext.uiWebUrl`.
    `inherited` are descriptors that the JVM keeps open. `unwanted` ends a start that is under way.
    """
    if SparkContext._active_spark_context is not None:
        raise NotStarted("a session runs in this process already; end it first", directory)
    runtime = runtime or java.found(os.environ)
    directory = directory.absolute()
    scratch = (scratch or directory / "scratch").absolute()
    shutil.rmtree(scratch, ignore_errors=True)
    for each in (directory, scratch):
        each.mkdir(parents=True, exist_ok=True)
    given = _settings(name, scratch, master, memory, partitions, streaming, ui)
    options = [_java_options(directory, scratch, brief), *classes.options(runtime, os.environ)]
    given["spark.driver.extraJavaOptions"] = " ".join(options)
    for key, value in (conf or {}).items():
        added = key == "spark.driver.extraJavaOptions"
        given[key] = f"{given[key]} {value}" if added else value
    return _launched(given, directory, runtime, inherited, unwanted)


def ended(session: SparkSession, patience: float = PATIENCE) -> None:
    """Stop the session and its JVM; returns when the JVM is gone, which is killed after a time."""
    context = session.sparkContext
    gateway: Any = context._gateway
    with _uninterrupted():
        # A JVM that is dead already has nothing to stop.
        with suppress(Exception):
            name = context.applicationId
            session.stop()
            # Executors of `local-cluster` work in the package of Spark, and nothing can tell them not to.
            shutil.rmtree(Path(pyspark.__file__).parent / "work" / name, ignore_errors=True)
        _forget(session)
        _close(gateway, gateway.proc, patience)


@contextmanager
def running(name: str, directory: Path, **options: Any) -> Iterator[SparkSession]:
    """A session for the length of a block; the options are those of `started`."""
    session = started(name, directory, **options)
    try:
        yield session
    finally:
        ended(session)


def _settings(
    name: str, scratch: Path, master: str, memory: str, partitions: int, streaming: bool, ui: bool
) -> dict[str, str]:
    settings = {
        "spark.app.name": name,
        "spark.master": master,
        "spark.driver.memory": memory,
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.shuffle.partitions": str(partitions),
        # A stateful query has its number of partitions for ever: nothing may change it under way.
        "spark.sql.adaptive.enabled": str(not streaming).lower(),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.checkpointFileManagerClass": (
            f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        "spark.sql.streaming.stateStore.providerClass": f"{_STREAMING}.state.RocksDBStateStoreProvider",
        # A micro-batch writes what it has changed; whole states are written beside it.
        f"{_STORE}.changelogCheckpointing.enabled": "true",
        "spark.python.worker.reuse": "true",
        "spark.ui.enabled": str(ui).lower(),
        "spark.ui.port": "0",
        "spark.ui.killEnabled": "false",
        # All that a micro-batch makes final is collected, and that has no bound but memory.
        "spark.driver.maxResultSize": "0",
        "spark.ui.showConsoleProgress": "false",
    }
    if master.startswith("local"):
        settings |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    if MASTERS.fullmatch(master) and not master.startswith("local-cluster"):
        # Whoever else is on this machine has no business at its ports. Spark makes the secret itself.
        settings["spark.authenticate"] = "true"
    return settings


def _java_options(directory: Path, scratch: Path, brief: bool) -> str:
    quiet = Path(str(resources("headwater_spark") / "log4j2.properties"))
    options = [
        f'"-Dlog4j2.configurationFile={quiet.as_uri()}"',
        f'"-Dheadwater.spark.log={directory / "spark.log"}"',
        f'"-Djava.io.tmpdir={scratch}"',
    ]
    if brief:
        options.append("-XX:TieredStopAtLevel=1")
    return " ".join(options)


def _launched(
    settings: Mapping[str, str],
    directory: Path,
    runtime: Java,
    inherited: Sequence[int],
    unwanted: Callable[[], bool],
) -> SparkSession:
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list(settings.items()))
    out = directory / "spark.out"
    home = Path(pyspark.__file__).parent
    chosen = {
        "JAVA_HOME": str(runtime.home),
        # Not another Spark that the machine may have, nor its settings.
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(home / "conf"),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # Where the user interface listens; and then Spark does not look for, and warn of, the host's name.
        "SPARK_LOCAL_IP": LOOPBACK,
    }
    # What was set for this process's own gRPC is not for others.
    own = {name for name, value in handshakes.SETTINGS.items() if os.environ.get(name) == value}
    environment = {name: value for name, value in os.environ.items() if name not in own} | chosen
    gateway: Any = None
    if out.exists():
        # What the one before has said is looked for when this one is there.
        out.replace(directory / "spark.out.1")
    with out.open("wb") as written:
        try:
            there = jvm.started(home, settings, environment, written, inherited, unwanted)
        except (OSError, jvm.Exited) as error:
            raise NotStarted(str(error), directory, _last(out)) from error
    with _environment({**chosen, **there.environment}), _same_handler():
        try:
            gateway = launch_gateway(conf)  # type: ignore[no-untyped-call]  # pyspark's own
            gateway.proc = there.process
            context = SparkContext(conf=conf, gateway=gateway)
            # A JVM that is killed is told by whoever needs it, not by a trace on the terminal.
            server: Any = context._accumulatorServer
            server.handle_error = lambda request, address: None
            return SparkSession(context)
        except BaseException as error:
            # Before the JVM goes, which is asked for it.
            why = cause(error)
            _forget(None)
            _close(gateway, there.process)
            if isinstance(error, Exception):
                raise NotStarted(why, directory, _last(out)) from error
            raise


def _forget(session: SparkSession | None) -> None:
    """Let pyspark forget the JVM: it would give it to the next session, whatever its settings."""
    if session is not None:
        SparkSession._instantiatedSession = None
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None


def _close(gateway: Any, process: subprocess.Popen[bytes], patience: float = PATIENCE) -> None:
    if gateway is not None:
        with suppress(Exception):
            gateway.shutdown()
    jvm.ended(process, patience)


@contextmanager
def _environment(given: Mapping[str, str]) -> Iterator[None]:
    """Variables that pyspark reads, and that are as before afterwards."""
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _same_handler() -> Iterator[None]:
    """pyspark takes over Ctrl-C; it belongs to whoever had it before."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        # None was not set by Python, and cannot be.
        if handler is not None:
            signal.signal(signal.SIGINT, handler)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """A second Ctrl-C does not leave half of it behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def cause(error: BaseException) -> str:
    """What an error of Spark's is, and what is at the bottom of it; only while the JVM is there."""
    said = [str(error)]
    try:
        found: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
        if found is not None:
            said = []
        while found is not None and len(said) < _DEPTH:
            said.append(str(found.toString()))
            found = found.getCause()
    # The JVM is gone: then there is what Python knows.
    except Exception:
        said = said or [type(error).__name__]
    lines = [each.strip().partition("\n")[0] for each in said]
    first, last = lines[0] or type(error).__name__, lines[-1]
    return first if last in first else f"{first} ({last})"[:_LONGEST]


def _last(path: Path, lines: int = 15) -> str:
    """The last lines of a file, without the places in the JVM where it happened."""
    with suppress(OSError):
        said = path.read_text(errors="replace").splitlines()
        return "\n".join([line for line in said if not line.startswith("\tat ")][-lines:])
    return ""
