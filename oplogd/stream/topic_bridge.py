"""The bridge of a topic: where the log does not continue, its consumers get ``reset``."""

from oplogd.event_id import Mark
from oplogd.message_id import MessageId
from oplogd.names import no_topic
from oplogd.store.topics import Topic, TopicEntry, TopicLog
from oplogd.stream.filters import Filter
from oplogd.stream.frames import TOPIC_RESET
from oplogd.stream.live import Live, LogPhase
from oplogd.stream.phase import Phase, Step, Subscription
from oplogd.stream.router import message_frame
from oplogd.stream.topic_start import TopicPosition, sought, topic_resume, topic_start


class TopicBridge:
    """See ``Bridge``. Positions are message ids and times.

    ``ended``: the topic is known to be deleted; nothing asks the store any more.
    """

    __slots__ = ("_log", "_topic", "ended")

    def __init__(self, topic: Topic, log: TopicLog) -> None:
        self._topic = topic
        self._log = log
        self.ended = False

    @property
    def log(self) -> TopicLog:
        """The topic's log. Raises TopicNotFoundError after ``ended`` is set."""
        if self.ended:
            raise no_topic(self._topic.name)
        return self._log

    async def begin(
        self, subscription: Subscription, position: TopicPosition | None, *, greeting: bool
    ) -> Phase:
        """Return the first phase of a consumer."""
        epoch = subscription.ring.epoch
        bounds = await self.log.locate(*sought(position))
        start = topic_start(position, bounds)
        if start.reset:
            return Live(subscription, start.mark, epoch, 0, reset=TOPIC_RESET)
        return Live(subscription, start.mark, epoch, 0, greeting=greeting)

    async def resume(self, phase: LogPhase) -> Step:
        """Continue as if the consumer reconnected at the phase's mark."""
        epoch = phase.ring.epoch
        bounds = await self.log.locate(phase.mark.ms, phase.mark.sequence)
        start = topic_resume(phase.mark, bounds)
        if start.reset:
            phase = Live(phase.subscription, start.mark, epoch, 0, reset=TOPIC_RESET)
        else:
            phase.confirm(epoch, 0)
        return Step(b"", phase)

    async def read(self, mark: Mark, limit: int) -> list[TopicEntry]:
        return await self.log.read(mark.offset, limit, mark.ms if mark.offset else None)

    def passing(self, entry: TopicEntry, filter_: Filter) -> tuple[Mark, bytes]:
        return Mark(entry.offset, entry.ms, entry.sequence), message_frame(entry)

    def position(self, mark: Mark, first_offset: int) -> str:
        return str(MessageId(mark.ms, mark.sequence))
