"""The reference for transactions: plain lists of the messages that each kind of reader sees."""

from dataclasses import dataclass, field
from typing import NamedTuple

from oplogd.errors import TopicError, TopicNotFoundError, TransactionConflictError
from oplogd.transaction import Isolation, State

# The errors that a call may raise, from which none has an effect. Empty: it succeeds.
Errors = set[type[Exception]]
CONFLICT: Errors = {TransactionConflictError}


class Line(NamedTuple):
    """A message in the view of a reader. ``ms``: the time from which its times to live count."""

    payload: str
    ms: int
    ttl: int | None


@dataclass(eq=False)
class Named:
    """One generation of a topic."""

    name: str
    ttl: int
    exists: bool = True
    views: dict[Isolation, list[Line]] = field(default_factory=lambda: {i: [] for i in Isolation})

    def seen(self, isolation: Isolation, now: int, first: int = 0) -> list[str]:
        lines = [each for each in self.views[isolation][first:] if each.ms >= now - 1000 * self.ttl]
        return [each.payload for each in lines if not each.ttl or each.ms + 1000 * each.ttl >= now]

    def publish(self, line: Line, *isolations: Isolation) -> None:
        for each in isolations:
            self.views[each].append(line)


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
                line = Line(each.payload, self.now, each.ttl)
                each.topic.publish(line, Isolation.READ_UNCOMMITTED)
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
        for lsn, (topic, payload, ttl) in txn.records.items():
            if topic:
                topic.publish(Line(payload, self.now, ttl), Isolation.READ_COMMITTED)
            else:
                self.oplog.append((payload, lsn))
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
