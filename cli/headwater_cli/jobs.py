"""Batch jobs of Spark behind a command: what they need, how they are started, and how they end."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.errors import HeadwaterError, Invalid
from headwater_cli import interrupts, times

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Time(click.ParamType[int]):
    """A moment of event time."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return times.read(value)
        except (ValueError, OverflowError):
            self.fail(
                f"{value!r} is no time; give 2026-11-17T08:00, or microseconds since the epoch", param, ctx
            )


class JobFailed(click.ClickException):
    """Spark could not do it: it did not start, or found files that cannot be read."""

    exit_code = 4


def told(said: str) -> None:
    """What is under way, for whoever waits; not among the answers."""
    click.echo(said, err=True)


@contextmanager
def session(name: str, memory: str) -> Iterator[SparkSession]:
    """A session for a job; its files go with it, and an error has what they say."""
    try:
        from headwater_spark import session
    except ImportError as error:
        raise click.ClickException(f"this needs Spark ({error}); pip install 'headwater[spark]'") from error
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
    from pyspark.errors import PySparkException

    # Whoever ends it in this way means the same as with Ctrl-C; only the code is another one.
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(interrupts.TERMINATED))
    directory = Path(tempfile.mkdtemp(prefix="headwater-spark-"))
    try:
        told("starting Spark")
        with session.running(name, directory, memory=memory, brief=True) as spark:
            try:
                yield spark
            except (PySparkException, Py4JError) as error:
                # As long as there is a JVM to ask.
                raise JobFailed(f"Spark failed: {session.cause(error)}") from error
    except Invalid as error:
        raise click.UsageError(str(error)) from error
    except HeadwaterError as error:
        raise JobFailed(str(error)) from error
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        signal.signal(signal.SIGTERM, before)
