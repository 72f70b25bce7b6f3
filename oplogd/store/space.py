"""The space on the disk under a store: how much of it intake leaves free. No I/O."""

from typing import NamedTuple, Protocol

MIB = 1 << 20

# Room for a write-ahead log of 64 MiB, and for the checkpoint that moves it into the file.
MOST_NEEDED = 128 * MIB
MOST_RESERVE = 64 * MIB
# On a smaller disk, these parts of its size.
NEEDED_PART = 8
RESERVE_PART = 16
# The largest part for a reserve. Intake could not go on without room for it.
LARGEST_PART = 4

# Free space if the system does not tell.
UNKNOWN = 1 << 62

# An admitted byte may be written to the write-ahead log and to the file, each time with about as
# many bytes of indexes and half-empty pages.
_COPIES = 4


class SpaceLimits(NamedTuple):
    """Bytes. ``needed``: intake stops below. ``reserve``: wanted size of the reserve.

    ``log``: part of ``needed`` on the disk, not in free pages of the file, for the write-ahead log.
    """

    needed: int
    log: int
    reserve: int


def limits_of(total: int, reserve: int | None) -> SpaceLimits:
    """Return the limits for a disk of ``total`` bytes, 0 if unknown.

    ``reserve``: the size set by the user; None: by the size of the disk.
    """
    needed = min(total // NEEDED_PART, MOST_NEEDED)
    if reserve is None:
        size = min(total // RESERVE_PART, MOST_RESERVE)
    else:
        size = min(total // LARGEST_PART, reserve) if total else reserve
    return SpaceLimits(needed, needed // 4, size)


class SpaceFigures(NamedTuple):
    """Bytes. ``free``: on the disk. ``in_file``: in free pages of the file, 0 unless it matters.

    ``reserve``: its present size. ``refused``: the system refuses room, whatever ``free`` says: a
    quota, or no free inode.
    """

    free: int
    in_file: int
    reserve: int
    refused: bool
    limits: SpaceLimits

    @property
    def missing_reserve(self) -> int:
        return max(0, self.limits.reserve - self.reserve)

    @property
    def is_low(self) -> bool:
        """Whether free pages in the file matter."""
        limits, missing = self.limits, self.missing_reserve
        return self.refused or not has_room_for_reserve(limits, self.free, 0, missing)

    def missing(self, *, is_stopped: bool) -> int:
        """Return how many bytes must become free before intake may go on, 0 if it may.

        If it ``is_stopped``, the reserve must fit again, and a little more: otherwise intake would
        stop and go on many times per minute.
        """
        wanted = self.limits.needed
        if is_stopped:
            wanted += max(self.missing_reserve, _margin(self.limits))
        return max(0, wanted - self.free - self.in_file, self.limits.log - self.free)

    @property
    def admissible(self) -> int:
        """Bytes of operations and messages to take before the next look.

        Half of the needed room is for them, so that intake does not slow down before it stops.
        """
        room = min(self.free + self.in_file - self.limits.needed // 2, self.free)
        return max(0, room) // _COPIES


def has_room_for_reserve(limits: SpaceLimits, free: int, in_file: int, missing: int) -> bool:
    """Return whether intake goes on after ``missing`` bytes of the reserve are made again.

    Free pages ``in_file`` count, but half of the room for intake must be on the disk.
    """
    wanted = limits.needed + _margin(limits) + missing
    return free + in_file >= wanted and free >= limits.needed // 2 + missing


def _margin(limits: SpaceLimits) -> int:
    return limits.needed // 8


class Space(Protocol):
    """The space of a store on a disk of this machine."""

    @property
    def name(self) -> str:
        """The store, for messages to users."""

    @property
    def refused(self) -> bool:
        """Whether the system has refused room. True at once, before the next look."""

    async def look(self) -> SpaceFigures:
        """Make the reserve again if there is room for it. Return the figures."""
