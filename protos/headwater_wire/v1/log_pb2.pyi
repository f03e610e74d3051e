from headwater_wire.v1 import partials_pb2 as _partials_pb2
from headwater_wire.v1 import tree_pb2 as _tree_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LogRecord(_message.Message):
    __slots__ = ("watermark", "version", "merged", "admitted", "opened", "idled", "resumed", "retired", "skipped", "started", "changed", "joined", "left", "assigned", "began", "quarantined", "released", "specified", "lane")
    WATERMARK_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MERGED_FIELD_NUMBER: _ClassVar[int]
    ADMITTED_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    IDLED_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    RETIRED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    BEGAN_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    SPECIFIED_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    watermark: int
    version: int
    merged: _partials_pb2.Partial
    admitted: Admitted
    opened: Opened
    idled: _tree_pb2.Named
    resumed: _tree_pb2.Named
    retired: _tree_pb2.Named
    skipped: Skipped
    started: Started
    changed: _tree_pb2.Change
    joined: Joined
    left: str
    assigned: Assigned
    began: Began
    quarantined: Quarantined
    released: str
    specified: Specified
    lane: int
    def __init__(self, watermark: _Optional[int] = ..., version: _Optional[int] = ..., merged: _Optional[_Union[_partials_pb2.Partial, _Mapping]] = ..., admitted: _Optional[_Union[Admitted, _Mapping]] = ..., opened: _Optional[_Union[Opened, _Mapping]] = ..., idled: _Optional[_Union[_tree_pb2.Named, _Mapping]] = ..., resumed: _Optional[_Union[_tree_pb2.Named, _Mapping]] = ..., retired: _Optional[_Union[_tree_pb2.Named, _Mapping]] = ..., skipped: _Optional[_Union[Skipped, _Mapping]] = ..., started: _Optional[_Union[Started, _Mapping]] = ..., changed: _Optional[_Union[_tree_pb2.Change, _Mapping]] = ..., joined: _Optional[_Union[Joined, _Mapping]] = ..., left: _Optional[str] = ..., assigned: _Optional[_Union[Assigned, _Mapping]] = ..., began: _Optional[_Union[Began, _Mapping]] = ..., quarantined: _Optional[_Union[Quarantined, _Mapping]] = ..., released: _Optional[str] = ..., specified: _Optional[_Union[Specified, _Mapping]] = ..., lane: _Optional[int] = ...) -> None: ...

class Began(_message.Message):
    __slots__ = ("term", "name", "expected")
    TERM_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    term: int
    name: str
    expected: int
    def __init__(self, term: _Optional[int] = ..., name: _Optional[str] = ..., expected: _Optional[int] = ...) -> None: ...

class Joined(_message.Message):
    __slots__ = ("node", "token", "generation", "child", "address")
    NODE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CHILD_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    node: str
    token: str
    generation: int
    child: bool
    address: str
    def __init__(self, node: _Optional[str] = ..., token: _Optional[str] = ..., generation: _Optional[int] = ..., child: _Optional[bool] = ..., address: _Optional[str] = ...) -> None: ...

class Assigned(_message.Message):
    __slots__ = ("source", "child")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    CHILD_FIELD_NUMBER: _ClassVar[int]
    source: str
    child: str
    def __init__(self, source: _Optional[str] = ..., child: _Optional[str] = ...) -> None: ...

class PlannedNode(_message.Message):
    __slots__ = ("node", "parent", "capacity")
    NODE_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    node: str
    parent: str
    capacity: float
    def __init__(self, node: _Optional[str] = ..., parent: _Optional[str] = ..., capacity: _Optional[float] = ...) -> None: ...

class PlannedRate(_message.Message):
    __slots__ = ("site", "lateness", "rate")
    SITE_FIELD_NUMBER: _ClassVar[int]
    LATENESS_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    site: str
    lateness: int
    rate: float
    def __init__(self, site: _Optional[str] = ..., lateness: _Optional[int] = ..., rate: _Optional[float] = ...) -> None: ...

class Specified(_message.Message):
    __slots__ = ("generation", "digest", "nodes", "rates", "expected", "owner")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    RATES_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    generation: int
    digest: str
    nodes: _containers.RepeatedCompositeFieldContainer[PlannedNode]
    rates: _containers.RepeatedCompositeFieldContainer[PlannedRate]
    expected: int
    owner: str
    def __init__(self, generation: _Optional[int] = ..., digest: _Optional[str] = ..., nodes: _Optional[_Iterable[_Union[PlannedNode, _Mapping]]] = ..., rates: _Optional[_Iterable[_Union[PlannedRate, _Mapping]]] = ..., expected: _Optional[int] = ..., owner: _Optional[str] = ...) -> None: ...

class Admitted(_message.Message):
    __slots__ = ("source", "site", "lateness", "spool", "opening", "offset", "earlier")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SITE_FIELD_NUMBER: _ClassVar[int]
    LATENESS_FIELD_NUMBER: _ClassVar[int]
    SPOOL_FIELD_NUMBER: _ClassVar[int]
    OPENING_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    EARLIER_FIELD_NUMBER: _ClassVar[int]
    source: _tree_pb2.Named
    site: str
    lateness: int
    spool: str
    opening: str
    offset: int
    earlier: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, source: _Optional[_Union[_tree_pb2.Named, _Mapping]] = ..., site: _Optional[str] = ..., lateness: _Optional[int] = ..., spool: _Optional[str] = ..., opening: _Optional[str] = ..., offset: _Optional[int] = ..., earlier: _Optional[_Iterable[str]] = ...) -> None: ...

class Opened(_message.Message):
    __slots__ = ("source", "opening", "upto", "earlier")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    OPENING_FIELD_NUMBER: _ClassVar[int]
    UPTO_FIELD_NUMBER: _ClassVar[int]
    EARLIER_FIELD_NUMBER: _ClassVar[int]
    source: _tree_pb2.Named
    opening: str
    upto: int
    earlier: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, source: _Optional[_Union[_tree_pb2.Named, _Mapping]] = ..., opening: _Optional[str] = ..., upto: _Optional[int] = ..., earlier: _Optional[_Iterable[str]] = ...) -> None: ...

class Quarantined(_message.Message):
    __slots__ = ("source", "reason")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    source: _tree_pb2.Named
    reason: str
    def __init__(self, source: _Optional[_Union[_tree_pb2.Named, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class Skipped(_message.Message):
    __slots__ = ("source", "seq")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    source: _tree_pb2.Named
    seq: int
    def __init__(self, source: _Optional[_Union[_tree_pb2.Named, _Mapping]] = ..., seq: _Optional[int] = ...) -> None: ...

class Started(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
