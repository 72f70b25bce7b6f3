"""The parameters of a request for the stream. No I/O."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

from starlette.datastructures import Headers, QueryParams

from oplogd.errors import FilterError, PositionError
from oplogd.model.event_id import Millis, Position, parse_position
from oplogd.model.operation import parse_timestamp
from oplogd.model.shard import Shard, parse_shard
from oplogd.stream.ring.filters import Filter, parse_filter
from oplogd.web.http.problem import Problem

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Parameters by the names, in lower case and with '_' for '-', that are easily mistaken for theirs.
# Proxies and pages add parameters of their own, which are ignored.
_SLIPS = {
    "last_event_id": "last_event_id",
    "lasteventid": "last_event_id",
    "last_event": "last_event_id",
    "lastevent": "last_event_id",
    "start": "last_event_id",
    "since": "since",
    "checkpoint": "checkpoint",
    "checkpoints": "checkpoint",
}
FILTER_SLIPS = {"type": "types", "types": "types", "parent": "parents", "parents": "parents"}
SHARD_SLIPS = dict.fromkeys(("shard", "shards"), "shard")
# Polyfills of EventSource use it.
_POLYFILL = "lastEventId"

_Position = TypeVar("_Position")


class StreamRequest(NamedTuple):
    """Parameters of a consumer. ``position`` None: start with the next operation."""

    position: Position | None
    filter: Filter
    checkpoints: bool
    name: str


def parse_stream_request(
    headers: Headers, query: QueryParams, max_filter_values: int
) -> StreamRequest:
    """Raise Problem 400 for an invalid parameter."""
    try:
        position = position_of(headers, query, parse_position)
        filter_ = filter_of(query, max_filter_values)
    except (PositionError, FilterError) as error:
        raise Problem(400, str(error)) from None
    return StreamRequest(position, filter_, checkpoints_of(query), name_of(query))


def filter_of(query: QueryParams, max_filter_values: int) -> Filter:
    """Return the filter of a query.

    Raises FilterError, and Problem 400 for a parameter mistaken for another.
    """
    refuse_slips(query, FILTER_SLIPS)
    return parse_filter(
        query.getlist("types"),
        query.getlist("parents"),
        max_filter_values,
        events=query.getlist("events"),
        ids=query.getlist("ids"),
        shard=shard_of(query),
    )


def shard_of(query: QueryParams) -> Shard | None:
    """Return the shard of a reader, None without one.

    Raises FilterError, and Problem 400 for a parameter mistaken for it.
    """
    refuse_slips(query, SHARD_SLIPS)
    given = query.getlist("shard")
    if len(given) > 1:
        raise FilterError("shard", "is given twice")
    return parse_shard(given[0]) if given and given[0] else None


def checkpoints_of(query: QueryParams) -> bool:
    """Return whether the consumer wants checkpoints. Raises Problem 400."""
    checkpoint = query.get("checkpoint", "0")
    if checkpoint not in ("0", "1", ""):
        raise Problem(400, "checkpoint: must be 1 or 0")
    return checkpoint == "1"


def name_of(query: QueryParams) -> str:
    """Return the name of the consumer, empty without one. Raises Problem 400."""
    name = query.get("name", "")
    if name and not _NAME.fullmatch(name):
        raise Problem(400, "name: must be 1 to 100 ASCII letters, digits, '.', '_' or '-'")
    return name


def position_of(
    headers: Headers, query: QueryParams, parse: Callable[[str], _Position]
) -> _Position | Millis | None:
    """Return the position to start at. The header wins: EventSource sends it when it reconnects.

    Polyfills of EventSource then send lastEventId, so this wins over last_event_id. ``parse`` reads
    an id. Raises PositionError, and Problem 400 for a parameter mistaken for another.
    """
    refuse_slips(query, _SLIPS)
    last = headers.get("last-event-id") or query.get(_POLYFILL) or query.get("last_event_id")
    if last:
        return parse(last)
    since = query.get("since")
    if not since:
        return None
    if since.isascii() and since.isdecimal() and len(since) <= 13:
        return Millis(int(since), chosen=True)
    if since[-6:-5] == " ":  # an unescaped '+' in the URL
        since = f"{since[:-6]}+{since[-5:]}"
    try:
        ms = (parse_timestamp(since) - _EPOCH) // (_EPOCH.resolution * 1000)
    except ValueError as error:
        raise PositionError(f"since: {error}; it may also be milliseconds since 1970") from None
    return Millis(max(0, ms), chosen=True)


def normalised(name: str) -> str:
    """Return the name of a parameter as tables of slips have it."""
    return name.lower().replace("-", "_")


def refuse_slips(query: QueryParams, slips: Mapping[str, str]) -> None:
    """Raise Problem 400 for a parameter whose right name is known."""
    for name in query:
        right = slips.get(normalised(name))
        if right is not None and name not in (right, _POLYFILL):
            raise Problem(400, f"{name}: there is no such parameter; the name is {right}")
