"""A pointer in a log: its last PUBLISH entry, and its decision."""

from collections.abc import Collection
from typing import NamedTuple

from oplogd.model.event_id import Mark
from oplogd.model.pointer import Decision
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.topic_layout import (
    END_NUMBER,
    PUBLISH_BASE,
    identity,
    mark_of,
    number_of,
    parts,
)
from oplogd.store.mongo.topics.groups import Once
from oplogd.store.mongo.topics.judgement import entries_of
from oplogd.store.topics import EntryKind

_LOOK_UP = 500


class LastPublish(NamedTuple):
    """``number``: of the last published message of the stored ones, 0 if there is none.

    ``mark``: of the last PUBLISH entry, None if there is none or it was voided.
    """

    number: int = 0
    mark: Mark | None = None
    decision: Decision | None = None


def end_of(pointer: int, log: int) -> str:
    """Return the identity of the decision."""
    return identity(pointer, log, END_NUMBER)


def publish_identity(pointer: int, log: int, number: int) -> str:
    """Return the identity of the PUBLISH entry up to a stored message."""
    return identity(pointer, log, PUBLISH_BASE + number)


async def published_of(link: Link, pointer: int, log: int) -> LastPublish:
    """Raises PyMongo's errors."""
    chosen = {"x": {"$gte": publish_identity(pointer, log, 0), "$lte": end_of(pointer, log)}}
    members = {"x": 1, "d": 1, "ts": 1, "q": 1, "kind": 1}
    decision = None
    async with link.reading() as session:
        found = link.entries.find(chosen, members, session=session).sort("x", -1).limit(2)
        for each in await found.to_list():
            number = number_of(each["x"])
            if number == END_NUMBER:
                decision = Decision(each["d"])
                continue
            mark = mark_of(each) if each["kind"] == EntryKind.PUBLISH else None
            return LastPublish(number - PUBLISH_BASE, mark, decision)
    return LastPublish(decision=decision)


async def decisions_of(link: Link, log: int, pointers: Collection[int]) -> dict[int, Decision]:
    """See ``TopicLog.decisions``. Raises PyMongo's errors."""
    found = await decided_pairs(link, [(pointer, log) for pointer in pointers])
    return {pointer: decision for (pointer, _), decision in found.items()}


async def decided_pairs(
    link: Link, pairs: Collection[tuple[int, int]]
) -> dict[tuple[int, int], Decision]:
    """Return the decisions about pairs of a pointer and a log. Raises PyMongo's errors."""
    by_end = {end_of(*pair): pair for pair in pairs}
    decisions: dict[tuple[int, int], Decision] = {}
    for ends in parts(by_end, _LOOK_UP):
        for end, entry in (await entries_of(link, map(Once, ends))).items():
            if entry.digest is not None:
                decisions[by_end[end]] = Decision(entry.digest)
    return decisions
