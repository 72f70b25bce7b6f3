"""The table of transactions. Each change of a state is one compare-and-set."""

import secrets
from collections.abc import Collection, Sequence
from typing import Any

from pymongo import ReturnDocument
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import DuplicateKeyError

from oplogd.clock.ages import Present
from oplogd.model.event_id import Mark
from oplogd.model.transaction import Reason, Record, State, no_transaction
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.overdue import is_alive, is_over, is_past
from oplogd.store.mongo.link.topic_layout import Document
from oplogd.store.mongo.transactions.row import (
    ACTIVE_INDEX,
    LARGE,
    MEMBERS,
    STATES,
    TXNS,
    UNFINISHED,
    TransactionRow,
    TxnPhase,
    id_at,
    mark_document,
    new_row,
    row_of,
)
from oplogd.store.transactions import RETENTION_MS, NewTransaction, OpenStats

# Rows forgotten at a time.
_STEP = 500


async def date_again(rows: AsyncCollection[Document], chosen: Document, present: Present) -> None:
    """Let chosen documents begin now if they began before the clock was set back."""
    chosen = {**chosen, "begun": {"$gt": present.known_to}}
    async for each in rows.find(chosen, {"begun": 1, "expires": 1}):
        again = {"begun": present.ms, "expires": present.ms + each["expires"] - each["begun"]}
        await rows.update_one(
            {**chosen, "_id": each["_id"], "begun": each["begun"]}, {"$set": again}
        )


class TransactionRows:
    """Methods raise PyMongo's errors, and StoreUnavailableError for a damaged row.

    Methods that change a row return it with the change, or None if it was in another state.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._rows: AsyncCollection[Document] = link.database[TXNS]

    async def create_index(self) -> None:
        """Create the collection and its index, unless they are there."""
        await self._rows.create_index([("active", 1)], name=ACTIVE_INDEX, sparse=True)

    async def insert(self, new: NewTransaction) -> TransactionRow:
        while True:
            now_ms = await self._link.now_ms()
            document = new_row(id_at(now_ms, secrets.randbits(20)), new, now_ms)
            try:
                await self._rows.insert_one(document)
            except DuplicateKeyError:
                continue
            return row_of(document)

    async def find(self, id_: int) -> TransactionRow:
        """Raises TransactionNotFoundError."""
        async with self._link.reading() as session:
            document = await self._rows.find_one({"_id": id_}, session=session)
        if document is None:
            raise no_transaction(id_)
        return row_of(document)

    async def begun(self, id_: int, begin: Mark) -> TransactionRow | None:
        """Note the mark of the begin record."""
        return await self._change({"_id": id_}, {"$set": {"begin": mark_document(begin)}})

    async def reserve(
        self, id_: int, topics: Sequence[int], records: Sequence[Record], size: int, limit: int
    ) -> TransactionRow | None:
        """Register the topics of a write, and count its records and their ``size`` in bytes.

        Return None also if there would be more than ``limit`` bytes.
        """
        update: Document = {
            "$addToSet": {"logs": {"$each": list(topics)}},
            "$inc": {"records": len(records), "octets": size},
            "$max": {"high": max(each.lsn for each in records)},
        }
        if any(not each.log for each in records):
            update["$set"] = {"oplog": True}
        alive = await self._alive(id_)
        return await self._change({**alive, "octets": {"$lte": limit - size}}, update)

    async def release(self, id_: int, records: int, size: int) -> TransactionRow | None:
        """Take back a part of a reservation: another call has written these records."""
        return await self._change(
            {"_id": id_, "phase": TxnPhase.OPEN},
            {"$inc": {"records": -records, "octets": -size}},
        )

    async def decide(self, id_: int, members: Document) -> TransactionRow | None:
        """Decide to commit. ``members``: see ``decided``. None also if it is overdue."""
        return await self._change(await self._alive(id_), {"$set": members})

    async def abort(self, id_: int, reason: Reason) -> TransactionRow | None:
        """Decide to abort. An overdue transaction can only time out, and no other one can."""
        present = await self._link.present()
        condition = is_over(present) if reason is Reason.TIMEOUT else is_alive(present)
        chosen: Document = {"_id": id_, "phase": TxnPhase.OPEN, **condition}
        member = MEMBERS.get(reason)
        stored = Reason.CLIENT if member else reason
        aborting = {"phase": TxnPhase.ABORTING, "reason": stored, "decided": present.ms}
        if member:
            aborting[member] = True
        return await self._change(chosen, {"$set": aborting})

    async def finish(self, id_: int, phase: TxnPhase, members: Document) -> TransactionRow | None:
        """End a transaction if it is in this phase."""
        return await self._change(
            {"_id": id_, "phase": phase}, {"$set": members, "$unset": {"active": ""}}
        )

    async def remove(self, id_: int) -> None:
        """Remove a transaction if it is open."""
        await self._rows.delete_one({"_id": id_, "phase": TxnPhase.OPEN})

    async def committing(self, log: int) -> list[TransactionRow]:
        """Return the transactions of a commit log whose commit is not finished."""
        chosen = {"active": True, "phase": TxnPhase.COMMITTING, "log": log}
        async with self._link.reading() as session:
            found = await self._rows.find(chosen, session=session).to_list()
        return [row_of(each) for each in found]

    async def of_terms(self, lease: str, before: int) -> list[TransactionRow]:
        """Return unfinished transactions of terms of a lease before one, the oldest first."""
        chosen = {"active": True, "fence.lease": lease, "fence.term": {"$lt": before}}
        async with self._link.reading() as session:
            found = self._rows.find(chosen, LARGE, session=session).sort("_id", 1)
            return [row_of(each) for each in await found.to_list()]

    async def busy(self, logs: Collection[int]) -> set[int]:
        """Return the ones with unfinished transactions among some commit logs."""
        chosen = {"active": True, "log": {"$in": list(logs)}}
        async with self._link.reading() as session:
            found = await self._rows.find(chosen, {"log": 1}, session=session).to_list()
        return {int(each["log"]) for each in found}

    async def due(self, settled_ms: int) -> list[int]:
        """Return overdue transactions, and unfinished ones decided before a time. Oldest first."""
        overdue = {"phase": TxnPhase.OPEN, **is_over(await self._link.present())}
        decided = {"phase": {"$in": UNFINISHED}, **is_past("decided", settled_ms)}
        chosen = {"active": True, "$or": [overdue, decided]}
        found = await self._rows.find(chosen, {"_id": 1}).sort("_id", 1).to_list()
        return [each["_id"] for each in found]

    async def date_again(self) -> None:
        """Let open transactions begin now if they began before the clock was set back."""
        present = await self._link.present()
        started = {"$gte": id_at(present.known_to)}
        await date_again(
            self._rows, {"active": True, "_id": started, "phase": TxnPhase.OPEN}, present
        )

    async def select(
        self,
        state: State | None,
        group: str | None,
        limit: int,
        before: int | None,
        owner: str | None,
    ) -> list[TransactionRow]:
        """See ``Transactions.select``."""
        known = {"group": group, "owner": owner}
        chosen: Document = {name: given for name, given in known.items() if given is not None}
        if before is not None:
            chosen["_id"] = {"$lt": before}
        if state is not None:
            chosen["phase"] = {"$in": [phase for phase in TxnPhase if STATES[phase] is state]}
            if state in (State.OPEN, State.COMMITTING):
                chosen["active"] = True
        found = self._rows.find(chosen, LARGE).sort("_id", -1).limit(limit)
        return [row_of(each) for each in await found.to_list()]

    async def stats(self) -> OpenStats:
        chosen = {"active": True, "phase": TxnPhase.OPEN}
        count = await self._rows.count_documents(chosen)
        if not count:
            return OpenStats(0, 0)
        oldest = await self._rows.find_one(chosen, {"begun": 1}, sort=[("_id", 1)])
        return OpenStats(count, oldest["begun"]) if oldest else OpenStats(0, 0)

    async def old(self) -> list[int]:
        """Return some old transactions."""
        before = await self._link.before_ms(RETENTION_MS)
        chosen: Document = {"_id": {"$lt": id_at(before)}, "active": None, "kept": None}
        chosen["decided"] = {"$lt": before}
        found = await self._rows.find(chosen, {"_id": 1}).sort("_id", 1).limit(_STEP).to_list()
        return [each["_id"] for each in found]

    async def of_ids(
        self, ids: Collection[int], owner: str | None = None
    ) -> dict[int, TransactionRow]:
        """Return the transactions that are there. ``owner``: only those of this one; None: all."""
        chosen: Document = {"_id": {"$in": list(ids)}}
        if owner is not None:
            chosen["owner"] = owner
        async with self._link.reading() as session:
            found = self._rows.find(chosen, LARGE, session=session)
            return {int(each["_id"]): row_of(each) async for each in found}

    async def hold(self, id_: int) -> None:
        """Never forget a transaction, until ``let_go``."""
        await self._rows.update_one({"_id": id_}, {"$set": {"kept": True}})

    async def let_go(self, id_: int) -> None:
        """Let a transaction be forgotten like one that was decided now."""
        now_ms = await self._link.now_ms()
        changes = {"$set": {"decided": now_ms}, "$unset": {"kept": "", "unclean": ""}}
        await self._rows.update_one({"_id": id_, "kept": True}, changes)

    async def unclean(self) -> list[int]:
        """Return some old transactions that are not forgotten and may have payloads."""
        before = await self._link.before_ms(RETENTION_MS)
        chosen = {"_id": {"$lt": id_at(before)}, "active": None, "unclean": True}
        found = await self._rows.find(chosen, {"_id": 1}).limit(_STEP).to_list()
        return [each["_id"] for each in found]

    async def cleaned(self, id_: int) -> None:
        await self._rows.update_one({"_id": id_}, {"$unset": {"unclean": ""}})

    async def forget(self, ids: Collection[int]) -> None:
        await self._rows.delete_many({"_id": {"$in": list(ids)}})

    async def _alive(self, id_: int) -> Document:
        """Return the filter for a transaction if it can still be written and committed."""
        return {"_id": id_, "phase": TxnPhase.OPEN, **is_alive(await self._link.present())}

    async def _change(self, chosen: Document, update: Document) -> TransactionRow | None:
        found: Any = await self._rows.find_one_and_update(
            chosen, update, return_document=ReturnDocument.AFTER
        )
        return None if found is None else row_of(found)
