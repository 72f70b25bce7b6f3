"""The numbers of logs, which are used again. No I/O.

A log is a whole number, never used twice. Its lowest 23 bits are its **number**, a part of places;
the others count the generations of this number. Each generation begins at an offset far beyond all
entries of the one before. So a late entry for a deleted log lies below the beginning of the next
one, and no reader gets it.
"""

# 0 is the number of the oplog.
NUMBER_BITS = 23
MAX_LOG = (1 << NUMBER_BITS) - 1

# Distance between the beginnings of two generations, and their number.
_APART_BITS = 32
_GENERATIONS = 256

# More than one append may have.
_LATE_ENTRIES = 1 << 20

# A number rests for so long after the removal of its entries.
REST_MS = 86_400_000


def number_of(log: int) -> int:
    """Return the number of a log: 1 to MAX_LOG."""
    return log & MAX_LOG


def generation_of(log: int) -> int:
    return log >> NUMBER_BITS


def log_of(number: int, generation: int) -> int:
    return generation << NUMBER_BITS | number


def begin_of(log: int) -> int:
    """Return the offset before the first entry of a log."""
    return generation_of(log) << _APART_BITS


def may_follow(log: int, head: int) -> bool:
    """Return whether the number of a log may be used again after it had this offset."""
    return head < begin_of(log) + (1 << _APART_BITS) - _LATE_ENTRIES


def is_log(log: int) -> bool:
    """Return whether a topic may have this log."""
    return number_of(log) > 0 and generation_of(log) < _GENERATIONS


def used_up(place: str) -> str:
    """Return the sentence for a store without a free number. ``place``: names the store."""
    return (
        f"{place} has no free number for another topic: all {MAX_LOG:,} are in use; delete topics:"
        " a number is free again a day after the cleanup that follows"
    )
