"""Snapshots: the state of the root as bytes, with which a segment of its log opens (protocol, rule 16).

    magic, 8 bytes; format, u32; length of the release's name, u16; the release's name; a pickle

The state is arrays, dictionaries and small objects that refer to each other in many ways, which is what
pickle is for. Three things keep it in bounds. Code stays outside: a function is written as its name, and the
reader has it. Only classes of the engine and a few plain ones are written or read: bytes that name anything
else are refused before it is looked up, so a file cannot run code. And arrays are checked before they are
made, so a damaged file cannot end the process (`arrays`).

The bytes are for releases with the same format.
"""

from __future__ import annotations

import pickle
import struct
import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib import metadata
from io import BytesIO
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from headwater import aggregates
from headwater.aggregates import Aggregate, UserDefined
from headwater.catalog import every
from headwater.errors import PermanentError
from headwater.machines.lanes import Apart
from headwater.machines.members import Members
from headwater.operators import NOTHING, Custom
from headwater.queries import EVERYTHING, KINDS, Query
from headwater.root import Root
from headwater.rows import SourceOrder
from headwater.topology import Functions
from headwater_root import arrays

# To be raised whenever a class whose objects are in the state gets, loses or changes an attribute.
FORMAT = 8
# States of these are read too, and brought to the present one.
OLDER = (4, 5, 6, 7)

_MAGIC = b"HWSTATE\n"
_HEAD = struct.Struct("<8sIH")
_UFUNCS = {"add": np.add, "minimum": np.minimum, "maximum": np.maximum}
# What is read besides classes of the engine.
_OTHERS = {
    ("builtins", "complex"),
    ("collections", "Counter"),
    ("collections", "OrderedDict"),
    ("decimal", "Decimal"),
    ("fractions", "Fraction"),
    *((arrays.__name__, f"read_{name}") for name in ("array", "objects", "dtype", "scalar")),
}
_PLAIN = frozenset({int, float, str, bool, type(None), bytes, tuple, list, dict, np.ndarray})
# What is written as a name of a module.
_GLOBALS = (type, FunctionType, BuiltinFunctionType, MethodType)


@cache
def _release() -> str:
    """Which one this is, for whoever cannot read what it wrote. Code that lies on a path without having been
    installed does not know, and needs not."""
    try:
        return metadata.version("headwater")
    except metadata.PackageNotFoundError:
        return "unknown"


class Unwritable(PermanentError):
    """A state that could not be read again."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the state of the root holds {what}; a snapshot cannot")


class Unreadable(PermanentError):
    """Bytes that are no snapshot, or one of another format."""


class Snapshots:
    """Writes and reads states for one root: its queries and `functions` have users' functions by their names,
    `apart` is the one of its settings."""

    def __init__(self, queries: Iterable[Query], functions: Functions, apart: Apart) -> None:
        self._given = {function.name: function for query in queries for function in query.custom}
        self._functions = functions
        self._constants = {"nothing": NOTHING, "everything": EVERYTHING, "every": every, "apart": apart}

    def encode(self, state: object) -> bytes:
        """The bytes of a state; raises `Unwritable`."""
        release = _release().encode()
        written = BytesIO()
        written.write(_HEAD.pack(_MAGIC, FORMAT, len(release)) + release)
        try:
            _Pickler(written, self.name_of).dump(state)
        except Unwritable:
            raise
        # What a user's function has made says in its own way that it cannot be pickled.
        except Exception as error:
            raise Unwritable(f"what cannot be pickled ({error})") from error
        return written.getvalue()

    def decode(self, data: bytes) -> Any:
        """The state that was written; raises `Unreadable`."""
        if len(data) < _HEAD.size or not data.startswith(_MAGIC):
            raise Unreadable("the log holds a state of the root that no release wrote")
        _, found, length = _HEAD.unpack_from(data)
        begin = _HEAD.size + length
        release = data[_HEAD.size : begin].decode(errors="replace")
        if found != FORMAT and found not in OLDER:
            raise Unreadable(
                f"release {release} wrote the state of the root in format {found}, and this one reads format "
                f"{FORMAT}"
            )
        read = BytesIO(data)
        read.seek(begin)
        try:
            state = _Unpickler(read, self.named).load()
            if found < 5:
                _know_kinds(state)
            if found < 6:
                _know_plans(state)
            return state
        # What is not as it should be shows in any way.
        except Exception as error:
            raise Unreadable(
                f"the state of the root as release {release} wrote it cannot be read ({error})"
            ) from error

    def name_of(self, given: object) -> tuple[str, str] | None:
        """What is written for an object that both sides have; None for any other."""
        if isinstance(given, Aggregate):
            return "aggregate", given.name
        if isinstance(given, UserDefined):
            if self._function(given.name) != given:
                raise Unwritable(f"the function {given.name!r}, which is not found by its name")
            return "function", given.name
        if isinstance(given, Custom):
            return "operator", given.name
        if isinstance(given, np.ufunc) and given in _UFUNCS.values():
            return "ufunc", given.__name__
        for name, constant in self._constants.items():
            if given is constant:
                return "constant", name
        return None

    def named(self, kind: str, name: str) -> object:
        """The object of a name."""
        if kind == "constant":
            return self._constants[name]
        if kind == "ufunc":
            return _UFUNCS[name]
        if kind == "aggregate":
            known = aggregates.parse(name)
            return known if isinstance(known, Aggregate) else aggregates.parse(self._present(name))
        if kind == "function":
            return self._present(name)
        given = self._present(name.removeprefix("custom "))
        return aggregates.build([name], SourceOrder(), {name: given})[-1]

    def _present(self, name: str) -> UserDefined:
        found = self._function(name)
        if found is None:
            raise LookupError(f"the function {name!r} is not there; install the package that offers it")
        return found

    def _function(self, name: str) -> UserDefined | None:
        return self._given.get(name) or self._functions(name)


def _know_kinds(state: Any) -> None:
    """From format 4: a root made the windows of all queries."""
    held = state[0]
    held._engine = Root
    for lane in held.lanes.values():
        lane.engine._grouping._kinds = KINDS


def _know_plans(state: Any) -> None:
    """From format 5: no plan was applied."""
    held = state[0].members
    for name, value in vars(Members()).items():
        vars(held).setdefault(name, value)


class _Pickler(pickle.Pickler):
    def __init__(self, file: BytesIO, name_of: Callable[[object], tuple[str, str] | None]) -> None:
        # The fourth protocol: arrays that are read have memory of their own.
        super().__init__(file, protocol=4)
        self._name_of = name_of
        self._admitted: set[object] = set()

    def reducer_override(self, given: Any) -> Any:
        if isinstance(given, np.ndarray):
            return arrays.reduce_array(given)
        if isinstance(given, np.dtype):
            return arrays.reduce_dtype(given)
        if isinstance(given, np.generic):
            return arrays.reduce_scalar(given)
        return NotImplemented

    def persistent_id(self, given: object) -> tuple[str, str] | None:
        # Asked for every object: most are plain, and quickly passed.
        kind = type(given)
        if kind in _PLAIN or (kind in _GLOBALS and given in self._admitted):
            return None
        name = self._name_of(given)
        if name is None and isinstance(given, _GLOBALS):
            if not _admits(given.__module__, given.__qualname__):
                raise Unwritable(f"{given.__module__}.{given.__qualname__}")
            self._admitted.add(given)
        return name


class _Unpickler(arrays.CheckedUnpickler):
    def __init__(self, file: BytesIO, named: Callable[[str, str], object]) -> None:
        super().__init__(file)
        self._named = named

    def persistent_load(self, name: tuple[str, str]) -> object:
        return self._named(*name)

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in arrays.OF_NUMPY and not _admits(module, name):
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is no part of a state")
        return super().find_class(module, name)


def _admits(module: str, name: str) -> bool:
    """Whether a name may be written and read: a class of the engine, or one of a few others."""
    if (module, name) in _OTHERS:
        return True
    if not module.startswith("headwater.") or "." in name:
        return False
    found = getattr(sys.modules.get(module), name, None)
    return isinstance(found, type) and found.__module__ == module
