"""A role that one worker has at a time."""

from collections.abc import Awaitable, Callable

from oplogd.shared.record_lock import RecordLock

# How often a worker without the role tries to take it.
TRY_SECONDS = 1.0


class Role:
    """A worker that has taken the role keeps it until its process ends. Then another takes it."""

    def __init__(self) -> None:
        self._lock = RecordLock()
        # The worker of this process that has the role.
        self._holder: int | None = None

    def take(self, number: int) -> bool:
        """Take the role if it is free. Return whether this worker has it."""
        if self._holder is None and self._lock.take():
            self._holder = number
        return self._holder == number

    async def taken(self, number: int, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Wait until this worker has the role. ``sleep``: gets seconds."""
        while not self.take(number):
            await sleep(TRY_SECONDS)
