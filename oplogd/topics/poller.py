"""Answers polls of topics."""

from dataclasses import dataclass, field

from oplogd.model.isolation import EntryKind
from oplogd.model.message_id import MessageId
from oplogd.model.names import TopicName
from oplogd.model.shard import Shard
from oplogd.model.transaction import Isolation
from oplogd.store.topics import Topic, TopicLog, Topics
from oplogd.topics.codec.codec import PollMessage, PollRequest
from oplogd.topics.counters import TopicCounters
from oplogd.topics.gathering import NO_VOIDS, Gathering, PollExpansion, Voids
from oplogd.topics.known import KnownTopics
from oplogd.topics.memory import Memory
from oplogd.topics.poll import MAX_ANSWER_BYTES, PollAnswer, PollStart, limit_of
from oplogd.topics.reading import begin_of, decided
from oplogd.topics.shards import peek_shard

# Most known rows of entries without messages, of all topics: 10 MB.
_MAX_ROWS = 64_000


@dataclass(eq=False)
class Poller:
    """``limit``: the most messages of an answer. ``memory`` answers what it can."""

    topics: Topics
    known: KnownTopics
    counters: TopicCounters
    limit: int
    memory: Memory | None = None
    # A poll over many entries with nothing for it is slow once.
    _voids: dict[tuple[int, Isolation], Voids] = field(default_factory=dict, init=False)
    _rows: int = field(default=0, init=False)

    async def poll(
        self, name: TopicName, request: PollRequest, shard: Shard | None = None
    ) -> PollAnswer:
        """Return the messages of a topic from a position on. Never waits for new ones.

        Messages outside the shard are left out, and the poll reads on behind them: no message means
        that the topic has none of it. With a shard the answer tells the position reached.
        Raises MessageError, TopicNotFoundError and StoreUnavailableError.
        """
        answer = await self.known.using(name, lambda topic: self._read(topic, request, shard))
        self.counters.add_polled(name, len(answer.messages))
        return answer

    async def _read(self, topic: Topic, request: PollRequest, shard: Shard | None) -> PollAnswer:
        start = PollStart(request)
        isolation, snapshot = request.isolation, request.snapshot
        limit = limit_of(request, self.limit)
        memory = self.memory
        if memory is not None and snapshot is None:
            asked = topic, start.after, limit
            if shard is None:
                answer = await _peek(memory, *asked, isolation)
            else:
                answer = await peek_shard(memory, *asked, isolation, shard)
            if answer is not None:
                return answer
        log = self.topics.log(topic)
        begin = await begin_of(log, start)
        key = topic.log, isolation
        known = self._voids.get(key, NO_VOIDS) if snapshot is None else NO_VOIDS
        gathering = Gathering(
            begin,
            limit,
            isolation,
            from_oldest=start.after is None,
            known=known,
            has_snapshot=snapshot is not None,
            shard=shard,
        )
        while gathering.is_open:
            entries = await log.read(gathering.after, gathering.wanted)
            if entries and memory is not None:
                memory.acknowledged(topic.log, entries[-1].offset)
            if snapshot is not None:
                expansions = gathering.take(entries, snapshot.verdict)
            elif isolation is Isolation.READ_COMMITTED:
                expansions = gathering.take(*await decided(log, gathering.after, entries))
            else:
                expansions = gathering.take(entries)
            for expansion in expansions:
                await _expand(log, expansion)
        if snapshot is None and gathering.voids != known:
            self._remember(key, gathering.voids)
        reached = None if shard is None else gathering.reached
        return PollAnswer(gathering.messages, gathering.gap, gathering.held_by, reached)

    def _remember(self, key: tuple[int, Isolation], voids: Voids) -> None:
        # Another poll of the topic may have ended since this one began.
        for row in self._voids.get(key, NO_VOIDS).rows:
            voids = voids.adding(row)
        if self._rows >= _MAX_ROWS:
            self._voids.clear()
            self._rows = 0
        self._rows += len(voids.rows) - len(self._voids.get(key, NO_VOIDS).rows)
        self._voids[key] = voids


async def _peek(
    memory: Memory, topic: Topic, after: MessageId | None, limit: int, isolation: Isolation
) -> PollAnswer | None:
    found = await memory.peek_soon(topic, after, limit, MAX_ANSWER_BYTES, isolation)
    if found is None:
        return None
    messages = [PollMessage(str(id_), data) for id_, data in found.messages]
    return PollAnswer(messages, gap=False, held_by=found.held_by)


async def _expand(log: TopicLog, expansion: PollExpansion) -> None:
    """Read the records of an entry into the answer."""
    entry = expansion.entry
    while expansion.is_open:
        expansion.take(await log.expand(entry, expansion.after, expansion.wanted))
    if expansion.lacks:
        now = await log.read(entry.offset - 1, 1) if entry.event == EntryKind.PUBLISH else [entry]
        if not now or now[0].offset != entry.offset or now[0].event == entry.event:
            expansion.lose()
