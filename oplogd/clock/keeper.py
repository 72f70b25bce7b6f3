"""The task that looks at the clocks while nothing else does, and lets the store keep the time."""

import logging
from dataclasses import dataclass, field
from typing import Protocol

from oplogd.clock import SYSTEM, Clock
from oplogd.errors import StoreUnavailableError

SECONDS = 1.0

# The pause after a store took nothing: each attempt costs it a connection.
_TROUBLE_SECONDS = 10.0

# How often the newest times in the store are looked up.
_AHEAD_SECONDS = 60.0

logger = logging.getLogger("oplogd.clock")


class ClockStore(Protocol):
    """See ``Store``."""

    async def keep_clock(self) -> None: ...

    async def ahead_ms(self) -> int: ...


@dataclass(eq=False)
class ClockKeeper:
    """``ahead_ms``: by how much the times in the store lead the guarded time, when last looked."""

    store: ClockStore
    clock: Clock = SYSTEM
    ahead_ms: int = field(default=0, init=False)

    @property
    def warning(self) -> str | None:
        """Return a sentence for people; None if no time in the store is ahead."""
        if not self.ahead_ms:
            return None
        return (
            f"the store is ahead by {self.ahead_ms // 1000} s: its newest time is ahead of the"
            " clock, and new entries behind it get times that follow it. If the clock is right,"
            " stop all agents and run one once with --new-epoch"
        )

    async def run(self) -> None:
        """Look at the clocks every second until cancelled."""
        looked_at = float("-inf")
        while True:
            pause = _TROUBLE_SECONDS
            try:
                await self.store.keep_clock()
                if self.clock.monotonic() - looked_at >= _AHEAD_SECONDS:
                    await self.look()
                    looked_at = self.clock.monotonic()
                pause = SECONDS
            except StoreUnavailableError:
                pass  # the store's other users report it
            except Exception as error:
                logger.error("cannot keep the guarded time", exc_info=error)
            await self.clock.sleep(pause)

    async def look(self) -> None:
        """Compare the newest times in the store. Raises StoreUnavailableError."""
        was_ahead, self.ahead_ms = self.ahead_ms, await self.store.ahead_ms()
        if self.warning is not None and not was_ahead:
            logger.warning("%s", self.warning)
        elif was_ahead and not self.ahead_ms:
            logger.info("no time in the store is ahead of the clock any more")
