"""Reads of a topic's log for readers without a ring: the begin, and pages with their judge."""

from collections.abc import Sequence

from oplogd.model.pointer import Decision, Judge, by_decisions
from oplogd.store.topics import TopicEntry, TopicLog
from oplogd.topics.poll import PollBegin, PollStart


async def begin_of(log: TopicLog, start: PollStart) -> PollBegin:
    """Return the begin of a poll in this log."""
    if start.after is None:
        return PollBegin(0, gap=False)
    bounds = await log.locate(start.after.ms, start.after.sequence)
    if (named := start.doubtful(bounds)) is not None:
        place = named[:2]
        if (await log.locate(*place)).is_old(*place):
            return PollBegin(bounds.front.offset, gap=True)
    return start.resolve(bounds)


async def decided(
    log: TopicLog, after: int, entries: Sequence[TopicEntry]
) -> tuple[Sequence[TopicEntry], Judge]:
    """Return a page with the judge of its pointers. ``after``: the offset before the page."""
    pointers = {each.pointer for each in entries if each.pointer is not None}
    if not pointers:
        return entries, by_decisions({})
    decisions = await log.decisions(pointers)
    if Decision.COMMITTED in decisions.values():
        # Some entries may have been rolled back since the page was read, and before the decision.
        last = entries[-1].offset
        again = await log.read(after, len(entries))
        entries = [each for each in again if each.offset <= last]
    return entries, by_decisions(decisions)
