"""The bridge of the oplog: where the log does not continue, its consumers get states."""

from collections.abc import Collection, Sequence

from oplogd.model.event_id import EventId, Mark, Position, format_id
from oplogd.model.operation import Data
from oplogd.model.pointer import Decision
from oplogd.store import Entry, LogBounds, Store, decode_stored
from oplogd.store.topics import TopicEntry, TopicRecord
from oplogd.stream.phases.live import Live
from oplogd.stream.phases.phase import AtMark, Phase, Step, Subscription
from oplogd.stream.phases.replication import Replication
from oplogd.stream.phases.start import After, FullReplication, Since, resolve, resolve_mark
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.frames import Framer, beginning_position


class OplogBridge:
    """See ``Bridge``. Positions are event ids and times."""

    def __init__(self, store: Store, framer: Framer) -> None:
        self.store = store
        self.framer = framer

    async def begin(
        self, subscription: Subscription, position: Position | None, *, greeting: bool
    ) -> Phase:
        """Return the first phase of a consumer."""
        epoch = subscription.ring.epoch
        bounds = await self.store.locate(position.offset if isinstance(position, EventId) else 0)
        start = resolve(position, bounds, bounds.now_ms)
        if isinstance(start, After):
            return Live(subscription, start.mark, epoch, bounds.first_offset, greeting=greeting)
        if isinstance(position, EventId):
            subscription.counters.to_states += 1
        return self._replication(subscription, start, bounds)

    async def resume(self, phase: AtMark) -> Step:
        """Continue as if the consumer reconnected at the phase's mark."""
        subscription = phase.subscription
        epoch = subscription.ring.epoch
        bounds = await self.store.locate(phase.mark.offset)
        start = resolve_mark(phase.mark, bounds, bounds.now_ms)
        if isinstance(start, After):
            phase.confirm(epoch, bounds.first_offset)
            return Step(b"", phase)
        subscription.counters.to_states += 1
        return Step(b"", self._replication(subscription, start, bounds))

    async def read(self, mark: Mark, limit: int) -> list[Entry]:
        return await self.store.read(mark.offset, limit, mark.ms)

    def may_expand(self, entries: Sequence[Entry], filter_: Filter) -> bool:
        """Return False: no entry of the oplog expands."""
        return False

    def passing(self, entry: Entry, filter_: Filter) -> tuple[Mark, bytes]:
        mark = Mark(entry.offset, entry.ms)
        data = self.decode(entry.data, filter_)
        if data is not None and not filter_.matches(data):
            return mark, b""
        return mark, self.framer.entry(entry, data)

    async def entry_at(self, mark: Mark) -> None:
        """Return None: see ``may_expand``."""

    async def expand(self, entry: TopicEntry, after: int, limit: int) -> list[TopicRecord]:
        """Return no record: see ``may_expand``."""
        return []

    async def decisions(self, pointers: Collection[int]) -> dict[int, Decision]:
        """Return none: the oplog has no pointers."""
        return {}

    def position(self, mark: Mark, first_offset: int) -> str:
        return format_id(mark) if mark.offset >= first_offset else beginning_position(mark)

    def decode(self, text: str, filter_: Filter) -> Data | None:
        """Return the decoded data, None if neither the framer nor the filter looks at it."""
        if self.framer.needs_data or any(filter_):
            return decode_stored(text)
        return None

    def _replication(
        self, subscription: Subscription, start: Since | FullReplication, bounds: LogBounds
    ) -> Replication:
        if isinstance(start, Since):
            return Replication.since(self, subscription, bounds, start.ms)
        return Replication.full(self, subscription, bounds)
