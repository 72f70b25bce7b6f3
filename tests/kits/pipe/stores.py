"""A model of stores that are replaced or restored, and of a source that follows them."""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal, NamedTuple

from msgspec import Raw

from oplog_pipe.commitlog import Mode, NewEntry
from oplog_pipe.follow.checkpoints import Witness
from oplog_pipe.model.record import EntryRecord, control_key, encode_record

SOURCE = "oplog"
Key = tuple[str, str]

_ms = count(1_000)


class Change(NamedTuple):
    """An operation. ``value``: None if the object was deleted. No two have the same ``ms``."""

    ms: int
    key: Key
    value: int | None


@dataclass
class Store:
    """The operations of an agent's store, as ids and times say where a stream begins."""

    log: list[Change] = field(default_factory=list)
    kept: list[Change] = field(default_factory=list)

    def change(self, key: Key, value: int | None) -> None:
        self.log.append(Change(next(_ms), key, value))

    @property
    def live(self) -> dict[Key, int]:
        states = {each.key: each.value for each in self.log}
        return {key: value for key, value in states.items() if value is not None}

    def back_up(self) -> None:
        self.kept = self.log.copy()

    def restore(self) -> None:
        """Put the last backup in place. It has the identity of the store, and fewer operations."""
        self.log = self.kept.copy()

    @property
    def head(self) -> str:
        return _id(self.log, len(self.log))

    def offset_of(self, head: str) -> int | None:
        """Return the offset of an id; None if it is from another history."""
        offset, ms = map(int, head.split("-"))
        known = 0 < offset <= len(self.log) and self.log[offset - 1].ms == ms
        return offset if known or (offset, ms) == (0, 0) else None

    def states(self, since: int) -> list[Change]:
        """Return the last operation of each object since a time, in order. 0: of live objects."""
        last = {each.key: each for each in self.log}
        found = [each for each in last.values() if since or each.value is not None]
        return sorted(each for each in found if each.ms >= since)


Item = Change | Literal["reset", "live"]


class Source:
    """What a pipe receives: a copy of all objects, then the changes since its begin.

    It resumes as a source of the pipe does: by its position, its witness and the store's identity.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.restart()

    def restart(self) -> None:
        self.copy: int | None = None
        self.last_copy = -1
        self.witness: Witness | None = None
        self._begin("0")

    def reconnect(self, store: Store) -> None:
        """Follow this store from now on: another one, or the same, perhaps restored."""
        is_other, self.store = store is not self.store, store
        if is_other:
            self.restart()
        elif self.witness is None:
            self._begin(self.position)
        elif store.offset_of(self.witness.head) is None:
            self.restart()
        else:
            self._begin(self.witness.before(self.position))

    def renew_witness(self) -> None:
        if self.witness is not None and self.witness.is_of_state:
            self.witness = Witness(self.position, self.store.head)

    def _begin(self, position: str) -> None:
        self.position = position
        self.mark = len(self.store.log)
        self.next = self.mark
        self.waiting: list[Item] = []
        if "-" in position:
            if (offset := self.store.offset_of(position)) is not None:
                self.next = offset
                return
            position = "0"
        begin: list[Item] = ["reset"] if position == "0" else []
        self.waiting = [*begin, *self.store.states(int(position)), "live"]

    def has_copy(self, since: int) -> bool:
        """Return whether the last copy began behind an offset, or one is about to begin."""
        return self.waiting[:1] == ["reset"] or self.last_copy > since

    def fork(self) -> "Source":
        found = copy(self)
        found.waiting = list(self.waiting)
        return found

    def take(self, end: int, count: int) -> Iterator[NewEntry]:
        """Yield at most so many entries. ``end``: offset of the first one."""
        for offset in range(end, end + count):
            item = self._next()
            if item is None:
                return
            if item == "reset":
                self.copy = self.last_copy = offset
                self.position = "1"
                self.witness = Witness("1", self.store.head)
                yield _entry(control_key(SOURCE), EntryRecord(SOURCE, "p", "reset", copy=offset))
            elif item == "live":
                self.position = _id(self.store.log, self.mark)
                self.witness = Witness(self.position, self.store.head)
                self._judge_witness()
                yield _entry(control_key(SOURCE), EntryRecord(SOURCE, "p", "live", copy=self.copy))
                self.copy = None
            else:
                ms, (type_, id), value = item
                if "-" in self.position:
                    self.position = _id(self.store.log, self.next)
                    self._judge_witness()
                else:
                    self.position = str(ms)
                op: Any = "delete" if value is None else "insert"
                data = Raw(b"%d" % (value or 0))
                yield _entry(type_, EntryRecord(SOURCE, "p", op, id, self.copy, data))

    def _judge_witness(self) -> None:
        if self.witness is not None and self.witness.is_reached(self.position):
            self.witness = None

    def _next(self) -> Item | None:
        while self.waiting:
            item = self.waiting.pop(0)
            # An object that has changed since comes in the operations behind ``live``.
            if isinstance(item, str) or item in self.store.states(1):
                return item
        if self.next == len(self.store.log):
            return None
        self.next += 1
        return self.store.log[self.next - 1]

    @property
    def is_at_end(self) -> bool:
        return not self.waiting and self.next == len(self.store.log)


def _id(log: Sequence[Change], offset: int) -> str:
    return f"{offset:09}-{log[offset - 1].ms if offset else 0:09}"


def _entry(key: str, record: EntryRecord) -> NewEntry:
    return NewEntry(5, Mode.SYNC, key, encode_record(record))
