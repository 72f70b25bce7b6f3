"""The bridge of a topic: where the log does not continue, its consumers get ``reset``."""

from collections.abc import Callable, Sequence

from oplogd.model.event_id import Mark
from oplogd.model.isolation import EntryKind, Reading, reading
from oplogd.model.message_id import MessageId, end_id, stamp, unstamp
from oplogd.model.names import no_topic
from oplogd.model.transaction import decode_marker
from oplogd.store.topics import Topic, TopicEntry, TopicLog
from oplogd.stream.phases.catch_up import Expansion, records_left
from oplogd.stream.phases.phase import Bridge, LivePhase, LogPhase, Phase, Step, Subscription
from oplogd.stream.phases.record_pages import entry_at
from oplogd.stream.phases.start import (
    TopicPosition,
    TopicStart,
    records_wanted,
    sought,
    topic_resume,
    topic_start,
)
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.frames import TOPIC_RESET, is_of_another, mark_of, uncommitted_frame

_PUBLISH = EntryKind.PUBLISH.value


class TopicBridge(Bridge):
    """See ``Bridge``. Positions are message ids and times.

    ``shown`` gets the log and the offset of the last entry of each page read for a consumer.
    ``ended``: the topic is known to be deleted; nothing asks the store any more.
    """

    __slots__ = ("_log", "_shown", "_topic", "ended")

    def __init__(self, topic: Topic, log: TopicLog, shown: Callable[[int, int], None]) -> None:
        self._topic = topic
        self._log = log
        self._shown = shown
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
        filter_ = subscription.view.filter
        start = topic_start(position, bounds, committed=filter_.committed)
        after = records_wanted(position, bounds, committed=filter_.committed)
        if after is not None and not start.reset:
            assert isinstance(position, MessageId)
            entry = await entry_at(self.log, bounds.at)
            if entry and reading(entry.event, filter_.isolation, Reading.PASS) is Reading.EXPAND:
                return Expansion(
                    subscription,
                    bounds.at,
                    epoch,
                    after=after,
                    left=records_left(decode_marker(entry.data), after),
                    reached=position,
                    is_judged=False,
                    greeting=greeting,
                )
            if after >= 0:  # it expanded when the consumer got this id
                bounds = await self.log.locate(*sought(position))
                start = topic_start(position, bounds, committed=filter_.committed)
        if start.reset:
            mark = start.mark
            if after is not None and after >= 0 and mark == bounds.at != bounds.front:
                # It continues with the first record of the entry that it stands within.
                before = unstamp(stamp(mark.ms, mark.sequence) - 1)
                mark = (await self.log.locate(*before)).at
            return LivePhase(subscription, mark, epoch, reset=TOPIC_RESET)
        return LivePhase(subscription, start.mark, epoch, greeting=greeting)

    async def resume(self, phase: LogPhase) -> Step:
        """Continue as if the consumer reconnected at the phase's mark."""
        epoch = phase.subscription.ring.epoch
        bounds = await self.log.locate(phase.mark.ms, phase.mark.sequence)
        inside = isinstance(phase, Expansion)
        start = topic_resume(phase.mark, bounds, inside=inside)
        if isinstance(phase, Expansion) and phase.is_lost and not start.reset:
            start = TopicStart(phase.mark, reset=True)
        if start.reset:
            phase = LivePhase(phase.subscription, start.mark, epoch, reset=TOPIC_RESET)
        else:
            phase.epoch = epoch
        return Step(b"", phase)

    async def read(self, mark: Mark, limit: int) -> list[TopicEntry]:
        entries = await self.log.read(mark.offset, limit, mark.ms if mark.offset else None)
        if entries:
            self._shown(self._topic.log, entries[-1].offset)
        return entries

    def may_expand(self, entries: Sequence[TopicEntry], filter_: Filter) -> bool:
        return filter_.committed or _PUBLISH in [entry.event for entry in entries]

    def passing(self, entry: TopicEntry, filter_: Filter) -> tuple[Mark, bytes]:
        if filter_.shard is not None and is_of_another(filter_.shard, entry):
            return mark_of(entry), b""
        return mark_of(entry), uncommitted_frame(entry)

    def position(self, mark: Mark, first_offset: int) -> str:
        return str(end_id(mark.ms, mark.sequence))
