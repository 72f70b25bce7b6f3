"""The phases of a consumer behind the ring: it reads entries or records from the store."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from oplogd.errors import LogReplacedError
from oplogd.model.event_id import Mark
from oplogd.model.isolation import EntryKind, Reading, reading
from oplogd.model.message_id import MessageId, end_id, stamp, unstamp
from oplogd.model.pointer import Decision, by_decisions
from oplogd.model.transaction import Marker, decode_marker
from oplogd.store.topics import TopicEntry, id_of_record
from oplogd.stream.phases.phase import Lag, LivePhase, LogPhase, Step
from oplogd.stream.phases.record_pages import NO_RECORDS
from oplogd.stream.ring.frames import checkpoint_frame, is_of_another, message_frame
from oplogd.stream.ring.holds import Hold

# Entries read from the store at a time.
PAGE = 500

# After this many bytes, a page of entries is not read on behind its next expansion.
_ENOUGH = 500_000

_NO_LAST = -1

# Entries read like this may be of one shard only. If not, ``is_of_another`` says so.
_ONE_SHARD = (Reading.PASS, Reading.HOLD)


@dataclass(eq=False, slots=True)
class StorePhase(LogPhase):
    """Waits at an entry whose pointer is open, until its hold is over.

    With the hold in hand it looks the pointer up a second time. A later decision passes the ring.
    So no decision is missed, and no look-up is repeated while nothing happens.
    """

    # The hold of the pointer found open by the last look-up.
    _taken: Hold | None = field(default=None, init=False)
    # The entry at which the phase waits.
    _entry: TopicEntry | None = field(default=None, init=False)

    async def decisions(self, entries: Iterable[TopicEntry]) -> Mapping[int, Decision]:
        """Return the decisions of the pointers of entries read before."""
        pointers: set[int] = set()
        if self.view.filter.committed:
            pointers = {entry.pointer for entry in entries if entry.pointer is not None}
        return await self.subscription.feed.bridge.log.decisions(pointers) if pointers else {}

    def stop(self, entry: TopicEntry) -> None:
        """Wait for an open pointer, the first time look it up again."""
        pointer = entry.pointer
        assert pointer is not None
        self._entry = entry
        taken = self._taken
        if taken is None or taken.is_over or taken.pointer != pointer:
            self._taken = self.ring.holds.of(pointer)
        else:
            self.hold = taken

    def look_again(self) -> None:
        """Stop waiting if the entry is no longer readable, although its pointer is open.

        A clock ahead of the store's makes this early. Then the phase waits again.
        """
        if self._entry is not None and self.ring.has_expired(self._entry):
            self.hold = self._taken = self._entry = None


class CatchUp(StorePhase):
    """Reads the log in pages."""

    __slots__ = ()

    async def next_step(self) -> Step:
        """Read the next page. If the log does not continue at this mark, the bridge decides."""
        subscription = self.subscription
        bridge = subscription.feed.bridge
        with suppress(LogReplacedError):
            async with subscription.read_slots.entries:
                entries = await bridge.read(self.mark, PAGE)
                follows = bool(entries) and entries[0].offset == self.mark.offset + 1
                if follows and not bridge.may_expand(entries, self.view.filter):
                    return Step(self._frames(entries), self)
            if follows:
                return await self._expanding(entries)
        return await bridge.resume(self)

    def _frames(self, entries: Sequence[Any]) -> bytes:
        subscription = self.subscription
        passing, filter_ = subscription.feed.bridge.passing, subscription.view.filter
        frames = []
        for offset, entry in enumerate(entries, self.mark.offset + 1):
            if entry.offset != offset:
                break
            self.mark, frame = passing(entry, filter_)
            if frame:
                frames.append(frame)
        subscription.count(len(frames))
        return b"".join(frames)

    async def _expanding(self, entries: Sequence[TopicEntry]) -> Step:
        """Return the blocks of the next entries and records, and move the mark up to a hold.

        An entry of more than a page of records is continued in its own phase. Raises
        LogReplacedError.
        """
        subscription, isolation = self.subscription, self.view.filter.isolation
        shard = self.view.filter.shard
        bridge, decisions = subscription.feed.bridge, await self.decisions(entries)
        if Decision.COMMITTED in decisions.values():
            # Some entries may have been rolled back between the page and the decision.
            async with subscription.read_slots.entries:
                entries = await bridge.read(self.mark, len(entries))
        judge = by_decisions(decisions)
        mark = self.mark
        then: Expansion | None = None
        frames: list[bytes] = []
        size = count = 0
        for offset, entry in enumerate(entries, self.mark.offset + 1):
            if entry.offset != offset:
                break
            verdict = Reading.HOLD if entry.pointer is None else judge(entry.pointer)
            how = reading(entry.event, isolation, verdict)
            if shard and how in _ONE_SHARD and is_of_another(shard, entry):
                how = Reading.SKIP
            added, events = b"", 0
            if how is Reading.HOLD:
                self.stop(entry)
                break
            if how is Reading.EXPAND and size > _ENOUGH:
                break
            mark = Mark(entry.offset, entry.ms, entry.sequence)
            if how is Reading.EXPAND:
                marker = decode_marker(entry.data)
                found = NO_RECORDS
                if marker.records:
                    found = await subscription.pages.records(bridge.log, entry, -1)
                added, events = subscription.pages.cut(found, shard)
                after = found.last
                if after < marker.last:
                    reached = id_of_record(entry, after, _NO_LAST) if found.records else None
                    left = records_left(marker, after)
                    then = Expansion(
                        subscription, mark, self.epoch, after=after, left=left, reached=reached
                    )
            elif how is Reading.PASS:
                added, events = message_frame(entry), 1
            frames.append(added)
            count += events
            size += len(added)
            if then is not None:
                break
        self.mark = mark
        subscription.count(count)
        return Step(b"".join(frames), then or self)


@dataclass(eq=False, slots=True)
class Expansion(StorePhase):
    """The phase within an expanding entry: it takes the records in pages.

    ``mark``: of the COMMIT or PUBLISH entry. ``after``: number of the last record handed out; -1:
    none. ``left``: at most this many records are left. ``reached``: the position of ``after``.
    ``is_judged``: the consumer may read the entry, whatever its pointer. ``greeting``: a checkpoint
    is due before the first record. ``is_lost``: some records are gone.
    """

    after: int = field(kw_only=True)
    left: int = field(kw_only=True)
    reached: MessageId | None = field(default=None, kw_only=True)
    is_judged: bool = field(default=True, kw_only=True)
    greeting: bool = field(default=False, kw_only=True)
    is_lost: bool = field(default=False, init=False)

    @property
    def position(self) -> str:
        """The id of the last record, or else the end of the entry before."""
        mark = self.mark
        before = unstamp(max(0, stamp(mark.ms, mark.sequence) - 1))
        return str(self.reached or end_id(*before))

    def lag(self) -> Lag:
        return Lag(LogPhase.lag(self).operations + self.left, self.mark.ms)

    def is_behind(self) -> bool:
        return self.present_hold is None

    async def next_step(self) -> Step:
        """Read the next page of records. If some are gone, the bridge decides."""
        if self.greeting:
            self.greeting = False
            return Step(checkpoint_frame(self.position), self)
        log, pages = self.subscription.feed.bridge.log, self.subscription.pages
        # Records stay for a while after their entry has left the log. So while the entry is there,
        # none is missing.
        entry = await pages.entry_at(log, self.mark)
        if entry is None:
            return await self._lose()
        how = await self._reading(entry)
        if how is Reading.HOLD:
            self.stop(entry)
            return Step(b"", self)
        if entry.event == EntryKind.VOID and self.is_judged and self.view.filter.committed:
            return await self._lose()  # a forced rollback has taken the rest away
        if how is not Reading.EXPAND:  # it was aborted or rolled back
            return Step(b"", LivePhase.following(self))
        last = decode_marker(entry.data).last
        if self.after >= last:
            return Step(b"", LivePhase.following(self))
        found = await pages.records(log, entry, self.after)
        if not found.records:
            was_voided = await pages.entry_at(log, self.mark) not in (None, entry)
            return Step(b"", self) if was_voided else await self._lose()
        block, events = pages.cut(found, self.view.filter.shard)
        self.subscription.count(events)
        self.after = found.last
        self.reached = id_of_record(entry, self.after, _NO_LAST)
        self.left = min(self.left - found.records, last - self.after)
        return Step(block, LivePhase.following(self) if self.after >= last else self)

    async def _reading(self, entry: TopicEntry) -> Reading:
        """Return the way in which the consumer reads the entry at the mark."""
        verdict = Reading.PASS
        if not self.is_judged and entry.pointer is not None:
            verdict = by_decisions(await self.decisions([entry]))(entry.pointer)
            self.is_judged = verdict is Reading.PASS
        return reading(entry.event, self.view.filter.isolation, verdict)

    async def _lose(self) -> Step:
        self.is_lost = True
        return await self.subscription.feed.bridge.resume(self)


def records_left(marker: Marker, after: int) -> int:
    """Return the most records of an entry past a number."""
    return max(0, min(marker.records, marker.last - after))
