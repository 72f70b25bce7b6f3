"""Folding entries into the states: the last operation of each key and batch, and no state ever goes back.

A new state is inserted; one that is there is updated only if its ``n`` is smaller (or missing). So folding a batch twice, or
late, changes nothing.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pymongo import UpdateOne
from pymongo.errors import BulkWriteError

from oplogd.store.mongo.connect import Link
from oplogd.store.mongo.errors import DUPLICATE_KEY
from oplogd.store.mongo.layout import LOG, Document, key_of, mark_of, state_document

MOST_WRITERS = 1_000
"""Of so many writers the row remembers what was folded last."""


async def fold(
    link: Link, documents: Sequence[Document], hold: Callable[[], Awaitable[bool]]
) -> bool:
    """Bring the states up to these entries; a majority has them when it returns.

    ``hold`` is asked before each command; False when it said no.
    """
    last = {key_of(document): state_document(document, link.damage) for document in documents}
    existing = {
        document["_id"]
        async for document in link.states.find({"_id": {"$in": list(last)}}, {"_id": 1}).batch_size(
            5_000
        )
    }
    new = [key for key in last if key not in existing]
    if not await hold():
        return False
    if new:
        try:
            await link.states.insert_many([{"_id": key, **last[key]} for key in new], ordered=False)
        except BulkWriteError as error:
            errors: list[dict[str, Any]] = error.details["writeErrors"]
            if not errors or any(each["code"] != DUPLICATE_KEY for each in errors):
                raise
            existing.update(new[each["index"]] for each in errors)
    updates = [
        UpdateOne({"_id": key, "n": {"$not": {"$gte": last[key]["n"]}}}, {"$set": last[key]})
        for key in last
        if key in existing
    ]
    for start in range(0, len(updates), link.updates_per_command):
        if not await hold():
            return False
        await link.states.bulk_write(
            updates[start : start + link.updates_per_command], ordered=False
        )
    return True


async def raise_checkpoint(
    link: Link, documents: Sequence[Document], first: int, after: int
) -> bool:
    """Record that these entries are folded, and of each writer the last one. Return whether this call raised it.

    The place, its time and the writers must fit each other, so they are set together, and only where the place still is
    ``after``, behind which these entries were read: it goes back where states were dropped or a backup was restored, and then
    those in between are to be folded first. ``first``: the epoch in which they were read.
    """
    mark = mark_of(documents[-1])
    last = {
        document["w"]: [document["s"], mark_of(document).offset]
        for document in documents
        if isinstance(document.get("w"), str) and isinstance(document.get("s"), int)
    }
    changed: Document = {"n": mark.offset, "ts": mark.ms}
    changed |= {f"writers.{writer}": value for writer, value in last.items()}
    raised = await link.meta.update_one({"_id": LOG, "first": first, "n": after}, {"$set": changed})
    return raised.matched_count == 1


async def forget_writers(link: Link) -> None:
    """Keep the writers of the latest entries. Does nothing if entries were folded after the row was read."""
    row = await link.meta.find_one({"_id": LOG}, {"n": 1, "writers": 1})
    writers: dict[str, list[int]] = (row or {}).get("writers", {})
    if len(writers) > MOST_WRITERS:
        oldest = sorted(writers, key=lambda writer: writers[writer][1])[
            : len(writers) - MOST_WRITERS // 2
        ]
        seen = {"_id": LOG, "n": (row or {}).get("n")}
        await link.meta.update_one(seen, {"$unset": {f"writers.{writer}": "" for writer in oldest}})
