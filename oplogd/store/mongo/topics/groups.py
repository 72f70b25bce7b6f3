"""Entries on their way to their logs. No I/O."""

import itertools
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from oplogd.model.event_id import Mark
from oplogd.model.lease import Fence
from oplogd.store.mongo.link.topic_layout import Document, identity, place
from oplogd.store.topics import Outcome, Placed, Refused


class Once(NamedTuple):
    """The condition of an entry of a transaction.

    ``identity``: see ``layout``. An entry with the same one counts as this one. ``end``: identity
    of an entry behind which this one may not go in. None: there is none. ``digest``: of a record;
    an entry with the same identity must have the same.
    """

    identity: str
    end: str | None = None
    digest: str | None = None


class Unless(NamedTuple):
    """The condition of a group: its log has no entry with an identity from ``low`` to ``high``."""

    low: str
    high: str


class Under(NamedTuple):
    """The pointer of an entry. ``number``: in its identity. None: the offset of the entry."""

    pointer: int
    number: int | None = None


class Numbered(NamedTuple):
    """An entry to append. ``number``: the writer's. ``ttl``: own time to live in seconds.

    It has ``once`` or ``under`` or none of them. ``more``: further bytes to count.
    """

    number: int
    kind: str
    data: bytes
    ttl: int | None
    once: Once | None
    under: Under | None
    more: int


_numbers = itertools.count()


def new_entry(
    kind: str,
    data: bytes = b"",
    ttl: int | None = None,
    once: Once | None = None,
    under: Under | None = None,
    more: int = 0,
) -> Numbered:
    """Return an entry to append, with the next number of this process."""
    return Numbered(next(_numbers), kind, data, ttl, once, under, more)


class Group:
    """A batch on its way. ``todo``: the rest of it. ``ended``: the end of the log met instead.

    ``repeated``: entries with a condition that were in the log before. The group ends with
    ``is_closed`` if its transaction has ended in this log, or its condition ``unless`` does not
    hold, and with ``clash``, an entry in the log with another digest. ``is_stale``: its fence did
    not hold before its last entry was in the log. ``behind``: the group is closed unless the head
    of the log has this offset. None: any offset will do.
    """

    def __init__(
        self,
        log: int,
        todo: Iterable[Numbered],
        fence: Fence | None = None,
        unless: Unless | None = None,
        behind: int | None = None,
    ) -> None:
        self.log = log
        self.todo = deque(todo)
        self.fence = fence
        self.unless = unless
        self.behind = behind
        self.first: Mark | None = None
        self.last: Mark | None = None
        self.is_refused = False
        self.ended: Mark | None = None
        self.repeated: list[Numbered] = []
        self.is_closed = False
        self.is_stale = False
        self.clash: Numbered | None = None

    def place(self, entry: Numbered, mark: Mark) -> None:
        self.todo.remove(entry)  # almost always the first one
        self.first = self.first or mark
        self.last = mark

    def repeat(self, entry: Numbered, mark: Mark) -> None:
        """Note an entry already in the log."""
        self.repeated.append(entry)
        self.place(entry, mark)

    def refuse(self, ended: Mark | None) -> None:
        self.todo.clear()
        self.is_refused, self.ended = True, ended

    def expire(self) -> None:
        self.todo.clear()
        self.is_stale = True

    def close(self) -> None:
        self.todo.clear()
        self.is_closed = True

    def stop_at(self, clash: Numbered) -> None:
        self.todo.clear()
        self.clash = clash

    @property
    def outcome(self) -> Outcome:
        if self.is_stale:
            return Refused.STALE
        if self.is_refused or self.first is None or self.last is None:
            return Refused.DELETED
        return Placed(self.first, self.last)


class Attempt(NamedTuple):
    """An entry with the place given by an insert.

    ``written_ms``: time of writing if the stamp is ahead of it, else None.
    """

    group: Group
    entry: Numbered
    mark: Mark
    written_ms: int | None = None

    @property
    def key(self) -> str:
        return place(self.group.log, self.mark.offset)


def entry_document(attempt: Attempt, writer: str) -> Document:
    """Return the document of an entry. ``writer``: the writer's token."""
    _, entry, mark, written_ms = attempt
    document: Document = {
        "_id": attempt.key,
        "ts": mark.ms,
        "q": mark.sequence,
        "kind": str(entry.kind),
        "data": entry.data.decode(),
        "z": len(entry.data) + entry.more,
        "w": writer,
        "s": entry.number,
    }
    if entry.ttl is not None:
        document["expires"] = mark.ms + 1000 * entry.ttl
    if written_ms is not None:
        document["t"] = written_ms
    if entry.once is not None:
        document["x"] = entry.once.identity
        if entry.once.digest is not None:
            document["d"] = entry.once.digest
    if entry.under is not None:
        pointer, number = entry.under
        own = mark.offset if number is None else number
        document["x"] = identity(pointer, attempt.group.log, own)
    return document
