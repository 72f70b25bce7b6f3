"""Messages for tests of sinks."""

import json
from typing import Any

from oplog_pipe.message import Message, Op, version_of
from oplog_pipe.sinks.parts.ownership import Owner

# Time of creation of the folder, in ms since 1970.
CREATED = 1_700_000_000_000
OPLOG = "oplog"


def version(offset: int) -> int:
    return version_of(CREATED, offset)


def owner(pipe: str = "test", sink: str = "sink", newest: int = 100_000_000) -> Owner:
    """Return an owner. ``newest``: offset of the newest entry in its folder."""
    return Owner(pipe, sink, lambda: version(newest))


def message(
    offset: int,
    id: str = "a",
    op: Op = "insert",
    *,
    namespace: str = "video",
    data: Any = None,
    source: str = OPLOG,
) -> Message:
    """Return a message. Its data is ``{"n": offset}`` unless a test gives another one."""
    raw = json.dumps({"n": offset} if data is None else data).encode()
    return Message(
        op,
        1_415_271_879_041 + offset,
        namespace,
        raw,
        id=id,
        offset=offset,
        version=version(offset),
        source=source,
    )
