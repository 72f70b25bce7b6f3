"""The header Oplog-Lease: the fence of a publish."""

from fastapi import Request

from oplogd.errors import LeaseError, TopicError
from oplogd.model.lease import Fence, parse_fence
from oplogd.web.http.problem import Problem

HEADER = "Oplog-Lease"


def fence_of(request: Request) -> Fence | None:
    """Return the fence of a request, None if it has none. Raises Problem 400."""
    given = request.headers.getlist(HEADER)
    if not given:
        return None
    if len(given) > 1:
        raise Problem(400, f"{HEADER}: is given more than once")
    try:
        return parse_fence(given[0])
    except (LeaseError, TopicError) as error:
        raise Problem(400, str(error)) from None


def refuse_fence(request: Request, things: str) -> None:
    """Raise Problem 400 for a request with a fence. ``things``: requests without fences."""
    if HEADER in request.headers:
        raise Problem(400, f"{HEADER}: {things} are not fenced")
