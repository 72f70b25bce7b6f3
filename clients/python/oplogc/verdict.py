"""What an agent's answer to a batch means. No I/O."""

from dataclasses import dataclass, field
from typing import Any

import httpx

from oplogc.backoff import retry_after
from oplogc.stream import detail_of, shown


@dataclass(frozen=True)
class Delivered:
    """All of the batch is durable."""


@dataclass(frozen=True)
class Invalid:
    """Nothing was stored; ``bad`` names the lines at fault, from 0, each with its reason."""

    bad: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TooLarge:
    """Fewer at a time will do, unless it was a single one."""

    reason: str


@dataclass(frozen=True)
class Later:
    """Send the same batch again, not before ``seconds``."""

    reason: str
    seconds: float = 0.0
    status: int | None = None
    """Set when the agent refuses for a cause that does not pass by itself, such as a wrong password."""


Verdict = Delivered | Invalid | TooLarge | Later


def judge(response: httpx.Response, lines: int) -> Verdict:
    """``response`` must have been read; ``lines`` is how many operations were sent."""
    status = response.status_code
    if status in (200, 204):
        return Delivered() if _is_whole(response, lines) else Later(f"{shown(response.url)} is no agent", 0.0, status)
    detail = f"{detail_of(response)} (HTTP {status})"
    if status == 413:
        return TooLarge(detail)
    if status == 400 and (bad := _bad_lines(response, lines)):
        return Invalid(bad)
    if status >= 500 or status in (408, 425, 429):
        return Later(detail, retry_after(response.headers.get("retry-after")))
    return Later(detail, 0.0, status)


def _is_whole(response: httpx.Response, lines: int) -> bool:
    try:
        return bool(response.json()["ingested"] == lines)
    except (ValueError, KeyError, TypeError):
        return False


def _bad_lines(response: httpx.Response, lines: int) -> dict[int, str]:
    try:
        errors: list[dict[str, Any]] = response.json()["errors"]
        bad = {int(error["line"]) - 1: f"{error['field']}: {error['reason']}" for error in errors}
    except (ValueError, KeyError, TypeError):
        return {}
    return bad if all(0 <= line < lines for line in bad) else {}
