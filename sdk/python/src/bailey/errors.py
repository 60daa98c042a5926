"""What can go wrong, as classes.

Every error of the server is a :class:`BaileyError`: ``reason`` is a word that
programs can branch on, ``remedy`` says what to do about it, and ``request_id``
finds the request in the server's log.
"""

from __future__ import annotations

import base64
from typing import Any, Dict, Mapping, Optional, Type

__all__ = [
    "BaileyError",
    "AlreadyExists",
    "Canceled",
    "CommandFailed",
    "DeadlineExceeded",
    "FailedPrecondition",
    "InternalError",
    "InvalidArgument",
    "NotFound",
    "PermissionDenied",
    "ResourceExhausted",
    "ServerNotFound",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
]


class BaileyError(Exception):
    """An error of the server, or of the way to it."""

    code = "unknown"

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        remedy: str = "",
        retryable: bool = False,
        metadata: Optional[Mapping[str, str]] = None,
        request_id: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.remedy = remedy
        self.retryable = retryable
        self.metadata: Dict[str, str] = dict(metadata or {})
        self.request_id = request_id

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})" if self.remedy else self.message


class InvalidArgument(BaileyError):
    """The request can never succeed as it is."""

    code = "invalid_argument"


class NotFound(BaileyError):
    """There is no such thing, or it belongs to somebody else."""

    code = "not_found"


class AlreadyExists(BaileyError):
    """There is such a thing already."""

    code = "already_exists"


class FailedPrecondition(BaileyError):
    """Something else must be done first."""

    code = "failed_precondition"


class Unauthenticated(BaileyError):
    """The token is missing, unknown, revoked or expired."""

    code = "unauthenticated"


class PermissionDenied(BaileyError):
    """The token does not allow this."""

    code = "permission_denied"


class ResourceExhausted(BaileyError):
    """A limit was met: of the owner, or of the machine."""

    code = "resource_exhausted"


class Unavailable(BaileyError):
    """The server cannot be reached, or shuts down. Sandboxes go on."""

    code = "unavailable"


class Unimplemented(BaileyError):
    """This server, or its machine, does not do that."""

    code = "unimplemented"


class DeadlineExceeded(BaileyError):
    """The time of the request is over."""

    code = "deadline_exceeded"


class Canceled(BaileyError):
    """The request was given up."""

    code = "canceled"


class InternalError(BaileyError):
    """Something is wrong in the server; its log says what."""

    code = "internal"


class ServerNotFound(BaileyError):
    """No server is configured, and none could be started."""

    code = "server_not_found"


class CommandFailed(BaileyError):
    """A command that had to succeed did not. ``result`` has all of it."""

    code = "command_failed"

    def __init__(self, message: str, result: Any) -> None:
        super().__init__(message, reason="command_failed")
        self.result = result


_CLASSES: Dict[str, Type[BaileyError]] = {
    c.code: c
    for c in (
        InvalidArgument,
        NotFound,
        AlreadyExists,
        FailedPrecondition,
        Unauthenticated,
        PermissionDenied,
        ResourceExhausted,
        Unavailable,
        Unimplemented,
        DeadlineExceeded,
        Canceled,
        InternalError,
    )
}
_CLASSES["out_of_range"] = InvalidArgument
_CLASSES["aborted"] = FailedPrecondition

# Codes of google.rpc.Status, which REST answers with.
_NUMBERS = {
    1: "canceled",
    3: "invalid_argument",
    4: "deadline_exceeded",
    5: "not_found",
    6: "already_exists",
    7: "permission_denied",
    8: "resource_exhausted",
    9: "failed_precondition",
    10: "aborted",
    11: "out_of_range",
    12: "unimplemented",
    13: "internal",
    14: "unavailable",
    16: "unauthenticated",
}


def from_answer(answer: Mapping[str, Any], status: int = 0) -> BaileyError:
    """Make an error of what the server answered, in Connect's form or REST's."""
    code = answer.get("code", "")
    if isinstance(code, int):
        code = _NUMBERS.get(code, "unknown")
    problem: Mapping[str, Any] = {}
    for detail in answer.get("details") or ():
        if detail.get("type") == "bailey.v1.Problem":
            problem = detail.get("debug") or _decode(detail.get("value", ""))
        elif str(detail.get("@type", "")).endswith("/bailey.v1.Problem"):
            problem = detail
    message = answer.get("message") or f"the server answered with status {status}"
    return _CLASSES.get(code, BaileyError)(
        str(message),
        reason=problem.get("reason", "") or str(code),
        remedy=problem.get("remedy", ""),
        retryable=bool(problem.get("retryable", code == "unavailable")),
        metadata=problem.get("metadata"),
        request_id=problem.get("requestId", ""),
    )


def _decode(value: str) -> Dict[str, Any]:
    """Read the fields of a bailey.v1.Problem in its binary form."""
    data = base64.b64decode(value + "=" * (-len(value) % 4))
    fields: Dict[str, Any] = {"metadata": {}}
    for number, content in _fields(data):
        if number in (1, 2, 5) and isinstance(content, bytes):
            name = {1: "reason", 2: "remedy", 5: "requestId"}[number]
            fields[name] = content.decode("utf-8", "replace")
        elif number == 3:
            fields["retryable"] = bool(content)
        elif number == 4 and isinstance(content, bytes):
            entry = {n: c.decode("utf-8", "replace") for n, c in _fields(content) if isinstance(c, bytes)}
            fields["metadata"][entry.get(1, "")] = entry.get(2, "")
    return fields


def _fields(data: bytes) -> Any:
    """Yield the fields of a protobuf message that has varints and bytes only."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 2:
            length = varint()
            yield key >> 3, data[at : at + length]
            at += length
        else:
            return
