"""Clients of both isolations that check each block against the history of their topic."""

from oplogd.errors import TopicNotFoundError
from oplogd.model.message import message_hash
from oplogd.model.message_id import MessageId, end_id, parse_message_id
from oplogd.model.shard import Shard
from oplogd.model.transaction import Isolation
from oplogd.store.topics import Topic
from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.phases.phase import LivePhase, LogPhase
from oplogd.stream.ring.frames import TOPIC_RESET
from tests.kits.stream.topic_worlds import TopicWorld, next_chunk, position_of
from tests.kits.topics.memory import Generation
from tests.unit.stream.transactions.transacted_topics import COMMITTED, Event, events_of

_START = MessageId(0, 0)


class EventHistory:
    """All events that there ever were in one generation of a topic, for each kind of reader."""

    def __init__(self, world: TopicWorld, topic: Topic) -> None:
        self._world = world
        self.topic = topic
        self.generation: Generation = world.topics.generation(topic.log)
        self.events: dict[Isolation, list[Event]] = {each: [] for each in Isolation}
        # Ids of all entries, as uncommitted readers would see them.
        self.ids: list[MessageId] = []
        self._noted = 0

    def note(self) -> None:
        """Note the entries that have come since the last call. Call it after each append."""
        for entry in self.generation.entries:
            if entry.offset > self._noted:
                self._noted = entry.offset
                self.ids.append(MessageId(entry.ms, entry.sequence))
                for isolation, events in self.events.items():
                    events += events_of(entry, isolation, self._world.topics, self.topic)

    @property
    def front(self) -> tuple[int, int]:
        front = self._world.topics.front(self.generation)
        return front.ms, front.sequence

    @property
    def front_offset(self) -> int:
        return self._world.topics.front(self.generation).offset

    def is_gap(self, place: MessageId, isolation: Isolation) -> bool:
        """Return whether events that followed a place may have left at the front."""
        if place[:2] < self.front:
            return True
        return isolation is COMMITTED and place.is_inside and place[:2] == self.front

    def between(
        self, after: MessageId, before: MessageId | None, isolation: Isolation
    ) -> list[Event]:
        return [
            event
            for event in self.events[isolation]
            if event.id > after and (before is None or event.id < before)
        ]

    def is_past_its_own_end(self, event: Event) -> bool:
        return 0 < event.expires_ms < self._world.clock.ms


class EventClient:
    """Keeps the last event id as a real client does.

    ``place``: it has every event up to there, or was told of a gap. ``from_oldest``: it begins at
    the oldest event, so the ones that are gone are no loss.
    """

    def __init__(
        self,
        world: TopicWorld,
        history: EventHistory,
        isolation: Isolation,
        shard: Shard | None = None,
    ) -> None:
        self.shard = shard
        self.world = world
        self.history = history
        self.isolation = isolation
        self.consumer: StreamConsumer | None = None
        self.last_id = ""
        self.place = _START
        self.from_oldest = False

    async def connect(self, last_id: str) -> None:
        """Connect at an id, at ``0``, or at the head without an id."""
        self.last_id = last_id
        self.from_oldest = last_id == "0"
        if len(last_id) == 40:
            self.place = self._seen(parse_message_id(last_id))
        try:
            self.consumer = await self.world.hub.connect_topic(
                self.history.topic,
                position_of(last_id) if last_id else None,
                checkpoints=False,
                address="host:1",
                isolation=self.isolation,
                shard=self.shard,
            )
        except TopicNotFoundError:
            assert self.history.generation.deleted
            return
        if not last_id:
            assert isinstance(self.consumer.phase, LogPhase)
            self.place = self._seen(end_id(*self.consumer.phase.mark[1:]))

    def disconnect(self) -> None:
        if self.consumer is not None:
            self.world.hub.disconnect(self.consumer)
        self.consumer = None

    async def read(self) -> bool:
        """Read one chunk and check it. Return whether there was one."""
        if self.consumer is None:
            return False
        sent = self.consumer.sent
        chunk = await next_chunk(self.consumer)
        events = 0
        for text in chunk.decode().split("\n\n")[:-1]:
            if f"{text}\n\n".encode() == TOPIC_RESET:
                self._take_reset()
            else:
                self._take(text)
                events += 1
        assert self.consumer.sent == sent + events
        if self.consumer.ending:
            assert self.history.generation.deleted, "ended without a cause"
            self.disconnect()
        return bool(chunk)

    def take_checkpoint(self) -> None:
        """Take a checkpoint as a heartbeat would bring it: not while a reset is due."""
        phase = self.consumer.phase if self.consumer else None
        if not isinstance(phase, LogPhase) or (isinstance(phase, LivePhase) and phase.reset):
            return
        for text in phase.checkpoint().decode().split("\n\n")[:-1]:
            place = parse_message_id(text.removeprefix("id: "))
            assert place >= self.place, "a checkpoint before the last event"
            self._check_skipped(place._replace(payload_sequence=place.payload_sequence + 1))
            self.place = place
            self.last_id = str(place)

    def check_drained(self) -> None:
        """Assert that nothing is missing when there is nothing more to read."""
        if self.consumer is not None:
            self._check_skipped(None)
            assert self.consumer.lag() == (0, 0)

    @property
    def _events(self) -> list[Event]:
        return self.history.events[self.isolation]

    def _seen(self, place: MessageId) -> MessageId:
        """Return the part of a place that counts for this client."""
        return place if self.isolation is COMMITTED else MessageId(*place[:2])

    def _take_reset(self) -> None:
        assert self.history.is_gap(self.place, self.isolation), "a reset without a cause"
        self.from_oldest = True
        self.last_id = "0"

    def _take(self, text: str) -> None:
        id_, event, data = text.split("\n")
        assert event == "event: message"
        place = parse_message_id(id_.removeprefix("id: "))
        assert place > self.place, "not later than the event before"
        (expected,) = (each for each in self._events if each.id == place)
        assert self._wants(expected), "it is in another shard"
        assert data == f"data: {expected.data}"
        self._check_skipped(place)
        self.place = place
        self.from_oldest = False
        self.last_id = str(place)

    def _check_skipped(self, before: MessageId | None) -> None:
        """Assert that nobody had to get the events between the client's place and another."""
        front = self.history.front_offset
        for event in self.history.between(self.place, before, self.isolation):
            is_gone = self.from_oldest and event.offset <= front
            is_gone = is_gone or self.history.is_past_its_own_end(event)
            assert is_gone or not self._wants(event), f"{event.id} is missing"

    def _wants(self, event: Event) -> bool:
        return self.shard is None or self.shard.has(message_hash(str(event.id), event.data))
