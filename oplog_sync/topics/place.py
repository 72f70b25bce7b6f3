"""The interface of a place from which a topic is read: a store, or agents."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from pyspark.sql.datasource import InputPartition

from oplog_sync.topics.position import Position
from oplogd.model.event_id import Mark
from oplogd.model.isolation import Reading, reading
from oplogd.model.message import Content
from oplogd.model.transaction import Isolation


class TopicMessage(NamedTuple):
    """``content``: None if no column needs it. ``txn``: the transaction, None if unknown."""

    id: str
    content: Content | None
    txn: str | None = None


class SeenEntry(NamedTuple):
    """An entry of a topic as one reader sees it.

    ``messages``: number of messages it has for the reader. ``is_held``: the reader cannot go past
    it yet.
    """

    mark: Mark
    messages: int
    is_held: bool


class TopicHead(NamedTuple):
    """The newest entry, in an empty topic the front. ``store``: identity, None if unknown."""

    mark: Mark
    store: str | None


class TopicPlace(Protocol):
    """Shows the entries of a topic to the driver, and reads their messages in tasks.

    Raises UnreachableError and StoreUnavailableError if a later attempt may succeed.

    Spark pickles it for its workers.
    """

    def head(self) -> TopicHead: ...

    def front(self) -> Mark:
        """Return the newest removed entry.

        Without one a mark before all messages, and past all of earlier topics of this name. Its
        offset may be 0, which is unknown.
        """

    def locate(self, ms: int, sequence: int) -> Mark:
        """Return the last entry at or before a time and sequence. Offset 0: there is none."""

    def offset_at(self, position: Position) -> int:
        """Return the offset after which a reader at this position reads on."""

    def first_open_ms(self) -> int | None:
        """Return a time before all messages under open pointers, None without such messages."""

    def walk(self, after: int, upto: int) -> Iterator[Sequence[SeenEntry]]:
        """Yield the entries after an offset, up to another one, in pages."""

    def plan(self, start: Position, end: Position) -> Sequence[InputPartition]:
        """Divide the messages after ``start`` up to ``end`` into tasks. See ``begin_in``."""

    def read(self, part: InputPartition) -> Iterator[list[TopicMessage]]:
        """Yield the messages of a task in chunks."""

    def close(self) -> None:
        """Close what is kept open."""


def seen_entry(
    mark: Mark, kind: str, isolation: Isolation, verdict: Reading, records: int
) -> SeenEntry:
    """Return an entry as a reader sees it.

    ``verdict``: of a committed reader about its pointer. ``records``: made visible by the entry.
    """
    how = reading(kind, isolation, verdict)
    count = {Reading.PASS: 1, Reading.EXPAND: records}.get(how, 0)
    return SeenEntry(mark, count, is_held=how is Reading.HOLD)
