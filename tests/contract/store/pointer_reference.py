"""The reference for pointers: the effect of each call on the entries of a topic."""

from collections.abc import Callable, Collection, Sequence

from oplogd.errors import MessageError, TopicNotFoundError, TransactionTooLargeError
from oplogd.model.isolation import EntryKind
from oplogd.model.pointer import Decision
from tests.contract.store.transaction_reference import (
    CONFLICT,
    Errors,
    Item,
    Line,
    Named,
    PointerState,
)
from tests.kits.store.transacting import TWENTY_MINUTES_MS

DELETED: Errors = {TopicNotFoundError}
WRONG: Errors = {MessageError}


class PointerReference:
    """``clock`` returns ms. ``limit``: of messages that are stored and not published."""

    def __init__(self, clock: Callable[[], int], limit: int) -> None:
        self._clock = clock
        self._limit = limit

    def publish(
        self, topic: Named, pointer: int, lines: Sequence[Line], timeout: int
    ) -> tuple[Errors, list[Item]]:
        known = topic.pointers.get(pointer)
        if errors := _ended(topic, pointer):
            return errors, []
        if known and known.waiting:
            return WRONG, []
        self._register(topic, pointer, timeout, has_entries=True)
        now = self._clock()
        return set(), [topic.add(EntryKind.DIRECT, now, [each], pointer) for each in lines]

    def store(self, topic: Named, pointer: int, lines: Sequence[Line], timeout: int) -> Errors:
        if errors := _ended(topic, pointer):
            return errors
        known = topic.pointers.get(pointer)
        if len(lines) + (len(known.waiting) if known else 0) > self._limit:
            return {TransactionTooLargeError}
        known = self._register(topic, pointer, timeout, has_entries=False)
        known.waiting += lines
        known.has_stored = True
        return set()

    def publish_stored(
        self, topic: Named, pointer: int, timeout: int
    ) -> tuple[Errors, Item | None]:
        """Return the entry, which may be an earlier one. None: nothing was ever stored."""
        known = topic.pointers.get(pointer)
        if not topic.exists:
            return DELETED, None
        if known and known.waiting:
            self._register(topic, pointer, timeout, has_entries=True)
            known.last = topic.add(EntryKind.PUBLISH, self._clock(), known.waiting, pointer)
            known.waiting = []
        if known and known.last:
            return set(), known.last
        if pointer in topic.decisions:
            return WRONG | CONFLICT, None
        return (WRONG if known and known.has_stored else set()), None

    def rollback(
        self, topic: Named, pointer: int, stamps: Collection[int] | None
    ) -> tuple[Errors, list[Item]]:
        """Return the entries that are voided. Some of them may have left the log before."""
        if not topic.exists:
            return DELETED, []
        if _report(topic, pointer) == Decision.COMMITTED:
            return CONFLICT, []
        if topic.decisions.get(pointer) == Decision.TIMED_OUT:
            topic.decisions[pointer] = Decision.ABORTED
        known = topic.pointers.get(pointer)
        if known and stamps is None:
            known.waiting = []
        voided = [
            item
            for item in topic.items
            if item.pointer == pointer
            and not item.voided
            and (stamps is None or item.stamp in stamps)
        ]
        for item in voided:
            item.voided = True
        if known and known.last in voided:
            known.last = None
        return set(), voided

    def decide(self, topics: Sequence[Named], pointer: int, decision: Decision) -> Errors:
        errors: Errors = set()
        if not all(topic.exists for topic in topics):
            errors |= DELETED
        if any(_report(topic, pointer) not in (None, decision) for topic in topics):
            errors |= CONFLICT
        for topic in () if errors else topics:
            if topic.decisions.get(pointer) == Decision.TIMED_OUT:
                self._end_late(topic, pointer, decision)
            self.end(topic, pointer, decision)
        return errors

    def _end_late(self, topic: Named, pointer: int, decision: Decision) -> None:
        if decision == Decision.ABORTED:
            topic.decisions[pointer] = decision
        elif pointer not in topic.late:
            topic.late.add(pointer)
            now = self._clock()
            for item in [each for each in topic.items if each.pointer == pointer]:
                alive = [] if topic.is_gone(item, now) else item.alive(now)
                for line in item.lines:
                    if line.payload in alive:
                        topic.add(EntryKind.LATE, now, [line])

    def overdue(self, topic: Named) -> list[int]:
        now = self._clock()
        return [each for each in self.open(topic) if topic.pointers[each].expires < now]

    def open(self, topic: Named) -> list[int]:
        return [each for each in topic.pointers if each not in topic.decisions]

    def end(self, topic: Named, pointer: int, decision: Decision) -> None:
        if pointer in topic.decisions:
            return
        topic.decisions[pointer] = decision
        now = self._clock()
        known = topic.pointers.setdefault(pointer, PointerState(now, 0))
        known.decided = now
        if known.waiting:
            # A publish of them is refused, although there may be an earlier PUBLISH entry.
            known.waiting, known.last = [], None

    def forget(self, topic: Named, pointer: int) -> None:
        """Forget a decision that a sweep has removed: the pointer may begin again."""
        decided = topic.pointers.pop(pointer).decided
        del topic.decisions[pointer]
        topic.late.discard(pointer)
        assert decided < self._clock() - 1000 * topic.ttl - TWENTY_MINUTES_MS

    def _register(
        self, topic: Named, pointer: int, timeout: int, *, has_entries: bool
    ) -> PointerState:
        now = self._clock()
        known = topic.pointers.setdefault(pointer, PointerState(now, 0))
        if not known.has_entries:
            known.expires = now + timeout
            known.has_entries = has_entries
        return known


def _ended(topic: Named, pointer: int) -> Errors:
    errors = set() if topic.exists else DELETED
    return errors | CONFLICT if pointer in topic.decisions else errors


def _report(topic: Named, pointer: int) -> Decision | None:
    """Return what the owner has reported: not the time-out."""
    if pointer in topic.late:
        return Decision.COMMITTED
    found = topic.decisions.get(pointer)
    return None if found == Decision.TIMED_OUT else found
