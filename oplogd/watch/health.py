"""The health of the agent's parts, as the parts report it."""

import asyncio
import logging
from collections.abc import Callable

logger = logging.getLogger("oplogd.store")


class Part:
    """A part of the agent. Call ``bad`` for a trouble, and ``good`` when the part works again.

    A trouble is logged when it begins and when it ends.
    """

    def __init__(self, name: str, well: str, recovered: Callable[[], None]) -> None:
        self._name = name
        self._well = well
        self._recovered = recovered
        self.trouble: str | None = None

    def bad(self, message: str) -> None:
        if self.trouble != message:
            logger.error("%s: %s", self._name, message)
        self.trouble = message

    def good(self, well: str = "") -> None:
        """End a trouble. ``well``: the log message instead of the usual one."""
        if self.trouble is not None:
            logger.info("%s: %s", self._name, well or self._well)
            self._recovered()
        self.trouble = None


class Health:
    """The health of all parts."""

    def __init__(self) -> None:
        self._parts: dict[str, Part] = {}
        # How often a trouble of any part has ended.
        self.recoveries = 0
        self._recovery = asyncio.Event()

    def part(self, name: str, well: str = "the store answers again") -> Part:
        """Return the part of this name. ``well``: the log message for the end of a trouble."""
        return self._parts.setdefault(name, Part(name, well, self._note_recovery))

    async def recovered(self, since: int) -> None:
        """Wait until ``recoveries`` is not ``since``."""
        if self.recoveries == since:
            await self._recovery.wait()

    def _note_recovery(self) -> None:
        self.recoveries += 1
        self._recovery.set()
        self._recovery = asyncio.Event()

    @property
    def trouble(self) -> str | None:
        """The first trouble, None if every part works."""
        return next(iter(self.troubles), None)

    @property
    def troubles(self) -> list[str]:
        """The troubles of all parts, each once."""
        return list(dict.fromkeys(part.trouble for part in self._parts.values() if part.trouble))
