"""Clients of topics that check each block when it comes, and topics that change meanwhile."""

from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from oplogd.errors import TopicNotFoundError
from oplogd.model.event_id import Mark, Millis
from oplogd.model.message import decode_content
from oplogd.model.message_id import MessageId
from oplogd.model.pointer import Decision
from oplogd.store.topic_bounds import TopicBounds
from oplogd.store.topics import Topic, TopicEntry, TopicLog, TopicRecord
from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.phases.phase import LogPhase
from oplogd.stream.ring.frames import TOPIC_RESET
from tests.kits.stream.topic_worlds import TopicWorld, next_chunk, position_of
from tests.kits.topics.memory import Generation, MemoryTopics

_T = TypeVar("_T")


class MeddledTopics(MemoryTopics):
    """Runs the next of ``meddle`` between a call of a log and its answer."""

    meddle: list[Callable[[], Awaitable[None]]]
    is_meddling: bool

    def log(self, topic: Topic) -> TopicLog:
        return _MeddledLog(self, super().log(topic))


class _MeddledLog:
    def __init__(self, topics: MeddledTopics, log: TopicLog) -> None:
        self._topics = topics
        self._log = log

    async def read(self, after: int, limit: int, at_ms: int | None = None) -> list[TopicEntry]:
        return await self._meddled(self._log.read(after, limit, at_ms))

    async def locate(self, ms: int = 0, sequence: int = 0) -> TopicBounds:
        return await self._meddled(self._log.locate(ms, sequence))

    async def expand(self, commit: TopicEntry, after: int, limit: int) -> list[TopicRecord]:
        return await self._meddled(self._log.expand(commit, after, limit))

    async def decisions(self, pointers: Collection[int]) -> dict[int, Decision]:
        return await self._meddled(self._log.decisions(pointers))

    async def _meddled(self, call: Awaitable[_T]) -> _T:
        answer = await call
        topics = self._topics
        if topics.meddle and not topics.is_meddling:
            topics.is_meddling = True
            try:
                await topics.meddle.pop(0)()
            finally:
                topics.is_meddling = False
        return answer


class History:
    """Everything that was ever published to one generation of a topic."""

    def __init__(self, world: TopicWorld, topic: Topic) -> None:
        self._world = world
        self.topic = topic
        self.generation: Generation = world.topics.generation(topic.log)
        self.beginning = self.generation.head
        self.entries: dict[tuple[int, int], TopicEntry] = {}

    def note(self, entries: list[TopicEntry]) -> None:
        self.entries.update({(entry.ms, entry.sequence): entry for entry in entries})

    @property
    def front(self) -> Mark:
        return self._world.topics.front(self.generation)

    def between(self, after: tuple[int, int], before: tuple[int, int]) -> list[TopicEntry]:
        return [entry for id_, entry in self.entries.items() if after < id_ < before]

    def is_past_its_own_end(self, entry: TopicEntry) -> bool:
        return 0 < entry.expires_ms < self._world.clock.ms


_END = (1 << 60, 0)


class TopicClient:
    """Keeps the last event id as a real client does.

    ``place``: time and sequence up to which it has every message, or was told of a gap.
    ``from_oldest``: it begins at the oldest message, so the ones that are gone are no loss.
    """

    def __init__(self, world: TopicWorld, history: History) -> None:
        self.world = world
        self.history = history
        self.consumer: StreamConsumer | None = None
        self.last_id = ""
        self.place = (0, 0)
        self.from_oldest = False
        self.resets = 0

    async def connect(self, last_id: str) -> None:
        """Connect at a message id, at ``0``, or at the head without an id."""
        self.last_id = last_id
        self.from_oldest = last_id == "0"
        if len(last_id) == 40:
            position = position_of(last_id)
            assert isinstance(position, MessageId)
            self.place = position.ms, position.sequence
        position_ = position_of(last_id) if last_id else None
        assert position_ is None or isinstance(position_, MessageId | Millis)
        try:
            self.consumer = await self.world.connect(self.history.topic, position_)
        except TopicNotFoundError:
            assert self.history.generation.deleted
            return
        if not last_id:
            assert isinstance(self.consumer.phase, LogPhase)
            mark = self.consumer.phase.mark
            self.place = mark.ms, mark.sequence

    def disconnect(self) -> None:
        if self.consumer is not None:
            self.world.hub.disconnect(self.consumer)
        self.consumer = None

    async def read(self) -> bool:
        """Read one chunk and check it. Return whether there was one."""
        if self.consumer is None:
            return False
        chunk = await next_chunk(self.consumer)
        for text in chunk.decode().split("\n\n")[:-1]:
            if f"{text}\n\n".encode() == TOPIC_RESET:
                self._take_reset()
            else:
                self._take(text)
        if self.consumer.ending:
            assert self.history.generation.deleted, "ended without a cause"
            self.disconnect()
        return bool(chunk)

    def check_drained(self) -> None:
        """Assert that nothing is missing when there is nothing more to read."""
        if self.consumer is not None:
            self._check_skipped(_END)

    def _take_reset(self) -> None:
        front = self.history.front
        assert self.place < (front.ms, front.sequence), "a reset without a cause"
        self.from_oldest = True
        self.last_id = "0"
        self.resets += 1

    def _take(self, text: str) -> None:
        id_, event, data = text.split("\n")
        position = position_of(id_.removeprefix("id: "))
        assert isinstance(position, MessageId)
        assert event == "event: message"
        place = position.ms, position.sequence
        assert place > self.place, "not later than the message before"
        assert data == f"data: {self.history.entries[place].data}"
        assert decode_content(data.removeprefix("data: ")).payload is not None
        self._check_skipped(place)
        self.place = place
        self.from_oldest = False
        self.last_id = str(position)

    def _check_skipped(self, place: tuple[int, int]) -> None:
        """Assert that nobody had to get the messages between the client's place and ``place``."""
        front = self.history.front.offset
        for entry in self.history.between(self.place, place):
            assert self.history.is_past_its_own_end(entry) or (
                self.from_oldest and entry.offset <= front
            ), f"message {entry.offset} is missing"
