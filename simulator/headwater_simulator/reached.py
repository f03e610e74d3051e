"""Which lines of the machines runs have reached, and which never: transitions that no run has taken."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from headwater import machines


class Line(NamedTuple):
    """A line of a function of a module."""

    module: str
    number: int


class Code:
    """The functions of the machines, by line."""

    def __init__(self) -> None:
        self.functions: dict[Line, str] = {}
        self.text: dict[Line, str] = {}
        self._modules: dict[str, str] = {}
        for found in pkgutil.iter_modules(machines.__path__):
            module = importlib.import_module(f"{machines.__name__}.{found.name}")
            path = Path(str(module.__file__))
            self._modules[str(path)] = found.name
            text = path.read_text()
            for code in _functions(compile(text, str(path), "exec")):
                # Its first line is the definition, which is reached when the module is read.
                for number in {line for _, _, line in code.co_lines() if line}:
                    if number != code.co_firstlineno:
                        self.functions[Line(found.name, number)] = code.co_qualname
            for number, line in enumerate(text.splitlines(), start=1):
                if Line(found.name, number) in self.functions:
                    self.text[Line(found.name, number)] = line.strip()

    @contextmanager
    def watched(self, reached: set[Line]) -> Iterator[None]:
        """Add to `reached` what is reached meanwhile; several times slower."""
        modules = self._modules

        def called(frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
            module = modules.get(frame.f_code.co_filename)
            if module is None:
                return None

            def stepped(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
                reached.add(Line(module, frame.f_lineno))
                return stepped

            return stepped

        before = sys.gettrace()
        sys.settrace(called)
        try:
            yield
        finally:
            sys.settrace(before)

    def missed(self, reached: set[Line]) -> list[Line]:
        return sorted(self.functions.keys() - reached)

    def told(self, line: Line) -> str:
        return f"{line.module}.py:{line.number} {self.functions[line]}: {self.text[line]}"


def _functions(code: CodeType) -> Iterator[CodeType]:
    """The functions within; bodies of modules and classes are none."""
    for within in code.co_consts:
        if isinstance(within, CodeType):
            if "__firstlineno__" not in within.co_names and "__qualname__" not in within.co_names:
                yield within
            yield from _functions(within)
