"""The phase of a consumer that is behind the ring: it reads the log from the store."""

from collections.abc import Sequence
from contextlib import suppress

from oplogd.errors import LogReplacedError
from oplogd.event_id import Mark
from oplogd.store import Entry
from oplogd.stream.live import LogPhase
from oplogd.stream.phase import Step
from oplogd.stream.resume import resume

# Entries read from the store at a time.
PAGE = 500


class CatchUp(LogPhase):
    __slots__ = ()

    async def next_step(self) -> Step:
        """Read the next page. If the log does not continue at this mark, resume from the states.

        Raises StoreUnavailableError; then call it again.
        """
        subscription = self.subscription
        with suppress(LogReplacedError):
            async with subscription.read_slots.entries:
                entries = await subscription.store.read(self.mark.offset, PAGE, self.mark.ms)
                if entries and entries[0].offset == self.mark.offset + 1:
                    return Step(self._frames(entries), self)
        return await resume(self)

    def _frames(self, entries: Sequence[Entry]) -> bytes:
        subscription = self.subscription
        frames = []
        for offset, entry in enumerate(entries, self.mark.offset + 1):
            if entry.offset != offset:
                break
            data = subscription.decode(entry.data)
            if subscription.passes(data):
                frames.append(subscription.framer.entry(entry, data))
            self.mark = Mark(entry.offset, entry.ms)
        subscription.count(len(frames))
        return b"".join(frames)
