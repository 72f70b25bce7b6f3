"""Positions in a topic, as Spark's offsets and as options."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from oplog_sync.arrow import milliseconds
from oplog_sync.errors import MessagesGoneError, OptionError, SyncError
from oplogd.errors import PositionError, TopicError
from oplogd.model.event_id import Mark
from oplogd.model.message_id import MessageId, end_id, parse_message_id, stamp, unstamp
from oplogd.model.names import OPLOG, TopicName, check_name
from oplogd.model.operation import parse_timestamp
from oplogd.model.transaction import DEFAULT_ISOLATION, Isolation
from oplogd.store.topic_bounds import MAX_ID_MS

# The id of the position before the oldest message.
OLDEST_ID = "0"

GAP_ADVICE = (
    "start the query with a new checkpoint, or set the option onGap to oldest: it then continues "
    "at the oldest message"
)

_MS = re.compile(r"[0-9]{1,13}", re.ASCII)


class Position(NamedTuple):
    """A reader has all messages up to ``id``: a message id, or OLDEST_ID if it has none.

    ``offset`` and ``ms``: of the last entry with a message up to there. 0: unknown, or none.
    ``store``: identity of its store. None: unknown, as that of an option.
    """

    id: str
    offset: int
    ms: int
    store: str | None = None

    @classmethod
    def at(cls, mark: Mark) -> "Position":
        """Return the position behind an entry and all of its messages.

        That of the front has nothing, and all messages of the topic are behind it.
        """
        return cls(str(end_id(mark.ms, mark.sequence)), mark.offset, mark.ms)

    @classmethod
    def of(cls, offset: Mapping[str, Any]) -> "Position":
        """Return the position in an offset of Spark. Raises SyncError."""
        id_ = str(offset.get("id", ""))
        if id_ != OLDEST_ID and message_id(id_) is None:
            raise SyncError(
                f"position {id_!r} is not a message id: was the checkpoint made by another source, "
                "or without the option topic?"
            )
        place = int(offset.get("offset", 0)), int(offset.get("ms", 0))
        return cls(id_, *place, offset.get("store"))

    def as_offset(self) -> dict[str, Any]:
        """Return the offset of Spark: without ``store`` if it is unknown."""
        return {name: each for name, each in self._asdict().items() if each is not None}

    def is_of_other(self, store: str | None) -> bool:
        """Return whether the position is known to be of another store."""
        return is_other(self.store, store)

    @property
    def message_id(self) -> MessageId | None:
        """The id, None for the position before the oldest message."""
        return message_id(self.id)


def is_other(store: str | None, than: str | None) -> bool:
    """Return whether two identities differ. An unknown one counts as the same."""
    return None not in (store, than) and store != than


def offset_before(id_: MessageId, mark: Mark) -> int:
    """Return the offset before the first entry with messages past an id.

    ``mark``: the last entry at or before its time and sequence.
    """
    return mark.offset - (id_.is_inside and (mark.ms, mark.sequence) == id_[:2])


OLDEST = Position(OLDEST_ID, 0, 0)

Named = Literal["now", "oldest"]
# A time in ms counts for all messages from this ms on.
Bound = Named | MessageId | int


@dataclass(frozen=True, kw_only=True)
class TopicOptions:
    """The options of one read of a topic.

    ``start`` and ``end``: None is the default of the reader. ``is_binary``: the payload is a column
    of bytes. ``partition_rows``: entries of a task. ``fails_on_gap``: messages that are gone fail
    the read. Otherwise it continues with the oldest one.
    """

    name: TopicName
    isolation: Isolation = DEFAULT_ISOLATION
    is_binary: bool = False
    start: Bound | None = None
    end: Bound | None = None
    partition_rows: int = 250_000
    fails_on_gap: bool = True


def begin_in(
    store: str | None, start: Position, end: Position, options: TopicOptions
) -> Position | None:
    """Return where a batch begins if this store has the topic. None: nothing of it is left.

    Another store than before is a gap. Raises MessagesGoneError.
    """
    if not start.is_of_other(store) and not end.is_of_other(store):
        return start
    if options.fails_on_gap:
        raise MessagesGoneError(
            f"the topic {options.name} has another store than before, so messages behind position "
            f"{start.id} are gone; {GAP_ADVICE}"
        )
    return None if end.is_of_other(store) else OLDEST


def parse_topic(text: str) -> TopicName:
    """Read the option ``topic``, as ``NAMESPACE/TOPIC``. Raises OptionError."""
    namespace, slash, topic = text.partition("/")
    if not slash:
        raise OptionError(f"option topic: {text!r} is not NAMESPACE/TOPIC, such as shop/orders")
    try:
        name = TopicName(check_name(namespace, "namespace"), check_name(topic, "topic"))
    except TopicError as error:
        raise OptionError(f"option topic: {error}") from None
    if name == OPLOG:
        raise OptionError(f"option topic: {OPLOG} is the log of operations; leave topic out")
    return name


def parse_bound(option: Literal["start", "end"], text: str) -> Bound:
    """Read the option ``start`` or ``end``. Raises OptionError."""
    if text == "now" or (text == "oldest" and option == "start"):
        return text  # type: ignore[return-value]
    if _MS.fullmatch(text):
        return int(text)
    if (id_ := message_id(text)) is not None:
        return id_
    try:
        return milliseconds(parse_timestamp(text))
    except ValueError:
        names = "now" if option == "end" else "now, oldest"
        raise OptionError(
            f"option {option}: {text!r} is neither {names}, a message id of 40 digits, an RFC 3339 "
            "time such as 2014-11-06T11:04:39.041Z, nor a time in ms since 1970"
        ) from None


def message_id(text: str) -> MessageId | None:
    """Return a message id, None for any other text."""
    try:
        return parse_message_id(text)
    except PositionError:
        return None


def before_ms(ms: int) -> MessageId:
    """Return the position behind all messages before a time."""
    return end_id(*unstamp(max(stamp(min(ms, MAX_ID_MS), 0) - 1, 0)))
