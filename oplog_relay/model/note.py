"""The text a leader leaves with its lease, for ``oplog-relay status``. No I/O."""

import json
from typing import Any
from uuid import UUID

from oplog_relay.model.events import MeterRead
from oplog_relay.model.place import OutboxPlace
from oplog_relay.model.row import shown
from oplog_relay.model.state import Blocked

# An agent takes 8 KiB.
_MAX_BYTES = 8_000
_MAX_BLOCKED = 10
_MAX_REASON = 200


def note(
    host: str,
    pid: int,
    reading: MeterRead,
    blocked: tuple[Blocked, ...],
    leader_id: UUID | None = None,
    place: OutboxPlace | None = None,
) -> str:
    """Return the note as JSON. Excess blocked keys are left out, but counted."""
    listed = [_blocked(each) for each in blocked[:_MAX_BLOCKED]]
    while True:
        text = json.dumps(
            {
                "host": host,
                "pid": pid,
                **({"leader_id": str(leader_id)} if leader_id else {}),
                **(place.members() if place else {}),
                "in_flight": reading.in_flight,
                "relayed": reading.relayed,
                "rate": round(reading.rate, 1),
                "backlog": reading.backlog,
                "oldest_seconds": reading.oldest_seconds,
                "blocked": listed,
                "blocked_keys": len(blocked),
            }
        )
        if len(text) <= _MAX_BYTES or not listed:
            return text
        listed.pop()


def read_note(text: str) -> dict[str, Any]:
    """Return the members of a leader's note. None of another text."""
    try:
        note = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return note if isinstance(note, dict) else {}


def _blocked(blocked: Blocked) -> dict[str, Any]:
    return {
        "id": blocked.id,
        "topic": shown(blocked.topic),
        "key": shown(blocked.key),
        "reason": blocked.reason[:_MAX_REASON],
        "attempts": blocked.attempts,
        "since": blocked.since.isoformat(timespec="seconds"),
    }
