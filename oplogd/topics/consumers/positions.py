"""Positions of named consumers in their logs: where they begin, and which ids they may name."""

import re
from typing import Protocol

from oplogd.errors import ConsumerError, PositionError
from oplogd.model.consumer import ConsumerSettings, is_time
from oplogd.model.event_id import EventId, Mark, Millis, Position, parse_position, position_at
from oplogd.model.message_id import MessageId, end_id, parse_message_id
from oplogd.model.names import TopicName
from oplogd.store import Store
from oplogd.store.topics import Topic
from oplogd.stream.phases.start import (
    FULL_REPLICATION,
    TopicPosition,
    is_of_history,
    resolve,
    sought,
)
from oplogd.topics.known import KnownTopics

# Positions that a client may name.
NOW = "now"
COPY = "copy"

_EVERYTHING = "0"
_MESSAGE_DIGITS = 40

# The ids of entries, and those within a replication. All of one length are in the order of the log.
_ID = re.compile(r"[1-9][0-9]{0,12}|[0-9a-f]{24}|[0-9a-f]{40}")


class Positions(Protocol):
    """The positions of one log. ``topic``: None for the oplog."""

    topic: Topic | None

    def parse(self, text: str) -> Position | TopicPosition:
        """Read an id or a time. Raises PositionError."""

    async def now(self) -> str:
        """Return the position behind the newest entry."""

    async def is_of_log(self, id_: str) -> bool:
        """Return whether the log has, or had, an entry with this id. The id is sound."""

    async def is_foreign(self, position: str) -> bool:
        """Return whether a position belongs to another history of the log."""


async def position_of(given: str, positions: Positions, field: str) -> str:
    """Return the position that a client names. Raises ConsumerError."""
    if given == NOW:
        return await positions.now()
    if given == COPY:
        return _EVERYTHING
    try:
        positions.parse(given)
    except PositionError as error:
        raise ConsumerError(field, str(error)) from None
    return given


async def fault_of(id_: str, positions: Positions, log: TopicName) -> str:
    """Return what is wrong with an id. Empty: the log has, or had, an entry with it."""
    try:
        return "" if await positions.is_of_log(id_) else f"is no id of {log}"
    except PositionError as error:
        return str(error)


def is_behind(id_: str, position: str) -> bool:
    """Return whether a well-formed id is at or before the position of a stream that has sent it."""
    return len(id_) == len(position) and id_ <= position and _ID.fullmatch(id_) is not None


class OplogPositions(Positions):
    """Event ids and times."""

    topic = None

    def __init__(self, store: Store) -> None:
        self._store = store

    def parse(self, text: str) -> Position:
        return parse_position(text)

    async def now(self) -> str:
        bounds = await self._store.locate()
        return position_at(bounds.head, bounds.first_offset)

    async def is_of_log(self, id_: str) -> bool:
        position = self.parse(id_)
        if isinstance(position, EventId):
            return await self._has_had(position)
        # A replication sends no time past the newest entry.
        bounds = await self._store.locate()
        return 0 < position.ms <= max(bounds.head.ms, bounds.adopted_ms, 1)

    async def is_foreign(self, position: str) -> bool:
        at = self.parse(position)
        if not isinstance(at, EventId):
            return False
        bounds = await self._store.locate(at.offset)
        if at.millis > 999 or at.offset > bounds.head.offset:  # maybe of the first server
            return resolve(at, bounds, bounds.now_ms) == FULL_REPLICATION
        return not is_of_history(Mark(at.offset, at.ms), bounds)

    async def _has_had(self, id_: EventId) -> bool:
        """Return whether the log has the entry, or had it. Ids of the first server do not count."""
        bounds = await self._store.locate(id_.offset)
        return id_.millis <= 999 and is_of_history(Mark(id_.offset, id_.ms), bounds)


class MessagePositions(Positions):
    """Message ids and times, of one topic."""

    def __init__(self, store: Store, topic: Topic) -> None:
        self.topic = topic
        self.log = store.topics.log(topic)

    def parse(self, text: str) -> TopicPosition:
        if text.isascii() and text.isdecimal() and is_time(text):
            return Millis(int(text))
        if len(text) != _MESSAGE_DIGITS:
            raise PositionError(
                f"a message id is {_MESSAGE_DIGITS} lower-case hexadecimal digits, or up to 13"
                " decimal digits (milliseconds since 1970)"
            )
        return parse_message_id(text)

    async def now(self) -> str:
        head: Mark = (await self.log.locate()).head
        return str(end_id(head.ms, head.sequence))

    async def is_of_log(self, id_: str) -> bool:
        position = self.parse(id_)
        if isinstance(position, Millis):
            return False
        bounds = await self.log.locate(*sought(position))
        return position[:2] <= (bounds.head.ms, bounds.head.sequence)

    async def is_foreign(self, position: str) -> bool:
        at = self.parse(position)
        if not isinstance(at, MessageId):
            return False
        bounds = await self.log.locate(*sought(at))
        # A position that expiry or a forced rollback has passed is of this log: see ``is_of_log``.
        is_known = at[:2] <= (bounds.head.ms, bounds.head.sequence)
        return not is_known or bounds.is_beyond(at.ms) or bounds.is_old(*at[:2])


async def positions_of(settings: ConsumerSettings, store: Store, known: KnownTopics) -> Positions:
    """Return the positions of the log of a consumer. Raises TopicNotFoundError."""
    if settings.is_of_oplog:
        return OplogPositions(store)
    return MessagePositions(store, await known.look_up(settings.log))
