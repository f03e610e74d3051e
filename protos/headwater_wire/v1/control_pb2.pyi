from headwater_wire.v1 import log_pb2 as _log_pb2
from headwater_wire.v1 import tree_pb2 as _tree_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Problem(_message.Message):
    __slots__ = ("field", "message", "remedy")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    field: str
    message: str
    remedy: str
    def __init__(self, field: _Optional[str] = ..., message: _Optional[str] = ..., remedy: _Optional[str] = ...) -> None: ...

class Problems(_message.Message):
    __slots__ = ("problems", "left_out")
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    problems: _containers.RepeatedCompositeFieldContainer[Problem]
    left_out: int
    def __init__(self, problems: _Optional[_Iterable[_Union[Problem, _Mapping]]] = ..., left_out: _Optional[int] = ...) -> None: ...

class Bounds(_message.Message):
    __slots__ = ("start", "end")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class AddQueryRequest(_message.Message):
    __slots__ = ("document",)
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    document: str
    def __init__(self, document: _Optional[str] = ...) -> None: ...

class AddQueryReply(_message.Message):
    __slots__ = ("id", "version", "edge", "first_window", "first_result")
    ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EDGE_FIELD_NUMBER: _ClassVar[int]
    FIRST_WINDOW_FIELD_NUMBER: _ClassVar[int]
    FIRST_RESULT_FIELD_NUMBER: _ClassVar[int]
    id: str
    version: int
    edge: int
    first_window: Bounds
    first_result: str
    def __init__(self, id: _Optional[str] = ..., version: _Optional[int] = ..., edge: _Optional[int] = ..., first_window: _Optional[_Union[Bounds, _Mapping]] = ..., first_result: _Optional[str] = ...) -> None: ...

class RemoveQueryRequest(_message.Message):
    __slots__ = ("id", "at_once")
    ID_FIELD_NUMBER: _ClassVar[int]
    AT_ONCE_FIELD_NUMBER: _ClassVar[int]
    id: str
    at_once: bool
    def __init__(self, id: _Optional[str] = ..., at_once: _Optional[bool] = ...) -> None: ...

class RemoveQueryReply(_message.Message):
    __slots__ = ("version", "edge")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EDGE_FIELD_NUMBER: _ClassVar[int]
    version: int
    edge: int
    def __init__(self, version: _Optional[int] = ..., edge: _Optional[int] = ...) -> None: ...

class ListQueriesRequest(_message.Message):
    __slots__ = ("after", "limit")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    after: int
    limit: int
    def __init__(self, after: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ListedQuery(_message.Message):
    __slots__ = ("id", "incarnation", "document", "state", "version", "since", "until", "central", "windows", "group", "lane", "lag")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[ListedQuery.State]
        STATE_ACTIVE: _ClassVar[ListedQuery.State]
        STATE_ENDING: _ClassVar[ListedQuery.State]
        STATE_ENDED: _ClassVar[ListedQuery.State]
    STATE_UNSPECIFIED: ListedQuery.State
    STATE_ACTIVE: ListedQuery.State
    STATE_ENDING: ListedQuery.State
    STATE_ENDED: ListedQuery.State
    ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    CENTRAL_FIELD_NUMBER: _ClassVar[int]
    WINDOWS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    id: str
    incarnation: int
    document: str
    state: ListedQuery.State
    version: int
    since: int
    until: int
    central: str
    windows: int
    group: int
    lane: int
    lag: int
    def __init__(self, id: _Optional[str] = ..., incarnation: _Optional[int] = ..., document: _Optional[str] = ..., state: _Optional[_Union[ListedQuery.State, str]] = ..., version: _Optional[int] = ..., since: _Optional[int] = ..., until: _Optional[int] = ..., central: _Optional[str] = ..., windows: _Optional[int] = ..., group: _Optional[int] = ..., lane: _Optional[int] = ..., lag: _Optional[int] = ...) -> None: ...

class ListQueriesReply(_message.Message):
    __slots__ = ("queries", "next", "version")
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    queries: _containers.RepeatedCompositeFieldContainer[ListedQuery]
    next: int
    version: int
    def __init__(self, queries: _Optional[_Iterable[_Union[ListedQuery, _Mapping]]] = ..., next: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ("after", "limit", "nodes_after")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    NODES_AFTER_FIELD_NUMBER: _ClassVar[int]
    after: int
    limit: int
    nodes_after: int
    def __init__(self, after: _Optional[int] = ..., limit: _Optional[int] = ..., nodes_after: _Optional[int] = ...) -> None: ...

class SourceStatus(_message.Message):
    __slots__ = ("name", "incarnation", "site", "state", "position", "largest", "lateness", "counted", "late", "rejected", "child")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[SourceStatus.State]
        STATE_LIVE: _ClassVar[SourceStatus.State]
        STATE_IDLE: _ClassVar[SourceStatus.State]
        STATE_RETIRED: _ClassVar[SourceStatus.State]
    STATE_UNSPECIFIED: SourceStatus.State
    STATE_LIVE: SourceStatus.State
    STATE_IDLE: SourceStatus.State
    STATE_RETIRED: SourceStatus.State
    NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SITE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    LARGEST_FIELD_NUMBER: _ClassVar[int]
    LATENESS_FIELD_NUMBER: _ClassVar[int]
    COUNTED_FIELD_NUMBER: _ClassVar[int]
    LATE_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    CHILD_FIELD_NUMBER: _ClassVar[int]
    name: str
    incarnation: int
    site: str
    state: SourceStatus.State
    position: int
    largest: int
    lateness: int
    counted: int
    late: int
    rejected: int
    child: str
    def __init__(self, name: _Optional[str] = ..., incarnation: _Optional[int] = ..., site: _Optional[str] = ..., state: _Optional[_Union[SourceStatus.State, str]] = ..., position: _Optional[int] = ..., largest: _Optional[int] = ..., lateness: _Optional[int] = ..., counted: _Optional[int] = ..., late: _Optional[int] = ..., rejected: _Optional[int] = ..., child: _Optional[str] = ...) -> None: ...

class NodeStatus(_message.Message):
    __slots__ = ("name", "child", "generation", "address", "state", "sources", "parent", "planned", "planned_parent", "capacity", "load", "heard_ago", "rate")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[NodeStatus.State]
        STATE_MEMBER: _ClassVar[NodeStatus.State]
        STATE_LEFT: _ClassVar[NodeStatus.State]
    STATE_UNSPECIFIED: NodeStatus.State
    STATE_MEMBER: NodeStatus.State
    STATE_LEFT: NodeStatus.State
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHILD_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PLANNED_FIELD_NUMBER: _ClassVar[int]
    PLANNED_PARENT_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    HEARD_AGO_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    name: str
    child: bool
    generation: int
    address: str
    state: NodeStatus.State
    sources: int
    parent: str
    planned: bool
    planned_parent: str
    capacity: float
    load: float
    heard_ago: int
    rate: float
    def __init__(self, name: _Optional[str] = ..., child: _Optional[bool] = ..., generation: _Optional[int] = ..., address: _Optional[str] = ..., state: _Optional[_Union[NodeStatus.State, str]] = ..., sources: _Optional[int] = ..., parent: _Optional[str] = ..., planned: _Optional[bool] = ..., planned_parent: _Optional[str] = ..., capacity: _Optional[float] = ..., load: _Optional[float] = ..., heard_ago: _Optional[int] = ..., rate: _Optional[float] = ...) -> None: ...

class Hold(_message.Message):
    __slots__ = ("reason", "message", "since", "source", "child", "node", "ends", "behind")
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REASON_UNSPECIFIED: _ClassVar[Hold.Reason]
        REASON_EXPECTED: _ClassVar[Hold.Reason]
        REASON_SILENT: _ClassVar[Hold.Reason]
        REASON_CHILD_SILENT: _ClassVar[Hold.Reason]
        REASON_NO_CHILD: _ClassVar[Hold.Reason]
        REASON_HORIZON: _ClassVar[Hold.Reason]
        REASON_FUTURE: _ClassVar[Hold.Reason]
        REASON_QUARANTINE: _ClassVar[Hold.Reason]
        REASON_BACKPRESSURE: _ClassVar[Hold.Reason]
        REASON_BEHIND: _ClassVar[Hold.Reason]
        REASON_REFUSED: _ClassVar[Hold.Reason]
    REASON_UNSPECIFIED: Hold.Reason
    REASON_EXPECTED: Hold.Reason
    REASON_SILENT: Hold.Reason
    REASON_CHILD_SILENT: Hold.Reason
    REASON_NO_CHILD: Hold.Reason
    REASON_HORIZON: Hold.Reason
    REASON_FUTURE: Hold.Reason
    REASON_QUARANTINE: Hold.Reason
    REASON_BACKPRESSURE: Hold.Reason
    REASON_BEHIND: Hold.Reason
    REASON_REFUSED: Hold.Reason
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    CHILD_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    reason: Hold.Reason
    message: str
    since: int
    source: _tree_pb2.Named
    child: str
    node: str
    ends: int
    behind: int
    def __init__(self, reason: _Optional[_Union[Hold.Reason, str]] = ..., message: _Optional[str] = ..., since: _Optional[int] = ..., source: _Optional[_Union[_tree_pb2.Named, _Mapping]] = ..., child: _Optional[str] = ..., node: _Optional[str] = ..., ends: _Optional[int] = ..., behind: _Optional[int] = ...) -> None: ...

class Totals(_message.Message):
    __slots__ = ("sources", "idle", "retired", "accepted", "counted", "late", "rejected", "windows", "refused", "quarantined", "unassigned")
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    IDLE_FIELD_NUMBER: _ClassVar[int]
    RETIRED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    COUNTED_FIELD_NUMBER: _ClassVar[int]
    LATE_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    WINDOWS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    UNASSIGNED_FIELD_NUMBER: _ClassVar[int]
    sources: int
    idle: int
    retired: int
    accepted: int
    counted: int
    late: int
    rejected: int
    windows: int
    refused: int
    quarantined: int
    unassigned: int
    def __init__(self, sources: _Optional[int] = ..., idle: _Optional[int] = ..., retired: _Optional[int] = ..., accepted: _Optional[int] = ..., counted: _Optional[int] = ..., late: _Optional[int] = ..., rejected: _Optional[int] = ..., windows: _Optional[int] = ..., refused: _Optional[int] = ..., quarantined: _Optional[int] = ..., unassigned: _Optional[int] = ...) -> None: ...

class DegradedQuery(_message.Message):
    __slots__ = ("query", "reason", "waiting", "sources")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    query: str
    reason: str
    waiting: int
    sources: _containers.RepeatedCompositeFieldContainer[_tree_pb2.Named]
    def __init__(self, query: _Optional[str] = ..., reason: _Optional[str] = ..., waiting: _Optional[int] = ..., sources: _Optional[_Iterable[_Union[_tree_pb2.Named, _Mapping]]] = ...) -> None: ...

class QuarantinedSource(_message.Message):
    __slots__ = ("name", "reason")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    reason: str
    def __init__(self, name: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class SinkStatus(_message.Message):
    __slots__ = ("name", "behind", "delivered", "failure")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    name: str
    behind: int
    delivered: int
    failure: str
    def __init__(self, name: _Optional[str] = ..., behind: _Optional[int] = ..., delivered: _Optional[int] = ..., failure: _Optional[str] = ...) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("topology", "expected", "started", "position", "watermark", "largest", "version", "queries", "totals", "degraded", "sinks", "sources", "next", "nodes", "quarantined", "unmerged", "generation", "digest", "next_nodes", "now", "still", "behind_clock", "holds", "holding", "live", "short_for", "rate", "merge_stalled", "merge_obstacle")
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LARGEST_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_FIELD_NUMBER: _ClassVar[int]
    SINKS_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    UNMERGED_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    NEXT_NODES_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    STILL_FIELD_NUMBER: _ClassVar[int]
    BEHIND_CLOCK_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    HOLDING_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    SHORT_FOR_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    MERGE_STALLED_FIELD_NUMBER: _ClassVar[int]
    MERGE_OBSTACLE_FIELD_NUMBER: _ClassVar[int]
    topology: str
    expected: int
    started: bool
    position: int
    watermark: int
    largest: int
    version: int
    queries: int
    totals: Totals
    degraded: _containers.RepeatedCompositeFieldContainer[DegradedQuery]
    sinks: _containers.RepeatedCompositeFieldContainer[SinkStatus]
    sources: _containers.RepeatedCompositeFieldContainer[SourceStatus]
    next: int
    nodes: _containers.RepeatedCompositeFieldContainer[NodeStatus]
    quarantined: _containers.RepeatedCompositeFieldContainer[QuarantinedSource]
    unmerged: int
    generation: int
    digest: str
    next_nodes: int
    now: int
    still: int
    behind_clock: int
    holds: _containers.RepeatedCompositeFieldContainer[Hold]
    holding: int
    live: int
    short_for: int
    rate: float
    merge_stalled: int
    merge_obstacle: str
    def __init__(self, topology: _Optional[str] = ..., expected: _Optional[int] = ..., started: _Optional[bool] = ..., position: _Optional[int] = ..., watermark: _Optional[int] = ..., largest: _Optional[int] = ..., version: _Optional[int] = ..., queries: _Optional[int] = ..., totals: _Optional[_Union[Totals, _Mapping]] = ..., degraded: _Optional[_Iterable[_Union[DegradedQuery, _Mapping]]] = ..., sinks: _Optional[_Iterable[_Union[SinkStatus, _Mapping]]] = ..., sources: _Optional[_Iterable[_Union[SourceStatus, _Mapping]]] = ..., next: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[NodeStatus, _Mapping]]] = ..., quarantined: _Optional[_Iterable[_Union[QuarantinedSource, _Mapping]]] = ..., unmerged: _Optional[int] = ..., generation: _Optional[int] = ..., digest: _Optional[str] = ..., next_nodes: _Optional[int] = ..., now: _Optional[int] = ..., still: _Optional[int] = ..., behind_clock: _Optional[int] = ..., holds: _Optional[_Iterable[_Union[Hold, _Mapping]]] = ..., holding: _Optional[int] = ..., live: _Optional[int] = ..., short_for: _Optional[int] = ..., rate: _Optional[float] = ..., merge_stalled: _Optional[int] = ..., merge_obstacle: _Optional[str] = ...) -> None: ...

class SkipRequest(_message.Message):
    __slots__ = ("source", "seq")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    source: _tree_pb2.Named
    seq: int
    def __init__(self, source: _Optional[_Union[_tree_pb2.Named, _Mapping]] = ..., seq: _Optional[int] = ...) -> None: ...

class SkipReply(_message.Message):
    __slots__ = ("source", "position", "counted_to")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    COUNTED_TO_FIELD_NUMBER: _ClassVar[int]
    source: _tree_pb2.Named
    position: int
    counted_to: int
    def __init__(self, source: _Optional[_Union[_tree_pb2.Named, _Mapping]] = ..., position: _Optional[int] = ..., counted_to: _Optional[int] = ...) -> None: ...

class RetireRequest(_message.Message):
    __slots__ = ("source",)
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    source: _tree_pb2.Named
    def __init__(self, source: _Optional[_Union[_tree_pb2.Named, _Mapping]] = ...) -> None: ...

class RetireReply(_message.Message):
    __slots__ = ("source", "counted_to")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    COUNTED_TO_FIELD_NUMBER: _ClassVar[int]
    source: _tree_pb2.Named
    counted_to: int
    def __init__(self, source: _Optional[_Union[_tree_pb2.Named, _Mapping]] = ..., counted_to: _Optional[int] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("source", "child")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    CHILD_FIELD_NUMBER: _ClassVar[int]
    source: str
    child: str
    def __init__(self, source: _Optional[str] = ..., child: _Optional[str] = ...) -> None: ...

class AssignRequest(_message.Message):
    __slots__ = ("assignments",)
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    assignments: _containers.RepeatedCompositeFieldContainer[Assignment]
    def __init__(self, assignments: _Optional[_Iterable[_Union[Assignment, _Mapping]]] = ...) -> None: ...

class SpecPart(_message.Message):
    __slots__ = ("generation", "digest", "expected", "queries", "nodes", "rates", "owner")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    RATES_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    generation: int
    digest: str
    expected: int
    queries: _containers.RepeatedScalarFieldContainer[str]
    nodes: _containers.RepeatedCompositeFieldContainer[_log_pb2.PlannedNode]
    rates: _containers.RepeatedCompositeFieldContainer[_log_pb2.PlannedRate]
    owner: str
    def __init__(self, generation: _Optional[int] = ..., digest: _Optional[str] = ..., expected: _Optional[int] = ..., queries: _Optional[_Iterable[str]] = ..., nodes: _Optional[_Iterable[_Union[_log_pb2.PlannedNode, _Mapping]]] = ..., rates: _Optional[_Iterable[_Union[_log_pb2.PlannedRate, _Mapping]]] = ..., owner: _Optional[str] = ...) -> None: ...

class AppliedQuery(_message.Message):
    __slots__ = ("id", "problems")
    ID_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    id: str
    problems: Problems
    def __init__(self, id: _Optional[str] = ..., problems: _Optional[_Union[Problems, _Mapping]] = ...) -> None: ...

class ApplySpecReply(_message.Message):
    __slots__ = ("version", "queries")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    version: int
    queries: _containers.RepeatedCompositeFieldContainer[AppliedQuery]
    def __init__(self, version: _Optional[int] = ..., queries: _Optional[_Iterable[_Union[AppliedQuery, _Mapping]]] = ...) -> None: ...

class AssignReply(_message.Message):
    __slots__ = ("moved",)
    MOVED_FIELD_NUMBER: _ClassVar[int]
    moved: int
    def __init__(self, moved: _Optional[int] = ...) -> None: ...

class ReleaseReply(_message.Message):
    __slots__ = ("released", "source", "counted_to")
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    COUNTED_TO_FIELD_NUMBER: _ClassVar[int]
    released: bool
    source: _tree_pb2.Named
    counted_to: int
    def __init__(self, released: _Optional[bool] = ..., source: _Optional[_Union[_tree_pb2.Named, _Mapping]] = ..., counted_to: _Optional[int] = ...) -> None: ...
