from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Events(_message.Message):
    __slots__ = ("source", "incarnation", "first", "count", "ts_int64", "ts_offsets", "value", "key", "keys", "mark", "marks", "bare")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TS_INT64_FIELD_NUMBER: _ClassVar[int]
    TS_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    BARE_FIELD_NUMBER: _ClassVar[int]
    source: str
    incarnation: int
    first: int
    count: int
    ts_int64: bytes
    ts_offsets: Offsets
    value: bytes
    key: bytes
    keys: _containers.RepeatedScalarFieldContainer[str]
    mark: bytes
    marks: _containers.RepeatedScalarFieldContainer[str]
    bare: bytes
    def __init__(self, source: _Optional[str] = ..., incarnation: _Optional[int] = ..., first: _Optional[int] = ..., count: _Optional[int] = ..., ts_int64: _Optional[bytes] = ..., ts_offsets: _Optional[_Union[Offsets, _Mapping]] = ..., value: _Optional[bytes] = ..., key: _Optional[bytes] = ..., keys: _Optional[_Iterable[str]] = ..., mark: _Optional[bytes] = ..., marks: _Optional[_Iterable[str]] = ..., bare: _Optional[bytes] = ...) -> None: ...

class Offsets(_message.Message):
    __slots__ = ("first", "int32")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    INT32_FIELD_NUMBER: _ClassVar[int]
    first: int
    int32: bytes
    def __init__(self, first: _Optional[int] = ..., int32: _Optional[bytes] = ...) -> None: ...
