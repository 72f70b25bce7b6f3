"""Answers polls of topics."""

from collections.abc import Callable

from oplogd.errors import TopicNotFoundError
from oplogd.message_id import MessageId
from oplogd.names import TopicName
from oplogd.store.topics import Topic, Topics
from oplogd.topics.codec import Polled, PollRequest
from oplogd.topics.counters import TopicCounters
from oplogd.topics.gathering import NO_VOID, Gathering, Void
from oplogd.topics.known import KnownTopics
from oplogd.topics.poll import MAX_ANSWER_BYTES, Answer, Begin, PollStart, limit_of
from oplogd.transaction import Isolation

# Returns messages of a topic past an id from memory (None: from the oldest), at most a number and
# about a number of bytes, for readers of an isolation. None: memory may lack some of them.
Peek = Callable[[Topic, MessageId | None, int, int, Isolation], list[tuple[MessageId, str]] | None]

_MAX_VOIDS = 10_000


class Poller:
    """``limit``: the most messages of an answer. ``peek``: reads from memory."""

    def __init__(
        self,
        topics: Topics,
        known: KnownTopics,
        counters: TopicCounters,
        limit: int,
        peek: Peek | None = None,
    ) -> None:
        self._topics = topics
        self._known = known
        self._counters = counters
        self._limit = limit
        self._peek = peek
        # A poll over many entries that have nothing for it is slow once.
        self._void: dict[tuple[int, Isolation], Void] = {}

    async def poll(self, name: TopicName, request: PollRequest) -> Answer:
        """Return the messages of a topic from a position on. Never waits for new ones.

        Raises MessageError, TopicNotFoundError and StoreUnavailableError.
        """
        topic = await self._known.find(name)
        try:
            answer = await self._read(topic, request)
        except TopicNotFoundError:  # deleted since it was looked up
            topic = await self._known.find(name, other_than=topic)
            answer = await self._read(topic, request)
        self._counters.add_polled(name, len(answer.messages))
        return answer

    async def _read(self, topic: Topic, request: PollRequest) -> Answer:
        start = PollStart(request)
        limit, isolation = limit_of(request, self._limit), request.isolation
        if self._peek is not None:
            found = self._peek(topic, start.after, limit, MAX_ANSWER_BYTES, isolation)
            if found is not None:
                return Answer([Polled(str(id_), data) for id_, data in found], gap=False)
        log = self._topics.log(topic)
        begin = Begin(0, False)
        if start.after is not None:
            begin = start.resolve(await log.locate(start.after.ms, start.after.sequence))
        key = topic.log, isolation
        known = self._void.get(key, NO_VOID)
        gathering = Gathering(begin, limit, isolation, from_oldest=start.after is None, known=known)
        while gathering.is_open:
            entries = await log.read(gathering.after, gathering.wanted)
            for commit in gathering.take(entries):
                while commit.is_open:
                    commit.take(await log.expand(commit.entry, commit.after, commit.wanted))
        if gathering.void != known:
            if len(self._void) >= _MAX_VOIDS:
                self._void.clear()
            self._void[key] = gathering.void
        return Answer(gathering.messages, gathering.gap)
