"""The phase of a consumer that is behind the ring: it reads the log from the store."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from oplogd.errors import LogReplacedError
from oplogd.stream.phases.expansion import read_expanding
from oplogd.stream.phases.phase import Step
from oplogd.stream.phases.store_phase import StorePhase

# Entries read from the store at a time.
PAGE = 500


class CatchUp(StorePhase):
    __slots__ = ()

    async def next_step(self) -> Step:
        """Read the next page. If the log does not continue at this mark, the bridge decides.

        Raises StoreUnavailableError; then call it again.
        """
        subscription = self.subscription
        bridge = subscription.feed.bridge
        with suppress(LogReplacedError):
            async with subscription.read_slots.entries:
                entries = await bridge.read(self.mark, PAGE)
                follows = bool(entries) and entries[0].offset == self.mark.offset + 1
                if follows and not bridge.may_expand(entries, self.view.filter):
                    return Step(self._frames(entries), self)
            if follows:
                return await read_expanding(self, entries)
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
