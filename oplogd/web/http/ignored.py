"""Unknown members of operations, in answers."""

from fastapi import Request

from oplogd.ingest.ignored import Ignored, IgnoredMembers


def told(request: Request, found: Ignored, ignored: IgnoredMembers) -> dict[str, str]:
    """Count the unknown members of stored operations, and return the header that names them."""
    if not found.operations:
        ignored.by_sender({})
        return {}
    host = request.client.host if request.client else "unknown"
    ignored.by_sender({host: found})
    return {"Oplog-Ignored": ", ".join(found.names)}
