"""The feed of a topic. A poll looks for its messages in the ring of the feed."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from oplogd.model.isolation import EntryKind
from oplogd.model.message_id import MessageId
from oplogd.model.transaction import DEFAULT_ISOLATION, Isolation
from oplogd.store.topic_bounds import is_beyond, is_in
from oplogd.store.topics import Topic, TopicLog
from oplogd.stream.phases.phase import Feed
from oplogd.stream.phases.start import is_within
from oplogd.stream.phases.topic_bridge import TopicBridge
from oplogd.stream.ring.frames import message_data
from oplogd.stream.ring.topic_ring import TopicRing
from oplogd.stream.ring.view import View
from oplogd.stream.ring.window import Window

# Longest wait of a poll for the follower.
REACH_SECONDS = 0.1


class Peeked(NamedTuple):
    """``held_by``: the pointer at which the reader must wait, None if no hold ended the answer."""

    messages: list[tuple[MessageId, str]]
    held_by: int | None = None


@dataclass(eq=False, slots=True)
class TopicFeed(Feed):
    """``acknowledged``: the newest offset shown to a publisher or a reader by this agent.

    ``used_at``: time of the last use, by ``monotonic``. ``counted``: bytes of the ring in the sum
    of all rings.
    """

    ring: TopicRing
    bridge: TopicBridge
    topic: Topic = field(kw_only=True)
    monotonic: Callable[[], float] = field(kw_only=True)
    acknowledged: int = 0
    used_at: float = 0.0
    counted: int = 0
    # Resolves when the ring has grown. None: no poll waits for it.
    _growth: asyncio.Future[None] | None = None
    # Whether a poll has waited too long since the ring has grown.
    _is_slow: bool = False

    @property
    def log(self) -> TopicLog:
        """Raises TopicNotFoundError after ``end``."""
        return self.bridge.log

    @property
    def is_started(self) -> bool:
        return self.ring.epoch > 0

    @property
    def is_behind(self) -> bool:
        """Whether the ring lacks an entry acknowledged by this agent."""
        return self.ring.head.offset < self.acknowledged

    async def start(self) -> None:
        """Let a new ring begin at the log's head.

        Raises StoreUnavailableError and TopicNotFoundError.
        """
        if not self.is_started:
            bounds = await self.log.locate()
            head, is_plain = bounds.head, False
            if head.offset > bounds.front.offset:
                for entry in await self.log.read(head.offset - 1, 1):
                    is_plain = entry.offset == head.offset and entry.event == EntryKind.MESSAGE
            if not self.is_started:
                self.ring.repaired = bounds.repaired
                self.ring.restart(head)
                self.ring.window.base_is_plain = is_plain

    async def reached(self, offset: int) -> bool:
        """Wait briefly until the ring reaches an offset. Return whether it does.

        After a wait that was too long, no other call waits until the ring has grown.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + REACH_SECONDS
        while self.ring.head.offset < offset:
            if self._is_slow or self.bridge.ended:
                return False
            growth = self._growth
            if growth is None:
                growth = self._growth = loop.create_future()
            await asyncio.wait({growth}, timeout=until - loop.time())
            self._is_slow = not growth.done()
        return True

    def grown(self) -> None:
        """Let polls go on that wait. They look how far the ring reaches."""
        self._is_slow = False
        if (growth := self._growth) is not None:
            self._growth = None
            growth.set_result(None)

    def use(self) -> None:
        self.used_at = self.monotonic()

    def release(self, view: View) -> None:
        """Undo one call of ``ring.view``."""
        self.ring.release(view)
        self.use()

    def end(self) -> None:
        """End the streams of all consumers, and the waits of polls: the topic was deleted."""
        self.bridge.ended = True
        self.ring.restart(self.ring.head)
        self.grown()

    def peek(
        self,
        after: MessageId | None,
        limit: int,
        max_bytes: int,
        isolation: Isolation = DEFAULT_ISOLATION,
    ) -> Peeked | None:
        """See ``Feeds.peek``. The ring must reach as far as clients know."""
        ring = self.ring
        if not self.is_started or self.bridge.ended:
            return None
        ring.expire()
        committed = isolation is Isolation.READ_COMMITTED
        if after is None:
            if not ring.reaches_the_front():
                return None
            after = MessageId(*ring.window.base_mark[1:])
        else:  # the reader may want records of the entry at its position
            wants = is_within(after, committed=False)
            if committed:
                wants = after.records_after is not None
            if wants and may_expand(ring, after.ms, after.sequence, committed=committed):
                return None
        return messages_after(ring, after.ms, after.sequence, limit, max_bytes, committed=committed)

    def give_up(self, size: int) -> None:
        """Drop the oldest entries until ``size`` bytes are free, or none is left."""
        window = self.ring.window
        keep = window.size - size
        while len(window) and window.size > keep:
            self.ring.drop()


def messages_after(
    ring: TopicRing,
    ms: int,
    sequence: int,
    limit: int,
    max_bytes: int,
    *,
    committed: bool = False,
) -> Peeked | None:
    """Return the messages past a time and sequence: at most ``limit``, and up to a hold.

    ``max_bytes``: bound of their blocks together; one message may be longer. None: some of them
    may have left the ring, or are records of an entry that this reader expands.
    """
    window = ring.window
    if is_beyond(ms, ring.head.ms, ring.clock()):
        return None
    substitutes = window.committed if committed else window.uncommitted
    undecided = window.undecided if committed else None
    first = window.after_time(ms, sequence)
    if first is None or (is_in(ms, ring.repaired) and not _has(window, ms, sequence, first)):
        return None
    messages: list[tuple[MessageId, str]] = []
    size = 0
    for index in range(first, window.end):
        frame: bytes | None = window.frames[index]
        if substitutes is not None:
            offset = window.mark(index).offset
            if undecided is not None and offset in undecided.pointers:
                return Peeked(messages, undecided.pointers[offset])
            at = substitutes.at(offset)
            if at is not None and substitutes.frames[at] != b"":
                if not frame or substitutes.frames[at] is not frame:
                    return None
            elif at is not None:
                continue
        if frame:
            size += len(frame)
            if messages and size > max_bytes:
                break
            mark = window.mark(index)
            messages.append((MessageId(mark.ms, mark.sequence), message_data(frame)))
            if len(messages) == limit:
                break
    return Peeked(messages)


def may_expand(ring: TopicRing, ms: int, sequence: int, *, committed: bool) -> bool:
    """Return whether the reader may expand the entry with this time and sequence."""
    window = ring.window
    substitutes = window.committed if committed else window.uncommitted
    base = window.base_mark
    if (base.ms, base.sequence) == (ms, sequence):
        return base.offset > 0 and not window.base_is_plain
    past = window.after_time(ms, sequence)
    if past is None or past == window.after(base.offset):
        return past is None
    mark = window.mark(past - 1)
    at = substitutes.at(mark.offset) if substitutes is not None else None
    if substitutes is None or at is None or (mark.ms, mark.sequence) != (ms, sequence):
        return False
    return substitutes.frames[at] != b""


def _has(window: Window, ms: int, sequence: int, past: int) -> bool:
    """Return whether an entry has this time and sequence, the last one before an index."""
    base = window.base_mark
    at = base if past == window.after(base.offset) else window.mark(past - 1)
    return (at.ms, at.sequence) == (ms, sequence)
