"""Polls of the oplog as a topic."""

from dataclasses import dataclass, field

import msgspec

from oplogd.errors import LogReplacedError, StoreUnavailableError
from oplogd.model.event_id import EventId, Mark, format_id, parse_position
from oplogd.model.names import OPLOG
from oplogd.store import Entry, LogBounds, Store, decode_stored
from oplogd.stream.ring.filters import Filter
from oplogd.topics.codec.codec import PollMessage, PollRequest
from oplogd.topics.counters import TopicCounters
from oplogd.topics.poll import MAX_ANSWER_BYTES, PollAnswer, PollBegin, limit_of, require_id

_ID_BYTES = 12
# Operations per read: one may have 64 KB.
_PAGE = 128
# Operations per read with a filter: most may be left out.
_FILTERED_PAGE = 1_000
# Positions of pollers whose next operations are known to be left out.
_MOST_PASSED = 1_000
# Later times are as good as this one: no operation has them. All stores can compare it.
_MAX_MS = (1 << 47) - 1


@dataclass(eq=False)
class OplogPoller:
    """``limit``: the most operations of an answer."""

    store: Store
    counters: TopicCounters
    limit: int

    # The last operation known to be left out behind an offset, by filter. A poll over many
    # operations with nothing for it is slow once.
    _passed: dict[tuple[Filter, int], Mark] = field(default_factory=dict, init=False)

    async def poll(self, request: PollRequest, filter_: Filter | None = None) -> PollAnswer:
        """Return the operations from a position on. Never waits for new ones.

        Operations that do not pass the filter are left out, and the poll reads on behind them: no
        operation means that the log has none. With a filter the answer tells the position reached.
        Raises MessageError and StoreUnavailableError.
        """
        begin = await self._begin(request)
        limit = limit_of(request, self.limit)
        if filter_ is None:
            answer = PollAnswer(await self._read(begin.after, limit), begin.gap)
        else:
            try:
                answer = await self._read_passing(begin, limit, filter_)
            except LogReplacedError as error:
                self._passed.pop((filter_, begin.after), None)
                raise StoreUnavailableError(f"{error}; poll again") from None
        self.counters.add_polled(OPLOG, len(answer.messages))
        return answer

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
                messages.append(_message(entry))
                after = entry.offset
            if len(entries) < wanted:
                break
        return messages

    async def _read_passing(self, begin: PollBegin, limit: int, filter_: Filter) -> PollAnswer:
        """Raise LogReplacedError if the log has another history than at the last poll."""
        messages: list[PollMessage] = []
        size = 0
        key = filter_, begin.after
        reached = self._passed.pop(key, None)
        passed = reached
        try:
            while entries := await self._past(begin.after, reached):
                for entry in entries:
                    if filter_.matches(entry.event, decode_stored(entry.data)):
                        size += len(entry.data)
                        if messages and size > MAX_ANSWER_BYTES:
                            return _answer(messages, begin, reached)
                        messages.append(_message(entry))
                    reached = Mark(entry.offset, entry.ms)
                    if not messages:
                        passed = reached
                    if len(messages) == limit:
                        return _answer(messages, begin, reached)
            return _answer(messages, begin, reached)
        finally:  # the client may have left before the end
            if passed is not None:
                self._remember(key, passed)

    async def _past(self, after: int, reached: Mark | None) -> list[Entry]:
        """Return the next entries past ``reached``; None: past the offset ``after``."""
        if reached is None:
            return await self.store.read(after, _FILTERED_PAGE)
        return await self.store.read(reached.offset, _FILTERED_PAGE, reached.ms)

    def _remember(self, key: tuple[Filter, int], passed: Mark) -> None:
        self._passed.pop(key, None)
        self._passed[key] = passed
        if len(self._passed) > _MOST_PASSED:
            del self._passed[next(iter(self._passed))]


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


def _answer(messages: list[PollMessage], begin: PollBegin, reached: Mark | None) -> PollAnswer:
    return PollAnswer(messages, begin.gap, reached=reached and format_id(reached))


def _message(entry: Entry) -> PollMessage:
    return PollMessage(format_id(Mark(entry.offset, entry.ms)), _data(entry))


def _data(entry: Entry) -> str:
    """Return ``Message.data`` of an entry: its payload can be published again."""
    text = f'{{"event":"{entry.event}",{entry.data[1:]}'
    return msgspec.json.encode({"payload": text}).decode()
