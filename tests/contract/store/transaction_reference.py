"""The reference for transactions: a list of entries for each topic, and what each reader sees."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from oplogd.errors import TopicError, TopicNotFoundError, TransactionConflictError
from oplogd.model.isolation import EntryKind
from oplogd.model.message_id import MessageId
from oplogd.model.pointer import Decision, Snapshot
from oplogd.model.transaction import Isolation, State

# The errors that a call may raise, from which none has an effect. Empty: it succeeds.
Errors = set[type[Exception]]
CONFLICT: Errors = {TransactionConflictError}

# Payloads with their ids.
Seen = list[tuple[str, MessageId]]

# A reader without a snapshot, or with one.
View = Isolation | Snapshot

# Whether uncommitted and committed readers see entries of a kind that have no pointer.
_SEEN = {
    EntryKind.MESSAGE: (True, True),
    EntryKind.DEFERRED: (True, False),
    EntryKind.COMMIT: (False, True),
    EntryKind.LATE: (False, True),
}


class Line(NamedTuple):
    payload: str
    ttl: int | None


class Part(NamedTuple):
    """The messages past an id (None: all), or from it on, at most ``limit``."""

    after: MessageId | None = None
    inclusive: bool = False
    limit: int = 10_000

    def lacks(self, id_: MessageId | None) -> bool:
        """Return whether a message is before this part."""
        if self.after is None or id_ is None:
            return False
        return id_ < self.after or (id_ == self.after and not self.inclusive)


ALL = Part()


@dataclass(eq=False)
class Item:
    """An entry that has something for some readers.

    ``ms``: the time from which all times to live count. ``stamp``: known for messages that are
    published, 0 for others. ``ids``: of the lines by payload, once they were seen.
    """

    kind: EntryKind
    lines: list[Line]
    ms: int
    pointer: int | None = None
    stamp: int = 0
    voided: bool = False
    ids: dict[str, MessageId] = field(default_factory=dict)

    def alive(self, now: int) -> list[str]:
        return [each for each, ttl in self.lines if not ttl or self.ms + 1000 * ttl >= now]


class Sight(NamedTuple):
    """``hold``: the pointer at which the reader stops, None if it has read all. ``passed``: number
    of items of the topic that have nothing more for it.
    """

    payloads: list[str]
    hold: int | None
    passed: int


@dataclass(eq=False)
class PointerState:
    """A pointer in a topic. ``waiting``: stored and not published. ``last``: its last PUBLISH
    entry, None after a rollback of it. ``decided``: time of its decision.
    """

    begun: int
    expires: int
    decided: int = 0
    has_entries: bool = False
    waiting: list[Line] = field(default_factory=list)
    has_stored: bool = False
    last: Item | None = None


History = tuple[list[Item], dict[int, PointerState], dict[int, Decision], set[int]]


@dataclass(eq=False)
class Named:
    """One generation of a topic. ``late``: pointers that have committed after their time-out."""

    name: str
    ttl: int
    exists: bool = True
    items: list[Item] = field(default_factory=list)
    pointers: dict[int, PointerState] = field(default_factory=dict)
    decisions: dict[int, Decision] = field(default_factory=dict)
    late: set[int] = field(default_factory=set)

    def add(
        self, kind: EntryKind, now: int, lines: Iterable[Line], pointer: int | None = None
    ) -> Item:
        item = Item(kind, [*lines], now, pointer)
        self.items.append(item)
        return item

    def seen(self, view: View, now: int, part: Part = ALL, first: int = 0) -> Sight:
        """Return what a reader sees of a part. ``first``: the first item that it reads."""
        payloads: list[str] = []
        for number, item in enumerate(self.items[first:], first):
            wanted = [each for each, _ in item.lines if not part.lacks(item.ids.get(each))]
            if not wanted or self.is_gone(item, now):
                continue
            verdict = self._verdict(view, item)
            if verdict is None:
                return Sight(payloads, item.pointer, number)
            if verdict:
                payloads += [each for each in item.alive(now) if each in wanted]
            if len(payloads) >= part.limit:
                return Sight(payloads[: part.limit], None, number)
        return Sight(payloads, None, len(self.items))

    def learn(self, uncommitted: Seen, committed: Seen, decided: Seen) -> None:
        """Note the ids of messages, which never change.

        ``committed``: of all pointers. ``decided``: what a reader without a snapshot has read.
        """
        places, records, late = dict(uncommitted), dict(committed), dict(decided)
        for item in self.items:
            known = places
            if item.kind in (EntryKind.COMMIT, EntryKind.LATE):
                known = records if item.kind == EntryKind.COMMIT else late
            for payload, _ in item.lines:
                if payload in known:
                    assert item.ids.setdefault(payload, known[payload]) == known[payload]

    def ids(self) -> list[MessageId]:
        """Return the ids of all messages that any reader saw."""
        return sorted({id_ for item in self.items for id_ in item.ids.values()})

    def history(self) -> History:
        return copy.deepcopy((self.items, self.pointers, self.decisions, self.late))

    def restore(self, history: History) -> None:
        self.items, self.pointers, self.decisions, self.late = copy.deepcopy(history)

    def is_gone(self, item: Item, now: int) -> bool:
        """Return whether no reader finds the entry. A PUBLISH entry has no time to live."""
        alone = item.kind not in (EntryKind.COMMIT, EntryKind.PUBLISH)
        expired = item.ms < now - 1000 * self.ttl or (alone and not item.alive(now))
        return item.voided or expired

    def is_open(self, number: int) -> bool:
        """Return whether the pointer of an item is open, and the item was not rolled back."""
        item = self.items[number]
        return item.pointer not in self.decisions and not item.voided

    def _verdict(self, view: View, item: Item) -> bool | None:
        """Return whether the reader sees an entry, None if it stops there."""
        if item.kind == EntryKind.LATE and isinstance(view, Snapshot):
            return False
        if item.pointer is None:
            return _SEEN[item.kind][view is not Isolation.READ_UNCOMMITTED]
        if isinstance(view, Snapshot):
            return _shows(view, item.pointer)
        if view is Isolation.READ_UNCOMMITTED:
            return True
        decision = self.decisions.get(item.pointer)
        return None if decision is None else decision == Decision.COMMITTED


def _shows(snapshot: Snapshot, pointer: int) -> bool | None:
    read, own, in_progress, invalid = snapshot
    if pointer == own:
        return True
    if pointer in invalid:
        return False
    return None if pointer > read or pointer in in_progress else True


class Written(NamedTuple):
    """A record. ``topic``: None is the oplog."""

    topic: Named | None
    payload: str
    ttl: int | None


@dataclass(eq=False)
class Txn:
    topic: Named | None
    group: str
    expires: int
    state: State = State.OPEN
    records: dict[int, Written] = field(default_factory=dict)


@dataclass
class Reference:
    """``oplog``: ids of objects, with their lsn. ``told``: by group."""

    now: int
    oplog: list[tuple[str, int]] = field(default_factory=list)
    told: dict[str, list[tuple[str, Txn]]] = field(default_factory=dict)

    def begin(self, topic: Named | None, group: str, timeout: int) -> Txn:
        return self._tell("begin", Txn(topic, group, self.now + timeout))

    def write(self, txn: Txn, given: dict[int, Written]) -> Errors:
        self.expire(txn)
        new = {lsn: each for lsn, each in given.items() if lsn not in txn.records}
        errors: Errors = set()
        if txn.state != State.OPEN or given.items() - new.items() - txn.records.items():
            errors |= CONFLICT
        if txn.topic and any(each.topic is not txn.topic for each in given.values()):
            errors |= {TopicError}
        if any(each.topic and not each.topic.exists for each in given.values()):
            errors |= {TopicNotFoundError}
        for each in () if errors else new.values():
            if each.topic:
                each.topic.add(EntryKind.DEFERRED, self.now, [Line(each.payload, each.ttl)])
        txn.records |= {} if errors else given
        return errors

    def commit(self, txn: Txn, records: int) -> Errors:
        self.expire(txn)
        if txn.state == State.COMMITTED:
            return set() if len(txn.records) == records else CONFLICT
        if txn.state != State.OPEN or not txn.records.keys() >= set(range(records)):
            return CONFLICT
        self._tell("commit", txn).state = State.COMMITTED
        txn.records = {lsn: txn.records[lsn] for lsn in range(records)}
        lines: dict[Named, list[Line]] = {}
        for lsn, (topic, payload, ttl) in txn.records.items():
            if topic:
                lines.setdefault(topic, []).append(Line(payload, ttl))
            else:
                self.oplog.append((payload, lsn))
        for topic, given in lines.items():
            topic.add(EntryKind.COMMIT, self.now, given)
        return set()

    def abort(self, txn: Txn) -> Errors:
        if self.expire(txn) or txn.state == State.ABORTED:
            return set()
        if txn.state == State.COMMITTED:
            return CONFLICT
        self._tell("abort", txn).state = State.ABORTED
        return set()

    def expire(self, txn: Txn) -> bool:
        """Abort the transaction if it is overdue; return whether it was."""
        overdue = txn.state == State.OPEN and txn.expires < self.now
        if overdue:
            self._tell("abort", txn).state = State.ABORTED
        return overdue

    def _tell(self, event: str, txn: Txn) -> Txn:
        if txn.topic is None:
            self.told.setdefault(txn.group, []).append((event, txn))
        return txn
