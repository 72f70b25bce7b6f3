"""Errors as application/problem+json (RFC 9457)."""

from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
from fastapi import Response

from oplogd.decode.media_types import PROBLEM

COMMON_HEADERS = {
    "Cache-Control": "no-cache, no-store, must-revalidate",
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": ", ".join(
        f"Oplog-{name}" for name in ("Next", "Position", "Shard", "Store", "Term")
    ),
}

RETRY_AFTER = {"Retry-After": "1"}
STORE_AWAY = {"Retry-After": "5"}

# Longest sentence in characters. Some sentences repeat a part of the request, which may be long.
_MAX_DETAIL = 1000


class Problem(Exception):
    """Ends a request. ``detail``: a sentence for people. ``extra``: more members of the answer."""

    def __init__(
        self, status: int, detail: str, headers: Mapping[str, str] | None = None, **extra: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})
        self.extra = extra

    def response(self) -> Response:
        """Return the answer."""
        detail = self.detail
        body = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": detail if len(detail) <= _MAX_DETAIL else f"{detail[:_MAX_DETAIL]}…",
            **self.extra,
        }
        return Response(
            msgspec.json.encode(body), self.status, {**COMMON_HEADERS, **self.headers}, PROBLEM
        )


def without_folders(text: str, files: Iterable[Path | None]) -> str:
    """Replace the path of each file in ``text`` by its name.

    Clients must not learn the folders of the agent's machine. The log names whole paths.
    """
    for file in filter(None, files):
        for path in (str(file.absolute()), str(file)):
            text = text.replace(path, file.name)
    return text


def refuse_stopping(is_stopping: Callable[[], bool]) -> None:
    """Raise Problem 503 for a write while the agent stops."""
    if is_stopping():
        raise Problem(503, "the agent is stopping; send to another agent or try again", RETRY_AFTER)


def not_confirmed_at_stop() -> Problem:
    """Return the Problem 503 for a request that the end of the agent cut off."""
    return Problem(
        503,
        "not confirmed, it may still be stored: the agent is stopping; try again",
        RETRY_AFTER,
    )
