"""The parameters of a request for the stream of a topic. No I/O."""

from typing import NamedTuple

from starlette.datastructures import Headers, QueryParams

from oplogd.errors import FilterError, MessageError, PositionError
from oplogd.model import isolation
from oplogd.model.event_id import Millis
from oplogd.model.message_id import parse_message_id
from oplogd.model.shard import Shard
from oplogd.model.transaction import DEFAULT_ISOLATION, Isolation
from oplogd.stream.phases.start import TopicPosition
from oplogd.web.http.problem import Problem
from oplogd.web.oplog.stream_request import (
    FILTER_SLIPS,
    checkpoints_of,
    name_of,
    normalised,
    position_of,
    refuse_slips,
    shard_of,
)

_HEX_DIGITS = 40
_MOST_DIGITS = 13
# The other filters of the oplog are in FILTER_SLIPS.
_FILTERS = ("events", "ids")
_SLIPS = dict.fromkeys(("isolation", "isolation_level", "isolationlevel"), "isolation")


class TopicStreamRequest(NamedTuple):
    """Parameters of a consumer. ``position`` None: start with the next message."""

    position: TopicPosition | None
    checkpoints: bool
    name: str
    isolation: Isolation = DEFAULT_ISOLATION
    shard: Shard | None = None


def parse_topic_request(headers: Headers, query: QueryParams) -> TopicStreamRequest:
    """Raise Problem 400 for an invalid parameter."""
    for given in query:
        if given in _FILTERS or normalised(given) in FILTER_SLIPS:
            raise Problem(400, f"{given}: a topic has no filters")
    try:
        position = position_of(headers, query, parse_topic_position)
        shard = shard_of(query)
    except (PositionError, FilterError) as error:
        raise Problem(400, str(error)) from None
    return TopicStreamRequest(
        position,
        checkpoints_of(query),
        name_of(query),
        isolation_of(query) or DEFAULT_ISOLATION,
        shard,
    )


def isolation_of(query: QueryParams) -> Isolation | None:
    """Return the isolation of a reader, None without one.

    Raises Problem 400, also for an empty one, and for a parameter mistaken for it.
    """
    refuse_slips(query, _SLIPS)
    given = query.get("isolation")
    try:
        return None if given is None else isolation.isolation_of(given)
    except MessageError as error:
        raise Problem(400, str(error)) from None


def parse_topic_position(text: str) -> TopicPosition:
    """Read a position as a consumer sends it. Raises PositionError."""
    if len(text) <= _MOST_DIGITS and text.isascii() and text.isdecimal():
        return Millis(int(text))
    if len(text) != _HEX_DIGITS:
        raise PositionError(
            f"a message id is {_HEX_DIGITS} lower-case hexadecimal digits, or up to"
            f" {_MOST_DIGITS} decimal digits (milliseconds since 1970)"
        )
    return parse_message_id(text)
