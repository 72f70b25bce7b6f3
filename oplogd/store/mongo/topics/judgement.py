"""The conditions of a conditional append to topics, judged after the heads were read.

A topic must exist. An entry of a transaction is appended once, and only while the transaction has
not ended in this log: see ``Once``. Entries under a pointer go in while it is open: see ``Unless``.
Any change of an answer is itself an entry of the same log and takes the place behind the head, so
an outdated judgement meets a duplicate key. The fence of a batch is judged here, too: see
``fences``.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from oplogd.clock.rule import MAX_LEAD_MS
from oplogd.model.event_id import Mark
from oplogd.model.lease import Fence
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.topic_layout import END, Document, following, identity, mark_of
from oplogd.store.mongo.topics.groups import Attempt, Group, Numbered, Once, Unless
from oplogd.store.mongo.topics.heads import Heads

Chunk = Mapping[Group, Sequence[Numbered]]


class Found(NamedTuple):
    """An entry in its log."""

    mark: Mark
    digest: str | None


async def entries_of(
    link: Link, conditions: Iterable[Once], others: Sequence[Unless] = ()
) -> dict[str, Found]:
    """Look up the entries of the conditions. Return them by identity."""
    clauses = _clauses(conditions, others)
    found: dict[str, Found] = {}
    if not clauses:
        return found
    members = {"ts": 1, "q": 1, "x": 1, "d": 1}
    async with link.reading() as session:
        cursor = link.entries.find({"$or": clauses}, members, session=session)
        async for each in cursor.batch_size(5_000):
            # A late copy of an entry may be on its way out: the first one counts.
            known = found.get(each["x"])
            if known is None or mark_of(each) < known.mark:
                found[each["x"]] = Found(mark_of(each), each.get("d"))
    return found


def _clauses(conditions: Iterable[Once], others: Sequence[Unless]) -> list[Document]:
    """Return one range of identities per transaction and log, with few entries.

    Another one per pointer and log: see ``Unless``.
    """
    ranges: dict[str, tuple[str, str]] = {}
    single: set[str] = set()
    for own, end, _ in conditions:
        low, high = ranges.get(own[:22], (own, own))
        ranges[own[:22]] = min(low, own), max(high, own)
        if end is not None:
            single.add(end)
    single |= {low for low, high in ranges.values() if low == high}
    wide = {each for each in others if each.low < each.high}
    single |= {each.low for each in others if each.low == each.high}
    clauses: list[Document] = [
        {"x": {"$gte": low, "$lte": high}} for low, high in [*ranges.values(), *wide] if low < high
    ]
    return [*clauses, {"x": {"$in": sorted(single)}}] if single else clauses


def judge(
    chunk: Chunk,
    heads: Heads,
    now_ms: int,
    known: Mapping[str, Found],
    held: Collection[Fence] = (),
) -> list[Attempt]:
    """Return the places of the admitted entries. Take the others out of their groups.

    An entry waits for the next judgement if one before it in the chunk decides about it. ``known``:
    see ``entries_of``. ``held``: the valid fences. Both were asked for after the heads.
    """
    lasts = {log: head.mark for log, head in heads.logs.items()}
    attempts = []
    identities: set[str] = set()
    for group, entries in chunk.items():
        if group.fence is not None and group.fence not in held:
            group.expire()
            continue
        if group.unless is not None:
            if _has(known, group.unless):
                group.close()
                continue
            if _has(identities, group.unless):
                continue
        head = heads.logs.get(group.log)
        if group.behind is not None and head is not None and head.mark.offset != group.behind:
            group.close()
            continue
        accepted = _accepted(group, entries, known, identities)
        if accepted and (head is None or head.is_ended):
            group.refuse(head.mark if head else None)
            continue
        for entry in accepted:
            last = lasts[group.log]
            # The next topic continues past the end: the last message's id is before its front.
            mark = following(last, 0 if entry.kind == END else now_ms)
            lasts[group.log] = mark
            is_ahead = entry.kind != END and mark.ms > now_ms + MAX_LEAD_MS
            attempts.append(Attempt(group, entry, mark, now_ms if is_ahead else None))
    return attempts


def _accepted(
    group: Group, entries: Sequence[Numbered], known: Mapping[str, Found], identities: set[str]
) -> Sequence[Numbered]:
    """Return the entries with fulfilled conditions. Take the others out of the group.

    ``identities``: of the accepted entries of this chunk. Another copy waits for the next round.
    """
    if entries[0].once is None:  # none of them has one
        if group.unless is not None:
            identities.update(_numbered(group, entries))
        return entries
    accepted = []
    for entry in entries:
        once = entry.once
        assert once is not None
        if found := known.get(once.identity):
            if once.digest != found.digest:
                group.stop_at(entry)
                return []
            group.repeat(entry, found.mark)
        elif once.end in known:
            group.close()
            return []
        elif once.identity in identities or once.end in identities:
            break
        else:
            identities.add(once.identity)
            accepted.append(entry)
    return accepted


def _numbered(group: Group, entries: Sequence[Numbered]) -> Iterable[str]:
    """Return the identities for other conditions: none of DIRECT entries."""
    for entry in entries:
        if entry.under is not None and entry.under.number is not None:
            yield identity(entry.under.pointer, group.log, entry.under.number)


def _has(identities: Collection[str], unless: Unless) -> bool:
    if unless.low == unless.high:
        return unless.low in identities
    return any(unless.low <= each <= unless.high for each in identities)
