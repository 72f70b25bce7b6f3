"""The shown members of ``/status``, which may be absent, and their types. No I/O."""

from typing import Any

_MAX_SECONDS = 1e12
_LAG = {"operations": int, "seconds": float}
_FILTER = {"types": [str], "parents": [str], "left_out": int}
_CONSUMER = {
    "name": str,
    "address": str,
    "topic": str,
    "held_by": str | None,
    "filter": _FILTER,
    "phase": str,
    "lag": _LAG,
    "sent": int,
}
_STATUS = {
    "status": str,
    "reason": str,
    "version": str,
    "uptime_seconds": float,
    "store": {
        "kind": str,
        # Unknown for a while after a start, or with an unreachable store.
        "ops": int | None,
        "live": int | None,
        "deleted": int | None,
        "warnings": [str],
    },
    "queue_size": int,
    "queue_max_size": int,
    "clients": int,
    "consumer_lag": _LAG,
    "topics": {"count": int | None, "messages_published": int | None},
    "consumers": [_CONSUMER],
    "consumers_left_out": int,
}


def unexpected_member(status: object) -> str:
    """Return the path of the first member with an unexpected type. Empty: there is none."""
    return _unexpected(status, _STATUS, "")


def _unexpected(value: object, kind: Any, path: str) -> str:
    if isinstance(kind, dict):
        if not isinstance(value, dict):
            return path
        members = ((f"{path}.{name}".lstrip("."), name) for name in kind if name in value)
        found = (_unexpected(value[name], kind[name], place) for place, name in members)
    elif isinstance(kind, list):
        if not isinstance(value, list):
            return path
        found = (_unexpected(each, kind[0], f"{path}[{i}]") for i, each in enumerate(value))
    else:
        return "" if _is(value, kind) else path
    return next(filter(None, found), "")


def _is(value: object, kind: Any) -> bool:
    if isinstance(value, bool):
        return False
    if kind is float:  # JSON may have whole numbers there, and numbers too large for a float
        return isinstance(value, int | float) and abs(value) < _MAX_SECONDS
    return isinstance(value, kind)
