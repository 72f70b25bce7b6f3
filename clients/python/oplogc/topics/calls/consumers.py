"""Requests about named consumers, and the meaning of their answers. No I/O."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from oplogc.http.address import check_consumer_name
from oplogc.http.answers import Answer
from oplogc.topics.calls.call import Call, members_of, nothing, reader
from oplogc.topics.calls.topics import Isolation, check_isolation
from oplogc.topics.calls.transactions import refusal as refusal_of_others
from oplogc.topics.messages.names import topic_name
from oplogc.wire.errors import OplogError, RefusedError, StaleTermError
from oplogc.wire.events import checked_text, position_of
from oplogc.wire.shard import MAX_SHARDS

PATH = "/v1/consumers"
# Positions with names.
WORDS = ("now", "copy")
_KIND = "named consumers"


class ListedConsumer(NamedTuple):
    """A named consumer. ``log``: ``system/oplog``, or a topic. ``types``, ``parents``: its filter.

    ``isolation``: of a topic, see ``TopicConsumer``.
    """

    name: str
    log: str
    types: tuple[str, ...]
    parents: tuple[str, ...]
    isolation: str
    created: datetime


class ShardStatus(NamedTuple):
    """The position of one shard: everything up to there is acknowledged.

    ``term``: of its last reader. ``reader``: address of this reader. Empty: there was none since
    the consumer was created or moved.
    ``acknowledged``: time of the last acknowledgement. ``lag``: entries behind the position.
    ``lag_seconds``: age of the oldest of them. ``estimated``: whether the lag is the share of one
    shard in the entries of all. ``left_seconds``: time until the oldest leaves the log. None: none
    leaves soon.
    """

    shard: int
    position: str
    term: int
    reader: str
    acknowledged: datetime | None
    lag: int
    lag_seconds: float
    estimated: bool
    left_seconds: float | None = None


class ConsumerStatus(NamedTuple):
    """A named consumer with the positions of its shards. The others: see ``ListedConsumer``."""

    name: str
    log: str
    types: tuple[str, ...]
    parents: tuple[str, ...]
    isolation: str
    created: datetime
    shards: tuple[ShardStatus, ...]


def path(name: str) -> str:
    """Return the path of a consumer. Raise ValueError."""
    if check_consumer_name(name) in (".", ".."):
        raise ValueError("name: must not be '.' or '..'")
    return f"{PATH}/{name}"


def create(
    name: str,
    log: str,
    types: Sequence[str],
    parents: Sequence[str],
    isolation: Isolation | None,
    start: str | datetime,
    shards: int,
) -> Call[ConsumerStatus]:
    """Raises ValueError."""
    asked: dict[str, object] = {"log": str(topic_name(log)), "start": _position(start)}
    for filter_, values in (("types", types), ("parents", parents)):
        if isinstance(values, str) or not all(values):
            raise ValueError(f"{filter_}: give a list of names, none of them empty")
        if values:
            asked[filter_] = list(values)
    if isolation is not None:
        asked["isolation"] = check_isolation(isolation)
    if type(shards) is not int or not 1 <= shards <= MAX_SHARDS:
        raise ValueError(f"shards: give a whole number, 1 to {MAX_SHARDS}")
    asked["shards"] = shards
    return Call("PUT", path(name), _STATUS, json.dumps(asked).encode(), True)


def get(name: str) -> Call[ConsumerStatus]:
    """Raises ValueError."""
    return Call("GET", path(name), _STATUS)


def delete(name: str) -> Call[None]:
    """Raises ValueError."""
    return Call("DELETE", path(name), nothing, None, True, 204)


def seek(name: str, position: str | datetime, shard: int | None) -> Call[ConsumerStatus]:
    """``shard``: None: all. Raises ValueError."""
    asked: dict[str, object] = {"position": _position(position)}
    if shard is not None:
        asked["shard"] = check_number(shard)
    return Call("POST", f"{path(name)}/seek", _STATUS, json.dumps(asked).encode(), True)


def acknowledge(name: str, id_: str, term: int, shard: int) -> Call[None]:
    """Readers may acknowledge. Raises ValueError."""
    if type(term) is not int or term < 1:
        raise ValueError(f"{term!r} is not a term: give a whole number of at least 1")
    if not checked_text(id_):
        raise ValueError("id: give the id of an event")
    asked = {"shard": check_number(shard), "term": term, "id": id_}
    body = json.dumps(asked).encode()
    return Call("POST", f"{path(name)}/position", nothing, body, done=204)


def check_number(shard: int) -> int:
    """Return the number of a shard. Raise ValueError."""
    if type(shard) is not int or not 0 <= shard < MAX_SHARDS:
        raise ValueError(f"shard: give a whole number, 0 to {MAX_SHARDS - 1}")
    return shard


def refusal(call: Call[Any], answer: Answer, first: int = 0) -> OplogError | None:
    """Return the error for a final refusal of any request. None for success.

    ``first``: see the requests of transactions.
    """
    if call.path.startswith(f"{PATH}/"):
        status = answer.status
        if status == 201 and call.method == "PUT":
            return None
        if status == 412:
            return StaleTermError(status, answer.detail())
        if status in (404, 409):  # the consumer or its topic; other settings
            return RefusedError(status, answer.detail())
    return refusal_of_others(call, answer, first)


def _position(given: str | datetime) -> str:
    if isinstance(given, datetime):
        return position_of(given)
    if not checked_text(given):
        raise ValueError(f"give a position: {', '.join(WORDS)}, an id or a time")
    return given


_shard = members_of(ShardStatus)
_listed = members_of(ListedConsumer)


def _status(given: Any) -> ConsumerStatus:
    return ConsumerStatus(*_listed(given), tuple(map(_shard, given["shards"])))


_STATUS = reader(_KIND, _status)
