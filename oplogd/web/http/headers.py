"""The headers of several endpoints. No I/O."""

from collections.abc import Collection, Iterator

from fastapi import Request

from oplog_kit.wording import shortened
from oplogd.errors import LeaseError, TopicError
from oplogd.ingest.ignored import Ignored, IgnoredMembers
from oplogd.model.lease import Fence, parse_fence
from oplogd.model.shard import Shard
from oplogd.web.http.problem import Problem

FENCE = "Oplog-Lease"
TERM = "Oplog-Term"
# Clients know by it that the agent knows shards.
SHARD = "Oplog-Shard"

# Items of an Accept header with the wanted type. Clients send one.
_MAX_ITEMS = 20


def accepts(header: str, media_type: str) -> bool:
    """Return whether an Accept header names ``media_type`` itself.

    A wildcard does not count, nor does ``q=0``. The first 20 items with the type are parsed:
    a header of any size costs one search.
    """
    return any(_quality(item, media_type) > 0 for item in _items_with(media_type, header.lower()))


def media_type(header: str) -> str:
    """Return the type of a Content-Type header without its parameters."""
    return header.partition(";")[0].strip().lower()


def not_understood(given: str, known: Collection[str]) -> Problem:
    """Return the Problem for a media type other than ``known``. Empty: it is missing."""
    use = f"use {' or '.join(known)}"
    if not given:
        return Problem(415, f"Content-Type is missing; {use}")
    return Problem(415, f"Content-Type {shortened(given)} is not understood; {use}")


def _items_with(name: str, header: str) -> Iterator[str]:
    end = 0
    for _ in range(_MAX_ITEMS):
        at = header.find(name, end)
        if at < 0:
            return
        begin = header.rfind(",", end, at) + 1 or end
        end = header.find(",", at)
        if end < 0:
            end = len(header)
        yield header[begin:end]


def _quality(item: str, media_type: str) -> float:
    """Return the quality of an item, 0 if it is of another type."""
    name, *parameters = (part.strip() for part in item.split(";", _MAX_ITEMS))
    if name != media_type:
        return 0.0
    quality = 1.0
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip() == "q":
            try:
                quality = float(value)
            except ValueError:
                quality = 0.0
    return quality


def fence_of(request: Request) -> Fence | None:
    """Return the fence of a request, None if it has none. Raises Problem 400."""
    given = request.headers.getlist(FENCE)
    if not given:
        return None
    if len(given) > 1:
        raise Problem(400, f"{FENCE}: is given more than once")
    try:
        return parse_fence(given[0])
    except (LeaseError, TopicError) as error:
        raise Problem(400, str(error)) from None


def refuse_fence(request: Request, plural: str) -> None:
    """Raise Problem 400 for a request with a fence. ``plural``: requests without fences."""
    if FENCE in request.headers:
        raise Problem(400, f"{FENCE}: {plural} are not fenced")


def note_ignored(request: Request, found: Ignored, ignored: IgnoredMembers) -> dict[str, str]:
    """Count the unknown members of stored operations, and return the header with their names."""
    if not found.operations:
        ignored.by_sender({})
        return {}
    host = request.client.host if request.client else "unknown"
    ignored.by_sender({host: found})
    return {"Oplog-Ignored": ", ".join(found.names)}


def shard_header(shard: Shard | None) -> dict[str, str]:
    """Return the header of an answer to a reader of a shard. Without a shard there is none."""
    return {} if shard is None else {SHARD: str(shard)}
