"""Pointers of foreign transactions as clients use them: names of topics instead of logs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from oplogd.errors import (
    OplogError,
    StoreUnavailableError,
    TopicNotFoundError,
    TransactionConflictError,
)
from oplogd.model.event_id import Mark
from oplogd.model.message import Message
from oplogd.model.names import TopicName
from oplogd.model.pointer import Decision, decided
from oplogd.store.pointers import (
    FoundPointer,
    Marks,
    OpenPointer,
    PointerKey,
    Pointers,
    TimedOutPointer,
)
from oplogd.store.topics import Topic, Topics
from oplogd.store.transactions import RecordLimits
from oplogd.topics.counters import TopicCounters
from oplogd.topics.known import KnownTopics
from oplogd.topics.pointers.rules import EntryShown, entry_shown, pointer_shown
from oplogd.topics.publish import Acknowledged, without_rings
from oplogd.topics.transactions.room import RecordRoom


class PointerService:
    """Publishes, stores, rolls back, decides and shows.

    Methods raise StoreUnavailableError, and TopicNotFoundError. A topic created again
    since it was looked up is another one: nothing is there under a pointer.

    ``timeout``: of a pointer in seconds. ``acknowledged`` gets the last durable entry of a log
    before a request is answered. ``is_followed``: whether this agent keeps the newest entries of a
    log in memory. ``room``: for the messages of all requests waiting for the store.
    """

    def __init__(
        self,
        pointers: Pointers,
        topics: Topics,
        known: KnownTopics,
        counters: TopicCounters,
        limits: RecordLimits,
        timeout: int,
        room: RecordRoom,
        acknowledged: Acknowledged = without_rings,
        is_followed: Callable[[int], bool] = lambda log: False,
    ) -> None:
        self._pointers = pointers
        self._topics = topics
        self._known = known
        self._counters = counters
        self._limits = limits
        self._timeout_ms = timeout * 1000
        self._room = room
        self._acknowledged = acknowledged
        self._is_followed = is_followed

    async def publish(self, name: TopicName, pointer: int, messages: Sequence[Message]) -> Marks:
        """Publish messages, or the stored ones if there are none. Return the marks of the entries.

        There is no mark if nothing was stored. See ``Pointers.publish`` and
        ``Pointers.publish_stored``. Raises QueueFullError.
        """

        async def append(topic: Topic) -> tuple[int, Marks]:
            log, timeout = topic.log, self._timeout_ms
            if not messages:
                mark = await self._pointers.publish_stored(log, pointer, timeout)
                return log, Marks([] if mark is None else [mark])
            return log, await self._pointers.publish(log, pointer, messages, timeout)

        with self._counted(name, messages):
            log, marks = await self._known.using(name, append, messages)
        if marks:
            self._acknowledged(log, marks.last.offset)
        return marks

    async def store(self, name: TopicName, pointer: int, messages: Sequence[Message]) -> None:
        """Store messages: see ``Pointers.store``. Raises QueueFullError."""
        timeout, limits = self._timeout_ms, self._limits
        with self._counted(name, messages):
            await self._known.using(
                name,
                lambda topic: self._pointers.store(topic.log, pointer, messages, timeout, limits),
                messages,
            )

    async def rollback(
        self, name: TopicName, pointer: int, stamps: Sequence[int] | None, *, force: bool = False
    ) -> None:
        """Void entries of a pointer: see ``Pointers.rollback``."""

        async def void(topic: Topic) -> tuple[Topic, Mark | None]:
            mark = await self._pointers.rollback(topic.log, pointer, stamps, force=force)
            return topic, mark

        topic, mark = await self._known.using(name, void)
        if mark is not None:
            self._acknowledged(topic.log, mark.offset)
        elif self._is_followed(topic.log):
            # The same request before, at another agent perhaps, may have appended the entry.
            with suppress(StoreUnavailableError, TopicNotFoundError):
                bounds = await self._topics.log(topic).locate()
                self._acknowledged(topic.log, bounds.head.offset)

    async def decide(self, names: Sequence[TopicName], pointer: int, decision: Decision) -> None:
        """Decide a pointer in topics: see ``Pointers.decide``. Nothing is if one does not exist.

        Raises TransactionConflictError. It names a topic in which the pointer is decided
        otherwise, if it is one of these.
        """
        topics = await self._existing(names)
        try:
            await self._decide(topics, pointer, decision)
        except TopicNotFoundError:
            await self._decide(await self._existing(names), pointer, decision)

    async def select(
        self, name: TopicName, limit: int, after: PointerKey | None = None
    ) -> list[OpenPointer]:
        """Return open pointers of a topic past a key, the oldest first.

        The log of ``after`` is not looked at.
        """

        async def select(topic: Topic) -> list[OpenPointer]:
            key = after and after._replace(log=topic.log)
            return await self._pointers.select(topic.log, limit, key)

        return await self._known.using(name, select)

    async def select_all(self, limit: int, after: PointerKey | None = None) -> list[FoundPointer]:
        """Return open pointers of all topics past a key: see ``Pointers.select_all``."""
        return await self._pointers.select_all(limit, after)

    async def shown(self, found: Sequence[FoundPointer]) -> list[dict[str, Any]]:
        """Return pointers for an answer, without those of deleted topics."""
        names = await self.topics_of(found)
        return [
            {**names[each.log]._asdict(), **pointer_shown(each.open, is_of_all=True)}
            for each in found
            if each.log in names
        ]

    async def topics_of(self, found: Sequence[FoundPointer]) -> dict[int, TopicName]:
        """Return the topics of pointers by log, without deleted ones."""
        topics = await self._topics.current({each.log for each in found}) if found else {}
        return {log: topic.name for log, topic in topics.items()}

    async def timed_out(self, name: TopicName, limit: int) -> list[TimedOutPointer]:
        """Return timed out pointers of a topic: see ``Pointers.timed_out``."""
        return await self._known.using(
            name, lambda topic: self._pointers.timed_out(topic.log, limit)
        )

    async def entries(self, name: TopicName, after: int | None, limit: int) -> list[dict[str, Any]]:
        """Return up to ``limit`` entries after an offset for an answer. None: the newest."""
        return await self._known.using(name, lambda topic: self._entries(topic, after, limit))

    @contextmanager
    def _counted(self, name: TopicName, messages: Sequence[Message]) -> Iterator[None]:
        """Take room for messages, and count them. Raises QueueFullError."""
        try:
            with self._room.taken(len(messages), sum(len(each.data) for each in messages)):
                yield
        except OplogError:
            self._counters.add_refused(len(messages))
            raise
        self._counters.add_published(name, len(messages))

    async def _existing(self, names: Sequence[TopicName]) -> list[Topic]:
        """Return the present topics of these names. Raises TopicNotFoundError."""
        return await self._known.still([await self._known.find(name) for name in names])

    async def _decide(self, topics: Sequence[Topic], pointer: int, decision: Decision) -> None:
        try:
            marks = await self._pointers.decide([topic.log for topic in topics], pointer, decision)
        except TransactionConflictError as error:
            raise await self._conflict(topics, pointer, decision) or error from None
        for log, mark in marks.items():
            self._acknowledged(log, mark.offset)

    async def _conflict(
        self, topics: Sequence[Topic], pointer: int, decision: Decision
    ) -> TransactionConflictError | None:
        """Return an error with the name of the topic with another report."""
        for topic in topics:
            found = (await self._topics.log(topic).decisions([pointer])).get(pointer)
            if found not in (None, decision, Decision.TIMED_OUT):
                return TransactionConflictError(f"{topic.name}: {decided(pointer, found)}")
        return None

    async def _entries(self, topic: Topic, after: int | None, limit: int) -> list[dict[str, Any]]:
        log = self._topics.log(topic)
        if after is None:
            after = max(0, (await log.locate()).head.offset - limit)
        shown: list[EntryShown] = []
        while len(shown) < limit and (page := await log.read(after, limit - len(shown))):
            shown += map(entry_shown, page)
            after = page[-1].offset
            self._acknowledged(topic.log, after)
        pointers = {each.pointer for each in shown if each.pointer is not None}
        decisions = await log.decisions(pointers) if pointers else {}
        return [each.members(decisions) for each in shown]
