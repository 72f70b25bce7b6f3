"""A poll looks for its messages in memory: in the ring of its topic."""

from typing import NamedTuple

from oplogd.model.message_id import MessageId
from oplogd.store.topic_bounds import is_beyond, is_in
from oplogd.stream.ring.router import message_data
from oplogd.stream.ring.topic_ring import TopicRing
from oplogd.stream.ring.window import Window


class Peeked(NamedTuple):
    """``held_by``: the pointer at which the reader must wait, None if no hold ended the answer."""

    messages: list[tuple[MessageId, str]]
    held_by: int | None = None


def messages_after(
    ring: TopicRing,
    ms: int,
    sequence: int,
    limit: int,
    max_bytes: int,
    *,
    committed: bool = False,
) -> Peeked | None:
    """Return the messages past a time and sequence: at most ``limit``, and up to a hold.

    ``max_bytes``: bound of their blocks together; one message may be longer. None: some of them
    may have left the ring, or are records of an entry that this reader expands.
    """
    window = ring.window
    if is_beyond(ms, ring.head.ms, ring.clock()):
        return None
    substitutes = window.committed if committed else window.uncommitted
    undecided = window.undecided if committed else None
    first = window.after_time(ms, sequence)
    if first is None or (is_in(ms, ring.repaired) and not _has(window, ms, sequence, first)):
        return None
    messages: list[tuple[MessageId, str]] = []
    size = 0
    for index in range(first, window.end):
        frame: bytes | None = window.frames[index]
        if substitutes is not None:
            offset = window.mark(index).offset
            if undecided is not None and offset in undecided.pointers:
                return Peeked(messages, undecided.pointers[offset])
            at = substitutes.at(offset)
            if at is not None and substitutes.frames[at] != b"":
                if not frame or substitutes.frames[at] is not frame:
                    return None
            elif at is not None:
                continue
        if frame:
            size += len(frame)
            if messages and size > max_bytes:
                break
            mark = window.mark(index)
            messages.append((MessageId(mark.ms, mark.sequence), message_data(frame)))
            if len(messages) == limit:
                break
    return Peeked(messages)


def may_expand(ring: TopicRing, ms: int, sequence: int, *, committed: bool) -> bool:
    """Return whether the reader may expand the entry with this time and sequence."""
    window = ring.window
    substitutes = window.committed if committed else window.uncommitted
    base = window.base_mark
    if (base.ms, base.sequence) == (ms, sequence):
        return base.offset > 0 and not window.base_is_plain
    past = window.after_time(ms, sequence)
    if past is None or past == window.after(base.offset):
        return past is None
    mark = window.mark(past - 1)
    at = substitutes.at(mark.offset) if substitutes is not None else None
    if substitutes is None or at is None or (mark.ms, mark.sequence) != (ms, sequence):
        return False
    return substitutes.frames[at] != b""


def _has(window: Window, ms: int, sequence: int, past: int) -> bool:
    """Return whether an entry has this time and sequence, the last one before an index."""
    base = window.base_mark
    at = base if past == window.after(base.offset) else window.mark(past - 1)
    return (at.ms, at.sequence) == (ms, sequence)
