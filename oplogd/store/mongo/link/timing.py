"""Periods of the parts of a store, as one frozen value. Tests shorten them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

# No log turns over in this time: an entry seen so recently is no stray, and no insert behind it
# becomes one.
RECENT_SECONDS = 1.0

# Time limit of commands that go through a whole collection.
LONG_SECONDS = 3600.0


@dataclass(frozen=True)
class Timing:
    """Periods in seconds, if the name does not say otherwise."""

    # Longest time without progress of the fold before its waiters give up. None: 15 seconds or
    # three lease times, whichever is longer.
    stall_seconds: float | None = None

    # Longest time for a majority to get an entry of the primary before a writer gives up.
    majority_seconds: float = 5.0

    # Time between two checks of the collections.
    keep_seconds: float = 1.0

    # Time of an entry in a plain log after it was folded. A writer checks an insert slower than
    # RECENT_SECONDS. A faster insert relies on this: nothing in its way is trimmed yet.
    trim_seconds: float = 2 * RECENT_SECONDS

    # Lease times of a tombstone at least. A late holder of the lease could bring back the state
    # from before the deletion.
    purge_leases: int = 10

    # A sweep of topics removes only entries that an earlier sweep saw this long ago, and a log this
    # long after its topic was deleted. A writer whose insert took longer than ``late_seconds``
    # checks the floor before it acknowledges. A faster insert relies on the difference.
    settle_seconds: float = 1_200.0
    late_seconds: float = 30.0

    # Time between two looks whether topics keep their bounds in bytes.
    bounds_seconds: float = 5.0

    # Called with the name of each done step of a transaction, of a call under a pointer, or of a
    # change of a named consumer. For tests only.
    at_step: Callable[[str], Awaitable[None]] | None = None

    # Topics per step of a commit or abort.
    topics_per_step: int = 1_000


DEFAULT_TIMING = Timing()
