"""The bytes of a topic by segments of its log. No I/O.

The holder of the lease counts entries once, in order, and keeps the sums in the topic's document:
``sizes``: ``[{last, octets, ms}, ...]``. A segment leaves as a whole, so nothing is ever
subtracted, and a cut step leaves no error behind.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from oplogd.model.event_id import Mark
from oplogd.store.mongo.link.topic_layout import Document, number

# More segments are joined in pairs.
_MOST = 64
# Segments of a bound, and the least bytes of one.
_OF_BOUND = 32
_LEAST = 16 * 1024


class TopicSegment(NamedTuple):
    """``last``: offset of its last entry. ``ms``: time of that entry."""

    last: int
    size: int
    ms: int


class Sized(NamedTuple):
    """A topic, with its head, floor and segments.

    ``record_bytes``: bytes of records behind the front, by transaction. ``waiting``: bytes of
    stored messages, not yet published.
    """

    document: Document
    log: int
    head: Mark
    floor: Mark
    segments: Sequence[TopicSegment]
    record_bytes: Mapping[str, int]
    waiting: int = 0

    @property
    def size(self) -> int:
        return total(self.segments) + sum(self.record_bytes.values()) + self.waiting


def segments_of(document: Document, floor: int) -> list[TopicSegment]:
    """Return the segments of a topic behind its floor. One gone in part counts whole."""
    found = [
        TopicSegment(number(each, "last"), number(each, "octets"), number(each, "ms"))
        for each in document.get("sizes") or []
    ]
    return [each for each in found if each.last > floor]


def counted(
    segments: Sequence[TopicSegment], entries: Iterable[TopicSegment], max_bytes: int
) -> list[TopicSegment]:
    """Return the segments with further entries, each given as a segment of its own."""
    least = max(_LEAST, max_bytes // _OF_BOUND)
    result = list(segments)
    for entry in entries:
        if result and result[-1].size + entry.size <= least:
            result[-1] = TopicSegment(entry.last, result[-1].size + entry.size, entry.ms)
        else:
            result.append(entry)
    while len(result) > _MOST:
        pairs = [result[place : place + 2] for place in range(0, len(result), 2)]
        result = [TopicSegment(pair[-1].last, total(pair), pair[-1].ms) for pair in pairs]
    return result


def total(segments: Iterable[TopicSegment]) -> int:
    return sum(each.size for each in segments)


def has_one(topic: Sized) -> bool:
    """Return whether the front of a topic stands before its newest entry."""
    return bool(topic.segments) and topic.floor.offset == topic.head.offset - 1


def size_of(topics: Iterable[Sized]) -> int:
    return sum(each.size for each in topics)


def passed(topics: Iterable[Sized]) -> int:
    """Return the number of entries ever passed by fronts."""
    return sum(each.floor.offset for each in topics)


def members(segments: Sequence[TopicSegment], record_bytes: Mapping[str, int]) -> Document:
    return {
        "sizes": [{"last": last, "octets": size, "ms": ms} for last, size, ms in segments],
        "kept": [{"txn": txn, "octets": size} for txn, size in record_bytes.items()],
    }
