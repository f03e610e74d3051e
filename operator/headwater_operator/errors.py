"""What an API server refuses, as errors of the one tree. Nothing else in the operator reads status codes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headwater.errors import HeadwaterError, PermanentError, RetryableError

# A longer text than this is no message but a page of a proxy.
_SAID = 500


class ApiError(HeadwaterError):
    """What was tried, and what became of it: `code` is that of HTTP, or 0 if nothing was answered."""

    def __init__(self, what: str, code: int, reason: str, message: str) -> None:
        self.what, self.code, self.reason, self.message = what, code, reason, message
        super().__init__(f"{what}: {message}" + (f" ({code} {reason})".rstrip() if code else ""))


class Unavailable(ApiError, RetryableError):
    """No answer in time, or one that says to come again, `after` seconds if it said so."""

    after: float | None = None


class Conflict(ApiError, RetryableError):
    """Somebody else has written meanwhile: look again."""


class Gone(ApiError, RetryableError):
    """What was addressed is not there, or not any more, or its namespace is about to go: look again."""


class Forbidden(ApiError, PermanentError):
    """A right is missing."""


class Refused(ApiError, PermanentError):
    """The API server does not take what it was given."""


def error_of(what: str, code: int, body: bytes, headers: Mapping[str, str]) -> ApiError:
    """An answer that is none of success."""
    status = _status(body)
    reason = str(status.get("reason") or "")
    message = str(status.get("message") or body.decode(errors="replace").strip()[:_SAID] or "no message")
    causes = [cause.get("reason") for cause in (status.get("details") or {}).get("causes") or []]
    # It says "forbidden", but no right would help: nothing more is made in a namespace that goes.
    if code in (404, 410) or "NamespaceTerminating" in causes:
        return Gone(what, code, reason, message)
    if code == 409:
        return Conflict(what, code, reason, message)
    if code in (401, 403):
        return Forbidden(what, code, reason, f"{message}; grant the operator's account this right")
    if code in (408, 429) or code >= 500:
        found = Unavailable(what, code, reason, message)
        found.after = _after(headers, status)
        return found
    return Refused(what, code, reason, message)


def unanswered(what: str, error: Exception) -> Unavailable:
    """No answer at all: no connection, a time-out, a broken line."""
    return Unavailable(what, 0, "", f"the API server does not answer ({type(error).__name__}: {error})")


def _status(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _after(headers: Mapping[str, str], status: Mapping[str, Any]) -> float | None:
    given = headers.get("Retry-After") or (status.get("details") or {}).get("retryAfterSeconds")
    try:
        return None if given is None else max(float(given), 0.0)
    except ValueError:
        # A date, as HTTP allows and no API server gives.
        return None
