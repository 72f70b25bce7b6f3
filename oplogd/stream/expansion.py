"""The phase of a consumer within a commit: it reads the commit's records from the store."""

from collections.abc import Sequence

from oplogd.event_id import Mark
from oplogd.isolation import Reading, reading
from oplogd.message_id import MessageId, record_id
from oplogd.store.topics import TopicEntry, TopicRecord
from oplogd.stream.frames import checkpoint_frame
from oplogd.stream.live import Live, LogPhase
from oplogd.stream.phase import Lag, Step, Subscription
from oplogd.stream.router import record_frames
from oplogd.transaction import Isolation, Marker, decode_marker

# Records read from the store at a time.
PAGE = 500

# After this many bytes, a page of entries is not read on behind its next commit.
_ENOUGH = 500_000


class Expansion(LogPhase):
    """``mark``: of the commit. ``after``: lsn of the last record that was handed out; -1: none.

    ``left``: at most this many records are left. ``is_lost``: some of them are gone.
    """

    __slots__ = ("_greeting", "after", "is_lost", "left")

    def __init__(
        self,
        subscription: Subscription,
        mark: Mark,
        epoch: int,
        *,
        after: int,
        left: int,
        greeting: bool = False,
    ) -> None:
        """``greeting``: a checkpoint is due before the first record."""
        super().__init__(subscription, mark, epoch, 0)
        self.after = after
        self.left = left
        self.is_lost = False
        self._greeting = greeting

    @property
    def position(self) -> str:
        """The position from which the consumer can resume: the id of the last record."""
        ms, sequence = self.mark.ms, self.mark.sequence
        if self.after < 0:
            return str(MessageId(ms, sequence))
        return str(record_id(ms, sequence, self.after, is_last=False))

    def lag(self) -> Lag:
        return Lag(super().lag().operations + self.left, self.mark.ms)

    def is_behind(self) -> bool:
        return True

    async def next_step(self) -> Step:
        """Read the next page of records. If some are gone, the bridge decides.

        Raises StoreUnavailableError; then call it again.
        """
        if self._greeting:
            self._greeting = False
            return Step(checkpoint_frame(self.position), self)
        bridge = self.subscription.feed.bridge
        async with self.subscription.read_slots.entries:
            # Records stay for a while after their commit has left the log. So while it is there,
            # none is missing.
            commit = await bridge.commit_at(self.mark)
            records = await bridge.expand(commit, self.after, PAGE) if commit else []
        marker = decode_marker(commit.data) if commit else None
        if commit is None or marker is None or (not records and self.after < marker.last):
            self.is_lost = True
            return await bridge.resume(self)
        frames = record_frames(commit, records, marker.last)
        self.subscription.count(len(frames))
        self.after = records[-1].lsn if records else marker.last
        self.left = min(self.left - len(records), marker.last - self.after)
        done = self.after >= marker.last
        return Step(b"".join(frames), Live.following(self) if done else self)


def records_left(marker: Marker, after: int) -> int:
    """Return the most records of a commit that may follow an lsn."""
    return max(0, min(marker.records, marker.last - after))


async def read_committed(phase: LogPhase, entries: Sequence[TopicEntry]) -> Step:
    """Return the blocks of entries that follow the phase's mark, with the records of commits.

    Move the mark past them. A commit of more than a page of records is continued in its own phase.
    """
    subscription, filter_ = phase.subscription, phase.view.filter
    bridge = subscription.feed.bridge
    mark, then = phase.mark, phase
    frames: list[bytes] = []
    size = 0
    for offset, entry in enumerate(entries, phase.mark.offset + 1):
        if entry.offset != offset:
            break
        added: list[bytes] = []
        if reading(entry.event, Isolation.READ_COMMITTED) is Reading.EXPAND:
            if size > _ENOUGH:
                break
            marker = decode_marker(entry.data)
            records: Sequence[TopicRecord] = []
            if marker.records:
                async with subscription.read_slots.entries:
                    records = await bridge.expand(entry, -1, PAGE)
            mark = Mark(entry.offset, entry.ms, entry.sequence)
            added = record_frames(entry, records, marker.last)
            after = records[-1].lsn if records else -1
            if after < marker.last:
                then = Expansion(
                    subscription,
                    mark,
                    phase.epoch,
                    after=after,
                    left=records_left(marker, after),
                )
        else:
            mark, frame = bridge.passing(entry, filter_)
            if frame:
                added = [frame]
        frames += added
        size += sum(map(len, added))
        if then is not phase:
            break
    phase.mark = mark
    subscription.count(len(frames))
    return Step(b"".join(frames), then)
