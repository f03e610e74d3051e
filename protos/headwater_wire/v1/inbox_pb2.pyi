from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class ReachRequest(_message.Message):
    __slots__ = ("after", "bytes", "wait")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    after: int
    bytes: int
    wait: int
    def __init__(self, after: _Optional[int] = ..., bytes: _Optional[int] = ..., wait: _Optional[int] = ...) -> None: ...

class Reached(_message.Message):
    __slots__ = ("position", "watermark")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_FIELD_NUMBER: _ClassVar[int]
    position: int
    watermark: int
    def __init__(self, position: _Optional[int] = ..., watermark: _Optional[int] = ...) -> None: ...

class Range(_message.Message):
    __slots__ = ("first", "last", "parts")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    parts: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ..., parts: _Optional[int] = ...) -> None: ...

class Planned(_message.Message):
    __slots__ = ("lasts", "watermarks")
    LASTS_FIELD_NUMBER: _ClassVar[int]
    WATERMARKS_FIELD_NUMBER: _ClassVar[int]
    lasts: _containers.RepeatedScalarFieldContainer[int]
    watermarks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, lasts: _Optional[_Iterable[int]] = ..., watermarks: _Optional[_Iterable[int]] = ...) -> None: ...

class Records(_message.Message):
    __slots__ = ("first", "records")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    first: int
    records: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, first: _Optional[int] = ..., records: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Finished(_message.Message):
    __slots__ = ("position",)
    POSITION_FIELD_NUMBER: _ClassVar[int]
    position: int
    def __init__(self, position: _Optional[int] = ...) -> None: ...

class FinishedReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
