"""The archive of classes: used if it is there, never needed. To make one takes too long for a test."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

from headwater_spark import classes, java


def test_an_archive_is_used_if_there_is_one_and_ignored_if_it_is_none(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    runtime = java.found(os.environ)
    assert classes.options(runtime, environment) == []
    path = classes.path(runtime, environment)
    assert path.is_relative_to(tmp_path / "headwater")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no archive of classes")
    options = [option.strip('"') for option in classes.options(runtime, environment)]
    assert str(path) in options[0]
    program = runtime.home / "bin" / "java"
    subprocess.run([program, *options, "-version"], check=True, capture_output=True)


def test_another_java_has_another_archive(tmp_path: Path) -> None:
    runtime = java.found(os.environ)
    other = replace(runtime, runtime=tmp_path)
    assert classes.path(runtime, os.environ) != classes.path(other, os.environ)
