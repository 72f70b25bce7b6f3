"""Polls of the oplog as a topic."""

from dataclasses import dataclass

import msgspec

from oplogd.model.event_id import EventId, Mark, format_id, parse_position
from oplogd.model.names import OPLOG
from oplogd.store import Entry, LogBounds, Store
from oplogd.topics.codec.codec import PollMessage, PollRequest
from oplogd.topics.counters import TopicCounters
from oplogd.topics.poll import MAX_ANSWER_BYTES, PollAnswer, PollBegin, limit_of, require_id

_ID_BYTES = 12
# Operations per read: one may have 64 KB.
_PAGE = 128
# Later times are as good as this one: no operation has them. All stores can compare it.
_MAX_MS = (1 << 47) - 1


@dataclass(eq=False)
class OplogPoller:
    """``limit``: the most operations of an answer."""

    store: Store
    counters: TopicCounters
    limit: int

    async def poll(self, request: PollRequest) -> PollAnswer:
        """Return the operations from a position on. Never waits for new ones.

        Raises MessageError and StoreUnavailableError.
        """
        begin = await self._begin(request)
        messages = await self._read(begin.after, limit_of(request, self.limit))
        self.counters.add_polled(OPLOG, len(messages))
        return PollAnswer(messages, begin.gap)

    async def _begin(self, request: PollRequest) -> PollBegin:
        start = request.start
        if start is None:
            return PollBegin(0, gap=False)
        if isinstance(start, bytes):
            require_id(start, _ID_BYTES)
            position = parse_position(start.hex())
            assert isinstance(position, EventId)
            bounds = await self.store.locate(position.offset)
            if (begin := of_id(position, bounds, inclusive=request.inclusive)) is not None:
                return begin
            # The log does not know the id, so later entries cannot be recognized. Its time is left.
            return PollBegin(await self._before(position.ms), gap=True)
        first_wanted = min(start, _MAX_MS) + (not request.inclusive)
        after = await self._before(first_wanted)
        return PollBegin(after, gap=of_time(first_wanted, await self.store.locate()))

    async def _before(self, ms: int) -> int:
        """Return the offset of the last entry before a time."""
        return (await self.store.seek(ms - 1)).offset if ms > 0 else 0

    async def _read(self, after: int, limit: int) -> list[PollMessage]:
        messages: list[PollMessage] = []
        size = 0
        while len(messages) < limit:
            wanted = min(_PAGE, limit - len(messages))
            entries = await self.store.read(after, wanted)
            for entry in entries:
                size += len(entry.data)
                if messages and size > MAX_ANSWER_BYTES:
                    return messages
                messages.append(PollMessage(format_id(Mark(entry.offset, entry.ms)), _data(entry)))
                after = entry.offset
            if len(entries) < wanted:
                break
        return messages


def of_id(position: EventId, bounds: LogBounds, *, inclusive: bool) -> PollBegin | None:
    """Return the begin of a poll at an event id, None if the log does not know the id.

    ``bounds``: the store's answer to ``locate`` for the id's offset.
    """
    offset, oldest = position.offset, bounds.oldest
    if position.millis > 999:
        return None
    if bounds.at_ms is not None:
        if bounds.at_ms != position.ms:
            return None
        return PollBegin(offset - 1 if inclusive and offset else offset, gap=False)
    if (offset, position.ms) == (bounds.head.offset, bounds.head.ms):
        return PollBegin(offset, gap=False)
    if oldest is not None and bounds.first_offset <= offset < oldest.offset:
        return PollBegin(oldest.offset - 1, gap=offset < oldest.offset - 1)
    return None


def of_time(first_wanted_ms: int, bounds: LogBounds) -> bool:
    """Return whether operations at or after a time have left the log."""
    oldest = bounds.oldest
    return (
        oldest is not None
        and oldest.offset > max(1, bounds.first_offset)
        and first_wanted_ms <= oldest.ms
    )


def _data(entry: Entry) -> str:
    """Return ``Message.data`` of an entry: its payload can be published again."""
    text = f'{{"event":"{entry.event}",{entry.data[1:]}'
    return msgspec.json.encode({"payload": text}).decode()
