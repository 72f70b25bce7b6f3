"""Folding entries into the states: each object gets its last operation, and no state goes back.

A new state is inserted. An existing one is updated only if its offset is smaller or missing. So it
is harmless to fold a batch twice or late.
"""

from collections.abc import Sequence

from pymongo import UpdateOne
from pymongo.errors import BulkWriteError

from oplogd.store.mongo.link.errors import duplicates_in
from oplogd.store.mongo.link.layout import LOG, Document, key_of, mark_of, state_document
from oplogd.store.mongo.link.lease import HoldLease
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.transactions.places import note_folded

# Writers whose last folded sequence the row remembers, at most.
MOST_WRITERS = 1_000

_FIND_BATCH = 5_000


async def fold(link: Link, documents: Sequence[Document], hold: HoldLease) -> bool:
    """Bring entries into the states. A majority has them when it returns.

    ``hold`` renews the lease and is called before each write. If it returns False, folding stops
    and False is returned.
    """
    last = {key_of(document): state_document(document, link.damage) for document in documents}
    chosen = {"_id": {"$in": list(last)}}
    found = link.states.find(chosen, {"_id": 1}).batch_size(_FIND_BATCH)
    existing = {document["_id"] async for document in found}
    new = [key for key in last if key not in existing]
    if not await hold():
        return False
    if new:
        try:
            await link.states.insert_many([{"_id": key, **last[key]} for key in new], ordered=False)
        except BulkWriteError as error:
            existing.update(new[index] for index in duplicates_in(error))
    updates = [
        UpdateOne({"_id": key, "n": {"$not": {"$gte": last[key]["n"]}}}, {"$set": last[key]})
        for key in last
        if key in existing
    ]
    most = link.quirks.updates_per_command
    for start in range(0, len(updates), most):
        if not await hold():
            return False
        await link.states.bulk_write(updates[start : start + most], ordered=False)
    return True


async def raise_checkpoint(
    link: Link, documents: Sequence[Document], first: int, after: int
) -> bool:
    """Record entries as folded, and the last sequence of each writer among them.

    The places of transactions' operations are noted before. Offset, time and writers must fit each
    other, so they are set together, and only if the checkpoint still is ``after``, behind which the
    entries were read. It goes back after dropped states or a restored backup: then the entries in
    between must be folded first. ``first``: first offset of the epoch in which they were read.
    Returns whether it was raised.
    """
    await note_folded(link, documents)
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
    """Forget the least recent writers if there are more than MOST_WRITERS.

    Does nothing if entries are folded after the row was read.
    """
    row = await link.meta.find_one({"_id": LOG}, {"n": 1, "writers": 1})
    writers: dict[str, list[int]] = (row or {}).get("writers", {})
    if len(writers) > MOST_WRITERS:
        by_age = sorted(writers, key=lambda writer: writers[writer][1])
        oldest = by_age[: len(writers) - MOST_WRITERS // 2]
        unchanged = {"_id": LOG, "n": (row or {}).get("n")}
        removed = {f"writers.{writer}": "" for writer in oldest}
        await link.meta.update_one(unchanged, {"$unset": removed})
