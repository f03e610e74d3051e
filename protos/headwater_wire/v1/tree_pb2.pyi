from headwater_wire.v1 import events_pb2 as _events_pb2
from headwater_wire.v1 import partials_pb2 as _partials_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Envelope(_message.Message):
    __slots__ = ("protocol", "sender", "to", "hello", "challenge", "welcome", "fenced", "columns", "delivery", "probe", "ask", "tell", "ack", "resync", "commit", "silent", "register", "registered", "leave", "stale", "piece", "crowded")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    TELL_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    RESYNC_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    SILENT_FIELD_NUMBER: _ClassVar[int]
    REGISTER_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    CROWDED_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    sender: str
    to: str
    hello: Hello
    challenge: Challenge
    welcome: Welcome
    fenced: Fenced
    columns: Columns
    delivery: Delivery
    probe: Probe
    ask: Ask
    tell: Tell
    ack: Ack
    resync: Resync
    commit: Commit
    silent: Silent
    register: Register
    registered: Registered
    leave: Leave
    stale: Stale
    piece: Piece
    crowded: Crowded
    def __init__(self, protocol: _Optional[int] = ..., sender: _Optional[str] = ..., to: _Optional[str] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., challenge: _Optional[_Union[Challenge, _Mapping]] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., fenced: _Optional[_Union[Fenced, _Mapping]] = ..., columns: _Optional[_Union[Columns, _Mapping]] = ..., delivery: _Optional[_Union[Delivery, _Mapping]] = ..., probe: _Optional[_Union[Probe, _Mapping]] = ..., ask: _Optional[_Union[Ask, _Mapping]] = ..., tell: _Optional[_Union[Tell, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., resync: _Optional[_Union[Resync, _Mapping]] = ..., commit: _Optional[_Union[Commit, _Mapping]] = ..., silent: _Optional[_Union[Silent, _Mapping]] = ..., register: _Optional[_Union[Register, _Mapping]] = ..., registered: _Optional[_Union[Registered, _Mapping]] = ..., leave: _Optional[_Union[Leave, _Mapping]] = ..., stale: _Optional[_Union[Stale, _Mapping]] = ..., piece: _Optional[_Union[Piece, _Mapping]] = ..., crowded: _Optional[_Union[Crowded, _Mapping]] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ("data", "last")
    DATA_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    last: bool
    def __init__(self, data: _Optional[bytes] = ..., last: _Optional[bool] = ...) -> None: ...

class StreamId(_message.Message):
    __slots__ = ("opener", "number", "generation")
    OPENER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    opener: str
    number: int
    generation: int
    def __init__(self, opener: _Optional[str] = ..., number: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class Register(_message.Message):
    __slots__ = ("node", "token", "child", "address", "generation", "echo", "parent", "items", "stalls")
    NODE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    CHILD_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ECHO_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    STALLS_FIELD_NUMBER: _ClassVar[int]
    node: str
    token: str
    child: bool
    address: str
    generation: int
    echo: str
    parent: str
    items: int
    stalls: _containers.RepeatedCompositeFieldContainer[Stall]
    def __init__(self, node: _Optional[str] = ..., token: _Optional[str] = ..., child: _Optional[bool] = ..., address: _Optional[str] = ..., generation: _Optional[int] = ..., echo: _Optional[str] = ..., parent: _Optional[str] = ..., items: _Optional[int] = ..., stalls: _Optional[_Iterable[_Union[Stall, _Mapping]]] = ...) -> None: ...

class Stall(_message.Message):
    __slots__ = ("source", "reason", "quiet", "idle_in", "node", "record")
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REASON_UNSPECIFIED: _ClassVar[Stall.Reason]
        REASON_SILENT: _ClassVar[Stall.Reason]
        REASON_HORIZON: _ClassVar[Stall.Reason]
        REASON_FUTURE: _ClassVar[Stall.Reason]
        REASON_QUARANTINE: _ClassVar[Stall.Reason]
        REASON_BACKPRESSURE: _ClassVar[Stall.Reason]
    REASON_UNSPECIFIED: Stall.Reason
    REASON_SILENT: Stall.Reason
    REASON_HORIZON: Stall.Reason
    REASON_FUTURE: Stall.Reason
    REASON_QUARANTINE: Stall.Reason
    REASON_BACKPRESSURE: Stall.Reason
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    QUIET_FIELD_NUMBER: _ClassVar[int]
    IDLE_IN_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    source: Named
    reason: Stall.Reason
    quiet: int
    idle_in: int
    node: str
    record: int
    def __init__(self, source: _Optional[_Union[Named, _Mapping]] = ..., reason: _Optional[_Union[Stall.Reason, str]] = ..., quiet: _Optional[int] = ..., idle_in: _Optional[int] = ..., node: _Optional[str] = ..., record: _Optional[int] = ...) -> None: ...

class Registered(_message.Message):
    __slots__ = ("node", "token", "generation", "queries", "changes", "assigned", "nonce", "keys_per_source", "parent", "address", "return_timeout")
    NODE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    KEYS_PER_SOURCE_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    RETURN_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    node: str
    token: str
    generation: int
    queries: _containers.RepeatedScalarFieldContainer[str]
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    assigned: _containers.RepeatedCompositeFieldContainer[Named]
    nonce: str
    keys_per_source: int
    parent: str
    address: str
    return_timeout: int
    def __init__(self, node: _Optional[str] = ..., token: _Optional[str] = ..., generation: _Optional[int] = ..., queries: _Optional[_Iterable[str]] = ..., changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ..., assigned: _Optional[_Iterable[_Union[Named, _Mapping]]] = ..., nonce: _Optional[str] = ..., keys_per_source: _Optional[int] = ..., parent: _Optional[str] = ..., address: _Optional[str] = ..., return_timeout: _Optional[int] = ...) -> None: ...

class Leave(_message.Message):
    __slots__ = ("node", "generation")
    NODE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    node: str
    generation: int
    def __init__(self, node: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class Stale(_message.Message):
    __slots__ = ("stream",)
    STREAM_FIELD_NUMBER: _ClassVar[int]
    stream: StreamId
    def __init__(self, stream: _Optional[_Union[StreamId, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("name", "spool", "opening", "opened_at", "head", "site", "lateness", "echo", "base", "via", "avoid", "earlier")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SPOOL_FIELD_NUMBER: _ClassVar[int]
    OPENING_FIELD_NUMBER: _ClassVar[int]
    OPENED_AT_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    SITE_FIELD_NUMBER: _ClassVar[int]
    LATENESS_FIELD_NUMBER: _ClassVar[int]
    ECHO_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    VIA_FIELD_NUMBER: _ClassVar[int]
    AVOID_FIELD_NUMBER: _ClassVar[int]
    EARLIER_FIELD_NUMBER: _ClassVar[int]
    name: str
    spool: str
    opening: str
    opened_at: int
    head: int
    site: str
    lateness: int
    echo: str
    base: int
    via: str
    avoid: str
    earlier: _containers.RepeatedCompositeFieldContainer[Earlier]
    def __init__(self, name: _Optional[str] = ..., spool: _Optional[str] = ..., opening: _Optional[str] = ..., opened_at: _Optional[int] = ..., head: _Optional[int] = ..., site: _Optional[str] = ..., lateness: _Optional[int] = ..., echo: _Optional[str] = ..., base: _Optional[int] = ..., via: _Optional[str] = ..., avoid: _Optional[str] = ..., earlier: _Optional[_Iterable[_Union[Earlier, _Mapping]]] = ...) -> None: ...

class Earlier(_message.Message):
    __slots__ = ("opening", "upto")
    OPENING_FIELD_NUMBER: _ClassVar[int]
    UPTO_FIELD_NUMBER: _ClassVar[int]
    opening: str
    upto: int
    def __init__(self, opening: _Optional[str] = ..., upto: _Optional[int] = ...) -> None: ...

class Challenge(_message.Message):
    __slots__ = ("opening", "nonce", "name")
    OPENING_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    opening: str
    nonce: str
    name: str
    def __init__(self, opening: _Optional[str] = ..., nonce: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("opening", "name", "incarnation", "offset", "child", "address", "key_by")
    OPENING_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    CHILD_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    KEY_BY_FIELD_NUMBER: _ClassVar[int]
    opening: str
    name: str
    incarnation: int
    offset: int
    child: str
    address: str
    key_by: str
    def __init__(self, opening: _Optional[str] = ..., name: _Optional[str] = ..., incarnation: _Optional[int] = ..., offset: _Optional[int] = ..., child: _Optional[str] = ..., address: _Optional[str] = ..., key_by: _Optional[str] = ...) -> None: ...

class Fenced(_message.Message):
    __slots__ = ("opening", "name", "reason", "quarantined")
    OPENING_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    opening: str
    name: str
    reason: str
    quarantined: bool
    def __init__(self, opening: _Optional[str] = ..., name: _Optional[str] = ..., reason: _Optional[str] = ..., quarantined: _Optional[bool] = ...) -> None: ...

class Columns(_message.Message):
    __slots__ = ("stream", "id", "opening", "events")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    OPENING_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    stream: StreamId
    id: str
    opening: str
    events: _events_pb2.Events
    def __init__(self, stream: _Optional[_Union[StreamId, _Mapping]] = ..., id: _Optional[str] = ..., opening: _Optional[str] = ..., events: _Optional[_Union[_events_pb2.Events, _Mapping]] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("stream", "id", "partial", "lane", "echoes")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    ECHOES_FIELD_NUMBER: _ClassVar[int]
    stream: StreamId
    id: str
    partial: _partials_pb2.Partial
    lane: int
    echoes: _containers.RepeatedCompositeFieldContainer[Echo]
    def __init__(self, stream: _Optional[_Union[StreamId, _Mapping]] = ..., id: _Optional[str] = ..., partial: _Optional[_Union[_partials_pb2.Partial, _Mapping]] = ..., lane: _Optional[int] = ..., echoes: _Optional[_Iterable[_Union[Echo, _Mapping]]] = ...) -> None: ...

class Standing(_message.Message):
    __slots__ = ("name", "incarnation", "prefix", "lateness", "site", "barrier")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    LATENESS_FIELD_NUMBER: _ClassVar[int]
    SITE_FIELD_NUMBER: _ClassVar[int]
    BARRIER_FIELD_NUMBER: _ClassVar[int]
    name: str
    incarnation: int
    prefix: _partials_pb2.Prefix
    lateness: int
    site: str
    barrier: Barrier
    def __init__(self, name: _Optional[str] = ..., incarnation: _Optional[int] = ..., prefix: _Optional[_Union[_partials_pb2.Prefix, _Mapping]] = ..., lateness: _Optional[int] = ..., site: _Optional[str] = ..., barrier: _Optional[_Union[Barrier, _Mapping]] = ...) -> None: ...

class Barrier(_message.Message):
    __slots__ = ("number", "opening")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    OPENING_FIELD_NUMBER: _ClassVar[int]
    number: int
    opening: str
    def __init__(self, number: _Optional[int] = ..., opening: _Optional[str] = ...) -> None: ...

class Echo(_message.Message):
    __slots__ = ("term", "position", "name")
    TERM_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    term: int
    position: int
    name: str
    def __init__(self, term: _Optional[int] = ..., position: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class Named(_message.Message):
    __slots__ = ("name", "incarnation")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    name: str
    incarnation: int
    def __init__(self, name: _Optional[str] = ..., incarnation: _Optional[int] = ...) -> None: ...

class Probe(_message.Message):
    __slots__ = ("stream", "id", "heads", "interest", "lane", "version", "echoes", "brief")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    HEADS_FIELD_NUMBER: _ClassVar[int]
    INTEREST_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ECHOES_FIELD_NUMBER: _ClassVar[int]
    BRIEF_FIELD_NUMBER: _ClassVar[int]
    stream: StreamId
    id: str
    heads: _containers.RepeatedCompositeFieldContainer[Standing]
    interest: _containers.RepeatedCompositeFieldContainer[Named]
    lane: int
    version: int
    echoes: _containers.RepeatedCompositeFieldContainer[Echo]
    brief: bool
    def __init__(self, stream: _Optional[_Union[StreamId, _Mapping]] = ..., id: _Optional[str] = ..., heads: _Optional[_Iterable[_Union[Standing, _Mapping]]] = ..., interest: _Optional[_Iterable[_Union[Named, _Mapping]]] = ..., lane: _Optional[int] = ..., version: _Optional[int] = ..., echoes: _Optional[_Iterable[_Union[Echo, _Mapping]]] = ..., brief: _Optional[bool] = ...) -> None: ...

class Ask(_message.Message):
    __slots__ = ("stream", "sources", "lane", "version")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    stream: StreamId
    sources: _containers.RepeatedCompositeFieldContainer[Named]
    lane: int
    version: int
    def __init__(self, stream: _Optional[_Union[StreamId, _Mapping]] = ..., sources: _Optional[_Iterable[_Union[Named, _Mapping]]] = ..., lane: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("kind", "query", "edge", "version", "at_once")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[Change.Kind]
        KIND_ADD: _ClassVar[Change.Kind]
        KIND_REMOVE: _ClassVar[Change.Kind]
    KIND_UNSPECIFIED: Change.Kind
    KIND_ADD: Change.Kind
    KIND_REMOVE: Change.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    EDGE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    AT_ONCE_FIELD_NUMBER: _ClassVar[int]
    kind: Change.Kind
    query: str
    edge: int
    version: int
    at_once: bool
    def __init__(self, kind: _Optional[_Union[Change.Kind, str]] = ..., query: _Optional[str] = ..., edge: _Optional[int] = ..., version: _Optional[int] = ..., at_once: _Optional[bool] = ...) -> None: ...

class Tell(_message.Message):
    __slots__ = ("stream", "standings", "changes", "lane")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    STANDINGS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    stream: StreamId
    standings: _containers.RepeatedCompositeFieldContainer[Standing]
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    lane: int
    def __init__(self, stream: _Optional[_Union[StreamId, _Mapping]] = ..., standings: _Optional[_Iterable[_Union[Standing, _Mapping]]] = ..., changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ..., lane: _Optional[int] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("stream", "id")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    stream: StreamId
    id: str
    def __init__(self, stream: _Optional[_Union[StreamId, _Mapping]] = ..., id: _Optional[str] = ...) -> None: ...

class Resync(_message.Message):
    __slots__ = ("stream", "id", "standings", "changes", "lane")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    STANDINGS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    stream: StreamId
    id: str
    standings: _containers.RepeatedCompositeFieldContainer[Standing]
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    lane: int
    def __init__(self, stream: _Optional[_Union[StreamId, _Mapping]] = ..., id: _Optional[str] = ..., standings: _Optional[_Iterable[_Union[Standing, _Mapping]]] = ..., changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ..., lane: _Optional[int] = ...) -> None: ...

class Committed(_message.Message):
    __slots__ = ("name", "incarnation", "position")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    name: str
    incarnation: int
    position: int
    def __init__(self, name: _Optional[str] = ..., incarnation: _Optional[int] = ..., position: _Optional[int] = ...) -> None: ...

class Commit(_message.Message):
    __slots__ = ("stream", "committed", "watermark", "changes", "echo", "lanes", "version")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    ECHO_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    stream: StreamId
    committed: _containers.RepeatedCompositeFieldContainer[Committed]
    watermark: int
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    echo: Echo
    lanes: _containers.RepeatedScalarFieldContainer[int]
    version: int
    def __init__(self, stream: _Optional[_Union[StreamId, _Mapping]] = ..., committed: _Optional[_Iterable[_Union[Committed, _Mapping]]] = ..., watermark: _Optional[int] = ..., changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ..., echo: _Optional[_Union[Echo, _Mapping]] = ..., lanes: _Optional[_Iterable[int]] = ..., version: _Optional[int] = ...) -> None: ...

class Silent(_message.Message):
    __slots__ = ("child", "source", "generation")
    CHILD_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    child: str
    source: Standing
    generation: int
    def __init__(self, child: _Optional[str] = ..., source: _Optional[_Union[Standing, _Mapping]] = ..., generation: _Optional[int] = ...) -> None: ...

class Crowded(_message.Message):
    __slots__ = ("child", "source", "generation", "keys")
    CHILD_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    child: str
    source: Standing
    generation: int
    keys: int
    def __init__(self, child: _Optional[str] = ..., source: _Optional[_Union[Standing, _Mapping]] = ..., generation: _Optional[int] = ..., keys: _Optional[int] = ...) -> None: ...
