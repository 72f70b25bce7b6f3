"""The phase of a consumer within an entry that expands: it takes the records in pages."""

from collections.abc import Sequence

from oplogd.model.event_id import Mark
from oplogd.model.isolation import EntryKind, Reading, reading
from oplogd.model.message_id import MessageId, end_id, stamp, unstamp
from oplogd.model.pointer import Decision, by_decisions
from oplogd.model.transaction import Marker, decode_marker
from oplogd.store.topics import TopicEntry, id_of_record
from oplogd.stream.phases.live import Live
from oplogd.stream.phases.phase import Lag, Step, Subscription
from oplogd.stream.phases.record_pages import NO_RECORDS
from oplogd.stream.phases.store_phase import StorePhase
from oplogd.stream.ring.frames import checkpoint_frame
from oplogd.stream.ring.router import message_frame

# After this many bytes, a page of entries is not read on behind its next expansion.
_ENOUGH = 500_000

_NO_LAST = -1


class Expansion(StorePhase):
    """``mark``: of the COMMIT or PUBLISH entry. ``after``: number of the last record that was
    handed out; -1: none.

    ``left``: at most this many records are left. ``is_lost``: some of them are gone.
    """

    __slots__ = ("_greeting", "_is_judged", "_reached", "after", "is_lost", "left")

    def __init__(
        self,
        subscription: Subscription,
        mark: Mark,
        epoch: int,
        *,
        after: int,
        left: int,
        reached: MessageId | None = None,
        is_judged: bool = True,
        greeting: bool = False,
    ) -> None:
        """``reached``: the position that ``after`` is part of. ``is_judged``: the consumer may read
        the entry, whatever its pointer. ``greeting``: a checkpoint is due before the first record.
        """
        super().__init__(subscription, mark, epoch, 0)
        self.after = after
        self.left = left
        self.is_lost = False
        self._reached = reached or _end_before(mark)
        self._is_judged = is_judged
        self._greeting = greeting

    @property
    def position(self) -> str:
        """The position from which the consumer can resume: the id of the last record."""
        return str(self._reached)

    def lag(self) -> Lag:
        return Lag(super().lag().operations + self.left, self.mark.ms)

    def is_behind(self) -> bool:
        return not self.is_held

    async def next_step(self) -> Step:
        """Read the next page of records. If some are gone, the bridge decides.

        Raises StoreUnavailableError; then call it again.
        """
        if self._greeting:
            self._greeting = False
            return Step(checkpoint_frame(self.position), self)
        bridge, pages = self.subscription.feed.bridge, self.subscription.pages
        # Records stay for a while after their entry has left the log. So while it is there, none is
        # missing.
        entry = await pages.entry_at(bridge, self.mark)
        if entry is None:
            return await self._lose()
        how = await self._reading(entry)
        if how is Reading.HOLD:
            self.stop(entry)
            return Step(b"", self)
        if entry.event == EntryKind.VOID and self._is_judged and self.view.filter.committed:
            return await self._lose()  # a forced rollback has taken the rest away
        if how is not Reading.EXPAND:  # it was aborted or rolled back
            return Step(b"", Live.following(self))
        last = decode_marker(entry.data).last
        if self.after >= last:
            return Step(b"", Live.following(self))
        found = await pages.records(bridge, entry, self.after)
        if not found.records:
            was_voided = await pages.entry_at(bridge, self.mark) not in (None, entry)
            return Step(b"", self) if was_voided else await self._lose()
        self.subscription.count(found.events)
        self.after = found.last
        self._reached = id_of_record(entry, self.after, _NO_LAST)
        self.left = min(self.left - found.records, last - self.after)
        return Step(found.block, Live.following(self) if self.after >= last else self)

    async def _reading(self, entry: TopicEntry) -> Reading:
        """Return the way in which the consumer reads the entry at the mark."""
        verdict = Reading.PASS
        if not self._is_judged and entry.pointer is not None:
            verdict = by_decisions(await self.decisions([entry]))(entry.pointer)
            self._is_judged = verdict is Reading.PASS
        return reading(entry.event, self.view.filter.isolation, verdict)

    async def _lose(self) -> Step:
        self.is_lost = True
        return await self.subscription.feed.bridge.resume(self)


def records_left(marker: Marker, after: int) -> int:
    """Return the most records of an entry that may follow a number."""
    return max(0, min(marker.records, marker.last - after))


async def read_expanding(phase: StorePhase, entries: Sequence[TopicEntry]) -> Step:
    """Return the blocks of entries that follow the phase's mark, with the records of some.

    Move the mark past them, up to a hold. An entry of more than a page of records is continued in
    its own phase. Raises LogReplacedError.
    """
    subscription, isolation = phase.subscription, phase.view.filter.isolation
    bridge, decisions = subscription.feed.bridge, await phase.decisions(entries)
    if Decision.COMMITTED in decisions.values():
        # Some entries may have been rolled back since the page was read, and before the decision.
        async with subscription.read_slots.entries:
            entries = await bridge.read(phase.mark, len(entries))
    judge = by_decisions(decisions)
    mark, then = phase.mark, phase
    frames: list[bytes] = []
    size = count = 0
    for offset, entry in enumerate(entries, phase.mark.offset + 1):
        if entry.offset != offset:
            break
        verdict = Reading.HOLD if entry.pointer is None else judge(entry.pointer)
        how = reading(entry.event, isolation, verdict)
        added, events = b"", 0
        if how is Reading.HOLD:
            phase.stop(entry)
            break
        if how is Reading.EXPAND and size > _ENOUGH:
            break
        mark = Mark(entry.offset, entry.ms, entry.sequence)
        if how is Reading.EXPAND:
            marker = decode_marker(entry.data)
            found = NO_RECORDS
            if marker.records:
                found = await subscription.pages.records(bridge, entry, -1)
            added, events = found.block, found.events
            after = found.last
            if after < marker.last:
                then = Expansion(
                    subscription,
                    mark,
                    phase.epoch,
                    after=after,
                    left=records_left(marker, after),
                    reached=id_of_record(entry, after, _NO_LAST) if found.records else None,
                )
        elif how is Reading.PASS:
            added, events = message_frame(entry), 1
        frames.append(added)
        count += events
        size += len(added)
        if then is not phase:
            break
    phase.mark = mark
    subscription.count(count)
    return Step(b"".join(frames), then)


def _end_before(mark: Mark) -> MessageId:
    """Return the position of a reader with everything before an entry."""
    return end_id(*unstamp(max(0, stamp(mark.ms, mark.sequence) - 1)))
