"""Messages for tests."""

import json
from typing import Any

from oplog_pipe.message import Message, Op
from oplog_pipe.sinks.parts.ownership import Owner

# The version of offset 0.
BASE = 1_790_000_000_000 << 20


def message(
    offset: int,
    id: str = "a",
    data: Any = None,
    *,
    op: Op = "insert",
    namespace: str = "video",
    source: str = "system/oplog",
    timestamp: int = 1_415_271_879_041,
) -> Message:
    """Return a message. ``data`` None: an operation."""
    if data is None:
        data = {"timestamp": "2014-11-06T11:04:39.041Z", "parents": [], "type": namespace, "id": id}
    raw = json.dumps(data).encode()
    version = BASE + offset
    return Message(
        op, timestamp, namespace, raw, id=id, offset=offset, version=version, source=source
    )


def owner_at(offset: int) -> Owner:
    """Return an owner in a folder with this newest offset."""
    return Owner("test", "sink", lambda: BASE + offset)
