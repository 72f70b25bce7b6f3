"""Voiding entries in place, and the runs of offsets in the notes of rollbacks."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.topic_layout import identity, place
from oplogd.store.mongo.pointers.rows import STEP, key
from oplogd.store.topics import EntryKind

STANDING = {"$in": [EntryKind.DIRECT.value, EntryKind.PUBLISH.value, EntryKind.LATE.value]}


async def void(link: Link, pointer: int, log: int, offsets: Iterable[int]) -> None:
    """Void entries of a pointer in place. They keep their identity. Raises PyMongo's errors."""
    own = {"$gte": identity(pointer, log, 0), "$lt": f"{key(pointer, log)}z"}
    emptied = {
        "$set": {"kind": EntryKind.VOID.value, "data": ""},
        "$unset": {"expires": ""},
    }
    todo = iter(offsets)
    while keys := [place(log, offset) for offset in islice(todo, STEP)]:
        chosen = {"_id": {"$in": keys}, "kind": STANDING, "x": own}
        await link.entries.update_many(chosen, emptied)


def offsets_of(runs: Iterable[tuple[int, int]]) -> Iterator[int]:
    return (first + n for first, length in runs for n in range(length))


def covers(runs: Sequence[tuple[int, int]], offset: int) -> bool:
    place = bisect_right(runs, offset, key=lambda run: run[0]) - 1
    return place >= 0 and offset < runs[place][0] + runs[place][1]


def flat(pairs: Iterable[tuple[int, int]]) -> list[int]:
    return [number for pair in pairs for number in pair]


def pairs_of(flat: Sequence[int]) -> list[tuple[int, int]]:
    numbers = [int(each) for each in flat]  # large ones are read as Int64
    return list(zip(numbers[::2], numbers[1::2], strict=True))
