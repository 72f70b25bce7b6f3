"""Searching a dense log by rounds of look-ups: the time ascends with the offset."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from oplogd.model.event_id import Mark

# Offsets that one look-up asks for.
PROBES = 16

# Looks up the marks of the entries at these offsets. Entries that are gone are missing.
LookUp = Callable[[Sequence[int]], Awaitable[Mapping[int, Mark]]]


async def last_before(
    low: Mark, high: Mark, is_before: Callable[[Mark], bool], look_up: LookUp, *, near: bool = False
) -> Mark:
    """Return the last mark up to ``high`` that ``is_before``. It holds of ``low``.

    ``near``: the mark is probably close to ``low``. An entry leaving the log during the search
    counts as before: all entries leave at the front.
    """
    if is_before(high):
        return high
    while high.offset - low.offset > 1:
        if near:
            offsets = [each for each in spread(low.offset, high.offset) if each < high.offset]
            near = False
        else:
            span = high.offset - low.offset
            number = min(PROBES, span - 1)
            offsets = [low.offset + span * k // (number + 1) for k in range(1, number + 1)]
        found = await look_up(offsets)
        for offset in offsets:
            mark = found.get(offset, Mark(offset, low.ms, low.sequence))
            if not is_before(mark):
                high = mark
                break
            low = mark
    return low


def spread(low: int, high: int) -> list[int]:
    """Return offsets past ``low`` up to ``high``: dense at first, then at growing distances."""
    span = high - low
    return sorted(
        {
            low + max(number, round(span ** (number / PROBES)))
            for number in range(1, PROBES + 1)
            if number <= span
        }
    )
