"""The objects of a cluster: what is there, what is put there, what is taken away.

Objects are documents as the API server writes them. Whatever the operator writes, it applies: the same
document twice changes nothing, and what it no longer names is dropped.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from headwater_operator import kinds, names
from headwater_operator.connection import APPLY, Connection, Request
from headwater_operator.errors import ApiError, Conflict, Gone
from headwater_operator.kinds import Kind, kind_of

log = logging.getLogger(__name__)

Document = dict[str, Any]
Documents = list[Document]

# Objects in one answer to a list.
PAGE = 500
# An API server takes no longer message of an event, in bytes, and forgets an event after an hour.
MESSAGE_LIMIT, EVENT_SECONDS = 1024, 3600.0
# Events that are remembered so that the same one again is counted.
EVENTS = 1024
# The same event again is written at once this often, and then only once in so many seconds: what fails in a
# loop must not become a stream of writes.
EAGER, SPACING = 10, 60.0


@dataclass(slots=True)
class _Told:
    count: int
    first: float
    written: float


class Cluster:
    """Called from any thread."""

    def __init__(self, connection: Connection, clock: Callable[[], float] = time.time) -> None:
        self.connection, self._clock = connection, clock
        self._told = OrderedDict[tuple[str, ...], _Told]()
        self._lock = threading.Lock()

    @property
    def reads(self) -> int:
        return self.connection.counted(reads=True)

    @property
    def writes(self) -> int:
        return self.connection.counted(reads=False)

    def list(self, kind: Kind, namespace: str | None = None, selector: str | None = None) -> Documents:
        """All of a kind in a namespace, or in all of them, that have the labels asked for."""
        try:
            return self._pages(kind, namespace, selector, PAGE)
        except Gone as error:
            if error.code != 410:
                raise
            # It took so long that the later pages are of a state that is no longer kept.
            return self._pages(kind, namespace, selector, None)

    def get(self, kind: Kind, namespace: str | None, name: str) -> Document | None:
        try:
            return self._call("GET", kind, kind.object(namespace, name), "get")
        except Gone:
            return None

    def apply(self, manifest: Mapping[str, Any]) -> Document:
        """Have an object as its manifest says, made or changed; gives it as it is kept."""
        kind, metadata = kind_of(manifest), manifest["metadata"]
        path = kind.object(metadata.get("namespace"), metadata["name"])
        return self._apply(kind, path, manifest, "patch")

    def delete(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        grace: int | None = None,
    ) -> bool:
        """Take an object away, if it still is the one with that uid; gives whether it was there."""
        options: Document = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
        }
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        try:
            self._call("DELETE", kind, kind.object(namespace, name), "delete", body=options)
        except Gone:
            return False
        except Conflict:
            # Another of that name: the one that was meant is gone.
            if uid is None:
                raise
            return False
        return True

    def set_status(self, kind: Kind, namespace: str | None, name: str, status: Mapping[str, Any]) -> bool:
        """Have an object with exactly this status; gives whether it was there."""
        metadata = {"name": name, **({"namespace": namespace} if kind.namespaced else {})}
        document = {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": metadata,
            "status": status,
        }
        try:
            self._apply(kind, kind.object(namespace, name, "status"), document, "patch")
        except Gone:
            return False
        return True

    def event(
        self, regarding: Mapping[str, Any], reason: str, message: str, *, warning: bool = False
    ) -> None:
        """Tell whoever looks at an object. The same again raises a count; what cannot be told is logged."""
        metadata = regarding["metadata"]
        kind = "Warning" if warning else "Normal"
        message = message.encode()[:MESSAGE_LIMIT].decode(errors="ignore")
        key = str(metadata.get("uid")), kind, reason, message
        digest = hashlib.sha256("\0".join(key).encode()).hexdigest()[:16]
        namespace = metadata.get("namespace") or "default"
        name = f"{metadata['name'][:200]}.{digest}"
        try:
            told = self._counted(key, namespace, name)
            if told is None:
                return
            self.apply(
                {
                    "apiVersion": kinds.EVENT.api_version,
                    "kind": kinds.EVENT.name,
                    "metadata": {"name": name, "namespace": namespace},
                    "involvedObject": {
                        "apiVersion": regarding["apiVersion"],
                        "kind": regarding["kind"],
                        "name": metadata["name"],
                        **{field: metadata[field] for field in ("namespace", "uid") if field in metadata},
                    },
                    "type": kind,
                    "reason": reason,
                    "message": message,
                    "count": told.count,
                    "firstTimestamp": _stamp(told.first),
                    "lastTimestamp": _stamp(told.written),
                    "source": {"component": names.MANAGER},
                    "reportingComponent": names.MANAGER,
                }
            )
        except ApiError as error:
            log.warning("an event could not be told", extra={"reason": reason, "problem": str(error)})

    def serves(self, kind: Kind) -> bool:
        """Whether the API server has this kind at all."""
        try:
            found = self._call("GET", kind, kind.root(), "get")
        except Gone:
            return False
        return any(each["name"] == kind.plural for each in found["resources"])

    def allows(self, verb: str, kind: Kind, namespace: str | None = None, subresource: str = "") -> bool:
        """Whether this account may do something, in a namespace or in all of them."""
        asked = {
            "verb": verb,
            "group": kind.group,
            "version": kind.version,
            "resource": kind.plural,
            "subresource": subresource,
            "namespace": namespace or "",
        }
        review = kinds.ACCESS_REVIEW
        document = {
            "apiVersion": review.api_version,
            "kind": review.name,
            "spec": {"resourceAttributes": asked},
        }
        found = self._call("POST", review, review.collection(), "review", body=document)
        return bool(found["status"]["allowed"])

    def _counted(self, key: tuple[str, ...], namespace: str, name: str) -> _Told | None:
        """The event as it is to be written; None if it was written a moment ago."""
        now = self._clock()
        with self._lock:
            told = self._told.pop(key, None)
            if told is not None and now - told.written < EVENT_SECONDS:
                told.count += 1
                self._told[key] = told
                if told.count > EAGER and now - told.written < SPACING:
                    return None
                told.written = now
                return _Told(told.count, told.first, now)
        # Not by this process; maybe by the one before it.
        found = self.get(kinds.EVENT, namespace, name) or {}
        since = found.get("firstTimestamp")
        first = datetime.fromisoformat(since).timestamp() if since else now
        told = _Told((found.get("count") or 0) + 1, first, now)
        with self._lock:
            self._told[key] = told
            while len(self._told) > EVENTS:
                self._told.popitem(last=False)
        return told

    def _pages(self, kind: Kind, namespace: str | None, selector: str | None, page: int | None) -> Documents:
        found: Documents = []
        query: dict[str, str | int] = {} if selector is None else {"labelSelector": selector}
        if page is not None:
            query["limit"] = page
        while True:
            answer = self._call("GET", kind, kind.collection(namespace), "list", query)
            # The objects of a list do not say what they are.
            said = {"apiVersion": kind.api_version, "kind": kind.name}
            found += [{**said, **each} for each in answer.get("items") or []]
            if not (more := answer["metadata"].get("continue")):
                return found
            query["continue"] = more

    def _apply(self, kind: Kind, path: str, document: Mapping[str, Any], verb: str) -> Document:
        query = {"fieldManager": names.MANAGER, "force": "true"}
        found: Document = self.connection.call(
            Request("PATCH", path, verb, kind.resource, query, document, APPLY)
        )
        return found

    def _call(
        self,
        method: str,
        kind: Kind,
        path: str,
        verb: str,
        query: Mapping[str, str | int] | None = None,
        body: Any = None,
    ) -> Document:
        found: Document = self.connection.call(Request(method, path, verb, kind.resource, query, body))
        return found


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
