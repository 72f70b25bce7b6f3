"""The gate of intake: closed while the disk of the store has too little free space."""

import asyncio
from collections.abc import Callable
from typing import Any

from oplogd.clock import SYSTEM, Clock
from oplogd.errors import DiskFullError
from oplogd.store.space import UNKNOWN, Space, SpaceFigures
from oplogd.watch.health import Health

LOOK_SECONDS = 1.0
# While the gate is closed, messages expire and other agents delete topics.
SWEEP_SECONDS = 10.0

# Counted for each operation or message beside its own bytes.
_ROW_BYTES = 256


class Gate:
    """Admits operations, messages and records while the disk has room. ``space`` None: always.

    ``sweep``: begins a sweep of the topics when the gate closes, and then regularly.
    """

    def __init__(
        self,
        space: Space | None,
        health: Health,
        sweep: Callable[[], None] = lambda: None,
        clock: Clock = SYSTEM,
    ) -> None:
        self._space = space
        self._part = health.part("disk", "the disk has room again; intake goes on")
        self._sweep = sweep
        self._swept_at = 0.0
        self._clock = clock
        self._figures: SpaceFigures | None = None
        self._is_stopped = False
        # Bytes still admitted before the next look.
        self._left = UNKNOWN
        self._open = asyncio.Event()
        self._open.set()

    @property
    def is_open(self) -> bool:
        """Whether anything is admitted. False at once after the system refused room."""
        return not self._is_stopped and not (self._space and self._space.refused)

    def admit(self, count: int, size: int) -> None:
        """Count incoming items and their bytes. Raises DiskFullError."""
        if self._space is None:
            return
        if not self.is_open:
            raise DiskFullError(self._sentence(self._space.name))
        size += count * _ROW_BYTES
        if size > self._left:
            raise DiskFullError(
                f"{self._space.name}: its disk has too little free space for {size:,} bytes more;"
                " send fewer at a time, or free some space"
            )
        self._left -= size

    async def opened(self) -> None:
        """Wait until the gate is open."""
        while not self.is_open:
            self._open.clear()
            await self._open.wait()

    async def run(self) -> None:
        """Look regularly until cancelled."""
        while self._space is not None:
            await self._clock.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Open or close the gate by the free space of this moment."""
        if self._space is None:
            return
        self._figures = figures = await self._space.look()
        if figures.refused or figures.missing(is_stopped=self._is_stopped):
            self._close(self._space.name)
        else:
            self._left = figures.admissible
            self._is_stopped = False
            self._part.good()
            self._open.set()

    def members(self) -> dict[str, Any] | None:
        """Return the members of /status, None for a store on another machine."""
        figures = self._figures
        if figures is None:
            return None
        limits = figures.limits
        reserve = "used" if figures.missing_reserve else "ready" if limits.reserve else "off"
        return {
            "free_bytes": None if figures.free >= UNKNOWN else figures.free,
            "free_in_file_bytes": figures.in_file,
            "needed_bytes": limits.needed,
            "reserve": reserve,
            "reserve_bytes": figures.reserve,
            "reserve_max_bytes": limits.reserve,
            "intake_stopped": not self.is_open,
        }

    def _close(self, name: str) -> None:
        self._is_stopped = True
        sentence = self._sentence(name)
        if self._part.trouble is None:
            self._part.bad(sentence)
        self._part.trouble = sentence  # with the figures of this moment, and no further log line
        now = self._clock.monotonic()
        if not self._swept_at or now - self._swept_at >= SWEEP_SECONDS:
            self._swept_at = now
            self._sweep()

    def _sentence(self, name: str) -> str:
        figures = self._figures
        missing = figures.missing(is_stopped=True) if figures else 0
        if missing:
            lack = f"{missing:,} bytes more must become free"
        else:
            lack = "the system gives it no more room; look for a quota, or for too many files"
        return (
            f"{name}: its disk is full, {lack}; until then nothing is taken, but topics can be"
            " read and deleted"
        )
