"""The bytes of a topic by segments of its log. No I/O.

The holder of the lease counts entries once, in order, and keeps the sums in the topic's document:
``sizes``: ``[{last, octets, ms}, ...]``, see ``Segment``. A segment leaves
as a whole, so nothing is ever subtracted, and a step that was cut leaves no error behind.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from oplogd.store.mongo.topics.layout import Document, number

# More segments are joined in pairs.
_MOST = 64
# Segments of a bound, and the least bytes of one.
_OF_BOUND = 32
_LEAST = 16 * 1024


class Segment(NamedTuple):
    """``last``: offset of its last entry. ``ms``: time of that entry."""

    last: int
    octets: int
    ms: int


def segments_of(document: Document, floor: int) -> list[Segment]:
    """Return the segments of a topic that are not gone. One that is gone in part counts whole."""
    found = [
        Segment(number(each, "last"), number(each, "octets"), number(each, "ms"))
        for each in document.get("sizes") or []
    ]
    return [each for each in found if each.last > floor]


def counted(
    segments: Sequence[Segment], entries: Iterable[Segment], max_bytes: int
) -> list[Segment]:
    """Return the segments with further entries, each given as a segment of its own."""
    least = max(_LEAST, max_bytes // _OF_BOUND)
    result = list(segments)
    for entry in entries:
        if result and result[-1].octets + entry.octets <= least:
            result[-1] = Segment(entry.last, result[-1].octets + entry.octets, entry.ms)
        else:
            result.append(entry)
    while len(result) > _MOST:
        pairs = [result[place : place + 2] for place in range(0, len(result), 2)]
        result = [Segment(pair[-1].last, total(pair), pair[-1].ms) for pair in pairs]
    return result


def total(segments: Iterable[Segment]) -> int:
    return sum(each.octets for each in segments)
