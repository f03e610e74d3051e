from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Column(_message.Message):
    __slots__ = ("float64", "int64", "int32", "complex128", "matrix", "lists", "objects")
    FLOAT64_FIELD_NUMBER: _ClassVar[int]
    INT64_FIELD_NUMBER: _ClassVar[int]
    INT32_FIELD_NUMBER: _ClassVar[int]
    COMPLEX128_FIELD_NUMBER: _ClassVar[int]
    MATRIX_FIELD_NUMBER: _ClassVar[int]
    LISTS_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    float64: bytes
    int64: bytes
    int32: bytes
    complex128: bytes
    matrix: Matrix
    lists: Lists
    objects: Objects
    def __init__(self, float64: _Optional[bytes] = ..., int64: _Optional[bytes] = ..., int32: _Optional[bytes] = ..., complex128: _Optional[bytes] = ..., matrix: _Optional[_Union[Matrix, _Mapping]] = ..., lists: _Optional[_Union[Lists, _Mapping]] = ..., objects: _Optional[_Union[Objects, _Mapping]] = ...) -> None: ...

class Matrix(_message.Message):
    __slots__ = ("width", "float64")
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    FLOAT64_FIELD_NUMBER: _ClassVar[int]
    width: int
    float64: bytes
    def __init__(self, width: _Optional[int] = ..., float64: _Optional[bytes] = ...) -> None: ...

class Lists(_message.Message):
    __slots__ = ("sizes_uint32", "float64")
    SIZES_UINT32_FIELD_NUMBER: _ClassVar[int]
    FLOAT64_FIELD_NUMBER: _ClassVar[int]
    sizes_uint32: bytes
    float64: bytes
    def __init__(self, sizes_uint32: _Optional[bytes] = ..., float64: _Optional[bytes] = ...) -> None: ...

class Objects(_message.Message):
    __slots__ = ("row",)
    ROW_FIELD_NUMBER: _ClassVar[int]
    row: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, row: _Optional[_Iterable[bytes]] = ...) -> None: ...

class State(_message.Message):
    __slots__ = ("columns",)
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    columns: _containers.RepeatedCompositeFieldContainer[Column]
    def __init__(self, columns: _Optional[_Iterable[_Union[Column, _Mapping]]] = ...) -> None: ...

class Where(_message.Message):
    __slots__ = ("above", "at_least", "below", "at_most", "keys")
    ABOVE_FIELD_NUMBER: _ClassVar[int]
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    BELOW_FIELD_NUMBER: _ClassVar[int]
    AT_MOST_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    above: float
    at_least: float
    below: float
    at_most: float
    keys: Names
    def __init__(self, above: _Optional[float] = ..., at_least: _Optional[float] = ..., below: _Optional[float] = ..., at_most: _Optional[float] = ..., keys: _Optional[_Union[Names, _Mapping]] = ...) -> None: ...

class Names(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[_Iterable[str]] = ...) -> None: ...

class Places(_message.Message):
    __slots__ = ("sites", "site", "keys", "count")
    SITES_FIELD_NUMBER: _ClassVar[int]
    SITE_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    sites: _containers.RepeatedScalarFieldContainer[str]
    site: bytes
    keys: _containers.RepeatedScalarFieldContainer[str]
    count: int
    def __init__(self, sites: _Optional[_Iterable[str]] = ..., site: _Optional[bytes] = ..., keys: _Optional[_Iterable[str]] = ..., count: _Optional[int] = ...) -> None: ...

class Fragments(_message.Message):
    __slots__ = ("code_int64", "first_int64", "last_int64", "states")
    CODE_INT64_FIELD_NUMBER: _ClassVar[int]
    FIRST_INT64_FIELD_NUMBER: _ClassVar[int]
    LAST_INT64_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    code_int64: bytes
    first_int64: bytes
    last_int64: bytes
    states: _containers.RepeatedCompositeFieldContainer[State]
    def __init__(self, code_int64: _Optional[bytes] = ..., first_int64: _Optional[bytes] = ..., last_int64: _Optional[bytes] = ..., states: _Optional[_Iterable[_Union[State, _Mapping]]] = ...) -> None: ...

class Selection(_message.Message):
    __slots__ = ("where", "start_int64", "code_int64", "states", "fragments")
    WHERE_FIELD_NUMBER: _ClassVar[int]
    START_INT64_FIELD_NUMBER: _ClassVar[int]
    CODE_INT64_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    FRAGMENTS_FIELD_NUMBER: _ClassVar[int]
    where: Where
    start_int64: bytes
    code_int64: bytes
    states: _containers.RepeatedCompositeFieldContainer[State]
    fragments: Fragments
    def __init__(self, where: _Optional[_Union[Where, _Mapping]] = ..., start_int64: _Optional[bytes] = ..., code_int64: _Optional[bytes] = ..., states: _Optional[_Iterable[_Union[State, _Mapping]]] = ..., fragments: _Optional[_Union[Fragments, _Mapping]] = ...) -> None: ...

class Sliced(_message.Message):
    __slots__ = ("places", "operators", "selections")
    PLACES_FIELD_NUMBER: _ClassVar[int]
    OPERATORS_FIELD_NUMBER: _ClassVar[int]
    SELECTIONS_FIELD_NUMBER: _ClassVar[int]
    places: Places
    operators: _containers.RepeatedScalarFieldContainer[str]
    selections: _containers.RepeatedCompositeFieldContainer[Selection]
    def __init__(self, places: _Optional[_Union[Places, _Mapping]] = ..., operators: _Optional[_Iterable[str]] = ..., selections: _Optional[_Iterable[_Union[Selection, _Mapping]]] = ...) -> None: ...

class Ended(_message.Message):
    __slots__ = ("source", "key", "ordinal", "start", "end")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    ORDINAL_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    source: int
    key: str
    ordinal: int
    start: int
    end: int
    def __init__(self, source: _Optional[int] = ..., key: _Optional[str] = ..., ordinal: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class Marked(_message.Message):
    __slots__ = ("places", "source_int64", "code_int64", "ordinal_int64", "states", "ended")
    PLACES_FIELD_NUMBER: _ClassVar[int]
    SOURCE_INT64_FIELD_NUMBER: _ClassVar[int]
    CODE_INT64_FIELD_NUMBER: _ClassVar[int]
    ORDINAL_INT64_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    places: Places
    source_int64: bytes
    code_int64: bytes
    ordinal_int64: bytes
    states: _containers.RepeatedCompositeFieldContainer[State]
    ended: _containers.RepeatedCompositeFieldContainer[Ended]
    def __init__(self, places: _Optional[_Union[Places, _Mapping]] = ..., source_int64: _Optional[bytes] = ..., code_int64: _Optional[bytes] = ..., ordinal_int64: _Optional[bytes] = ..., states: _Optional[_Iterable[_Union[State, _Mapping]]] = ..., ended: _Optional[_Iterable[_Union[Ended, _Mapping]]] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("group", "sliced", "marked")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SLICED_FIELD_NUMBER: _ClassVar[int]
    MARKED_FIELD_NUMBER: _ClassVar[int]
    group: int
    sliced: Sliced
    marked: Marked
    def __init__(self, group: _Optional[int] = ..., sliced: _Optional[_Union[Sliced, _Mapping]] = ..., marked: _Optional[_Union[Marked, _Mapping]] = ...) -> None: ...

class Forwarded(_message.Message):
    __slots__ = ("source", "ts_int64", "ts_first", "ts_int32", "value_float64", "seq_int64", "seq_first", "key", "in_order")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TS_INT64_FIELD_NUMBER: _ClassVar[int]
    TS_FIRST_FIELD_NUMBER: _ClassVar[int]
    TS_INT32_FIELD_NUMBER: _ClassVar[int]
    VALUE_FLOAT64_FIELD_NUMBER: _ClassVar[int]
    SEQ_INT64_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIRST_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    IN_ORDER_FIELD_NUMBER: _ClassVar[int]
    source: int
    ts_int64: bytes
    ts_first: int
    ts_int32: bytes
    value_float64: bytes
    seq_int64: bytes
    seq_first: int
    key: bytes
    in_order: bool
    def __init__(self, source: _Optional[int] = ..., ts_int64: _Optional[bytes] = ..., ts_first: _Optional[int] = ..., ts_int32: _Optional[bytes] = ..., value_float64: _Optional[bytes] = ..., seq_int64: _Optional[bytes] = ..., seq_first: _Optional[int] = ..., key: _Optional[bytes] = ..., in_order: _Optional[bool] = ...) -> None: ...

class MarkState(_message.Message):
    __slots__ = ("query", "key", "ordinal", "opened", "since")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    ORDINAL_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    query: str
    key: str
    ordinal: int
    opened: int
    since: int
    def __init__(self, query: _Optional[str] = ..., key: _Optional[str] = ..., ordinal: _Optional[int] = ..., opened: _Optional[int] = ..., since: _Optional[int] = ...) -> None: ...

class Prefix(_message.Message):
    __slots__ = ("position", "largest", "marks", "skips", "opening")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    LARGEST_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    SKIPS_FIELD_NUMBER: _ClassVar[int]
    OPENING_FIELD_NUMBER: _ClassVar[int]
    position: int
    largest: int
    marks: _containers.RepeatedCompositeFieldContainer[MarkState]
    skips: _containers.RepeatedScalarFieldContainer[int]
    opening: str
    def __init__(self, position: _Optional[int] = ..., largest: _Optional[int] = ..., marks: _Optional[_Iterable[_Union[MarkState, _Mapping]]] = ..., skips: _Optional[_Iterable[int]] = ..., opening: _Optional[str] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("seq", "ts", "reason")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    TS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    seq: int
    ts: int
    reason: str
    def __init__(self, seq: _Optional[int] = ..., ts: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Span(_message.Message):
    __slots__ = ("source", "low", "high", "refused", "sample", "heartbeats")
    class RefusedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEATS_FIELD_NUMBER: _ClassVar[int]
    source: int
    low: Prefix
    high: Prefix
    refused: _containers.ScalarMap[str, int]
    sample: _containers.RepeatedCompositeFieldContainer[Refused]
    heartbeats: int
    def __init__(self, source: _Optional[int] = ..., low: _Optional[_Union[Prefix, _Mapping]] = ..., high: _Optional[_Union[Prefix, _Mapping]] = ..., refused: _Optional[_Mapping[str, int]] = ..., sample: _Optional[_Iterable[_Union[Refused, _Mapping]]] = ..., heartbeats: _Optional[int] = ...) -> None: ...

class Source(_message.Message):
    __slots__ = ("code", "name", "incarnation")
    CODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    code: int
    name: str
    incarnation: int
    def __init__(self, code: _Optional[int] = ..., name: _Optional[str] = ..., incarnation: _Optional[int] = ...) -> None: ...

class Partial(_message.Message):
    __slots__ = ("version", "signature", "largest", "sources", "vector", "parts", "keys", "events")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    LARGEST_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    VECTOR_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    version: int
    signature: str
    largest: int
    sources: _containers.RepeatedCompositeFieldContainer[Source]
    vector: _containers.RepeatedCompositeFieldContainer[Span]
    parts: _containers.RepeatedCompositeFieldContainer[Part]
    keys: _containers.RepeatedScalarFieldContainer[str]
    events: _containers.RepeatedCompositeFieldContainer[Forwarded]
    def __init__(self, version: _Optional[int] = ..., signature: _Optional[str] = ..., largest: _Optional[int] = ..., sources: _Optional[_Iterable[_Union[Source, _Mapping]]] = ..., vector: _Optional[_Iterable[_Union[Span, _Mapping]]] = ..., parts: _Optional[_Iterable[_Union[Part, _Mapping]]] = ..., keys: _Optional[_Iterable[str]] = ..., events: _Optional[_Iterable[_Union[Forwarded, _Mapping]]] = ...) -> None: ...
