"""Clients of topics with pointers that check each block against the history of their topic."""

from dataclasses import dataclass

from oplogd.errors import TopicNotFoundError
from oplogd.model.message import message_hash
from oplogd.model.message_id import MessageId, end_id, parse_message_id, stamp, stored_id
from oplogd.model.pointer import Decision
from oplogd.model.shard import Shard
from oplogd.model.transaction import Isolation, decode_marker
from oplogd.store.topics import EntryKind, Topic
from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.phases.phase import LivePhase, LogPhase
from oplogd.stream.ring.frames import TOPIC_RESET
from oplogd.stream.topic_feed import Peeked
from tests.kits.stream.topic_worlds import TopicWorld, next_chunk, position_of
from tests.kits.topics.memory import Generation
from tests.unit.stream.transactions.transacted_topics import COMMITTED


@dataclass
class Event:
    """A message, wherever it was published. ``offset``: of its entry.

    ``is_void``: it was rolled back, or a sweep has removed it (``is_swept``). ``is_hidden``: it was
    rolled back before the decision, so no committed reader may ever get it.
    """

    id: MessageId
    data: str
    offset: int
    pointer: int | None
    is_void: bool = False
    is_swept: bool = False
    is_hidden: bool = False


class PointerHistory:
    """All messages that there ever were in one generation of a topic."""

    def __init__(self, world: TopicWorld, topic: Topic) -> None:
        self._world = world
        self.topic = topic
        self.generation: Generation = world.topics.generation(topic.log)
        self.events: list[Event] = []
        self._noted = 0
        self._rounds = [0, 0]

    def pointer(self, who: int) -> int:
        """Return the open pointer of one of the publishers. Each topic has its own."""
        return 1_000_000 * self.topic.log + 10 * self._rounds[who] + who

    def decide(self, who: int) -> None:
        self._rounds[who] += 1

    def note(self) -> None:
        """Note the entries that have come since the last call. Call it after each append."""
        for entry in self.generation.entries:
            if entry.offset <= self._noted:
                continue
            self._noted = entry.offset
            place = entry.ms, entry.sequence
            if entry.event in (EntryKind.MESSAGE, EntryKind.DIRECT):
                made = [(MessageId(*place), entry.data)]
            elif entry.event == EntryKind.PUBLISH and entry.pointer is not None:
                marker = decode_marker(entry.data)
                stored = self._world.topics.stored[self.topic.log, entry.pointer]
                made = [
                    (stored_id(*place, number, is_last=number == marker.last), each.data.decode())
                    for number, each in stored.items()
                    if marker.after < number <= marker.last
                ]
            else:
                continue
            self.events += [Event(id_, data, entry.offset, entry.pointer) for id_, data in made]

    def roll_back(self, pointer: int, share: float | None) -> list[int] | None:
        """Note that the first entries of a pointer are voided. Return their stamps; None: all."""
        offsets = sorted({each.offset for each in self.events if each.pointer == pointer})
        chosen = offsets if share is None else offsets[: round(share * len(offsets))]
        stamps = []
        for event in self.events:
            if event.offset in chosen and event.pointer == pointer:
                stamps.append(stamp(*event.id[:2]))
                event.is_void = True
                event.is_hidden = self.decision(event) is None
        return None if share is None else stamps

    def sweep(self) -> None:
        """Note that the messages of aborted pointers are removed, and nobody is told."""
        for event in self.events:
            event.is_swept |= self.decision(event) is Decision.ABORTED

    def decision(self, event: Event) -> Decision | None:
        """Return the decision about an event; a message without a pointer has committed."""
        if event.pointer is None:
            return Decision.COMMITTED
        return self._world.topics.decided.get((self.topic.log, event.pointer))

    def is_open(self, event: Event) -> bool:
        return not event.is_void and self.decision(event) is None

    def is_due(self, event: Event, isolation: Isolation) -> bool:
        """Return whether a reader must not pass an event without getting it."""
        if event.is_void or event.is_swept:
            return False
        return isolation is not COMMITTED or self.decision(event) in (None, Decision.COMMITTED)

    @property
    def front(self) -> tuple[int, int]:
        front = self._world.topics.front(self.generation)
        return front.ms, front.sequence

    @property
    def front_offset(self) -> int:
        return self._world.topics.front(self.generation).offset

    def is_gap(self, place: MessageId) -> bool:
        """Return whether events that followed a place may have left at the front."""
        return place[:2] < self.front or (place.is_inside and place[:2] == self.front)

    def check_found(self, found: Peeked, after: MessageId, isolation: Isolation) -> None:
        """Compare the messages that a poll has found in memory."""
        assert not self.is_gap(after), "a gap is not announced"
        rest = [each for each in self.events if each.id > after]
        if isolation is not COMMITTED and any(each.is_swept for each in rest):
            return  # the ring may still have them
        expected: list[tuple[MessageId, str]] = []
        held_by = None
        for each in rest:
            if each.offset <= self.front_offset:
                continue
            if isolation is COMMITTED and self.is_open(each):
                held_by = each.pointer
                break
            if self.is_due(each, isolation):
                expected.append((each.id, each.data))
        assert found == Peeked(expected, held_by)


class PointerClient:
    """Keeps the last event id as a real client does.

    ``place``: it has every event up to there, or was told of a gap. ``from_oldest``: it begins at
    the oldest event. ``is_current``: the ring has every rollback, so it must get no void event.
    """

    def __init__(
        self,
        world: TopicWorld,
        history: PointerHistory,
        isolation: Isolation,
        shard: Shard | None = None,
    ) -> None:
        self.shard = shard
        self.world = world
        self.history = history
        self.isolation = isolation
        self.consumer: StreamConsumer | None = None
        self.last_id = ""
        self.place = MessageId(0, 0)
        self.from_oldest = False
        self.is_current = False

    async def connect(self, last_id: str) -> None:
        """Connect at an id, at ``0``, or at the head without an id."""
        self.last_id = last_id
        self.from_oldest = last_id == "0"
        if len(last_id) == 40:
            self.place = parse_message_id(last_id)
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
            self.place = end_id(*self.consumer.phase.mark[1:])

    def disconnect(self) -> None:
        if self.consumer is not None:
            self.world.hub.disconnect(self.consumer)
        self.consumer = None

    async def read(self) -> bool:
        """Read one chunk and check it. Return whether there was one."""
        if self.consumer is None:
            return False
        sent, events = self.consumer.sent, 0
        chunk = await next_chunk(self.consumer)
        for text in chunk.decode().split("\n\n")[:-1]:
            if f"{text}\n\n".encode() == TOPIC_RESET:
                assert self.history.is_gap(self.place), "a reset without a cause"
                self.from_oldest, self.last_id = True, "0"
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
            self._check_skipped(place, inclusive=True)
            if place > self.place:
                self.place = place
            self.last_id = str(place)

    def check_drained(self) -> None:
        """Assert that nothing is missing, and that the hold is told."""
        if self.consumer is None:
            return
        history = self.history
        for event in history.events:
            if event.id <= self.place:
                continue
            if self.isolation is COMMITTED and history.is_open(event):
                if not event.id.is_stored and not self._wants(event):
                    continue  # a message of another shard holds no reader
                is_gone = event.offset <= history.front_offset
                assert is_gone or self.consumer.held_by == event.pointer
                return
            self._check_not_due(event)
        assert self.consumer.held_by is None
        assert self.consumer.lag() == (0, 0)

    def _take(self, text: str) -> None:
        id_, event_, data = text.split("\n")
        assert event_ == "event: message"
        place = parse_message_id(id_.removeprefix("id: "))
        assert place > self.place, "not later than the event before"
        (event,) = (each for each in self.history.events if each.id == place)
        assert self._wants(event), "it is in another shard"
        assert data == f"data: {event.data}"
        assert not (event.is_void and self.is_current), "it was rolled back"
        if self.isolation is COMMITTED:
            assert self.history.decision(event) is Decision.COMMITTED
            assert not event.is_hidden, "it was rolled back before the commit"
        self._check_skipped(place)
        self.place, self.from_oldest, self.last_id = place, False, str(place)

    def _check_skipped(self, before: MessageId, *, inclusive: bool = False) -> None:
        """Assert that nobody had to get the events between the client's place and another."""
        for event in self.history.events:
            if self.place < event.id and (event.id < before or (inclusive and event.id == before)):
                self._check_not_due(event)

    def _check_not_due(self, event: Event) -> None:
        is_due = self.history.is_due(event, self.isolation) and self._wants(event)
        is_gone = self.from_oldest and event.offset <= self.history.front_offset
        assert not is_due or is_gone, f"{event.id} is missing"

    def _wants(self, event: Event) -> bool:
        return self.shard is None or self.shard.has(message_hash(str(event.id), event.data))
