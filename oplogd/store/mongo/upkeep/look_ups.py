"""Look-ups in the log of a topic for its bound in bytes: sizes, and entries that must stay."""

from collections.abc import Collection, Iterable, Mapping

from oplogd.model.pointer import Decision
from oplogd.model.transaction import FIRST_ID
from oplogd.store.bounds import just_decided
from oplogd.store.mongo.link import topic_layout as layout
from oplogd.store.mongo.link.layout import Document
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.pointers.published import end_of
from oplogd.store.mongo.topics.segments import TopicSegment
from oplogd.store.mongo.transactions.row import TXNS
from oplogd.store.topics import DECIDED_MS, ENTRY_BYTES, EntryKind

# Entries of one look-up of sizes.
_STEP = 1_000

_NEEDED_KINDS = [EntryKind.DIRECT, EntryKind.PUBLISH, EntryKind.COMMIT, EntryKind.ABORT]


class LookUps:
    def __init__(self, link: Link) -> None:
        self._link = link

    async def sizes(self, log: int, after: int, upto: int) -> list[TopicSegment]:
        """Return the sizes of some entries."""
        chosen = {"_id": layout.places_of(log, after, upto)}
        found = self._link.entries.find(chosen, {"z": 1, "ts": 1}).sort("_id", 1).limit(_STEP)
        documents = await found.to_list()
        older = [each["_id"] for each in documents if "z" not in each]
        sizes: dict[str, int] = {}
        for keys in layout.parts(older, 100):  # written by an older agent
            entries = self._link.entries.find({"_id": {"$in": keys}}, {"data": 1})
            sizes |= {each["_id"]: len(each["data"].encode()) async for each in entries}
        return [
            TopicSegment(
                layout.number_and_offset(each["_id"])[1],
                ENTRY_BYTES + int(each.get("z", sizes.get(each["_id"], 0))),
                layout.number(each, "ts"),
            )
            for each in documents
        ]

    async def records(self, log: int, after: int, upto: int) -> dict[str, int]:
        """Return the bytes of the DEFERRED entries among these, by transaction."""
        chosen = {"_id": layout.places_of(log, after, upto), "kind": EntryKind.DEFERRED}
        size: dict[str, int] = {}
        async for each in self._link.entries.find(chosen, {"x": 1, "z": 1}):
            txn = f"{layout.owner_of(each['x']):016x}"
            size[txn] = size.get(txn, 0) + int(each.get("z", 0)) + ENTRY_BYTES
        return size

    async def still_counted(self, log: int, sizes: Mapping[str, int], floor: int) -> dict[str, int]:
        """Return the part whose transactions are open, or have committed past a floor."""
        ends = await self._ends(log, [int(txn, 16) for txn in sizes], floor)
        return {txn: size for txn, size in sizes.items() if ends.get(int(txn, 16), True)}

    async def not_over(self, log: int, txns: Collection[int], floor: int) -> set[int]:
        """Return the transactions not finished, or committed past a floor."""
        ends = await self._ends(log, txns, floor)
        left = [txn for txn in txns if txn not in ends]
        chosen = {"_id": {"$in": left}, "active": True}
        active = await self._link.database[TXNS].find(chosen, {"_id": 1}).to_list()
        return {txn for txn, is_needed in ends.items() if is_needed} | {
            int(each["_id"]) for each in active
        }

    async def _ends(self, log: int, txns: Iterable[int], floor: int) -> dict[int, bool]:
        """Return for each decided transaction whether it has committed past a floor."""
        ends: dict[int, bool] = {}
        for keys in layout.parts(layout.identity(txn, log, layout.END_NUMBER) for txn in txns):
            async for each in self._link.entries.find({"x": {"$in": keys}}, {"x": 1, "kind": 1}):
                is_past = layout.number_and_offset(each["_id"])[1] > floor
                ends[layout.owner_of(each["x"])] = is_past and each["kind"] == EntryKind.COMMIT
        return ends

    async def needed(self, log: int, after: int, upto: int) -> str | None:
        """Return why readers may need one of these entries, None if they need none."""
        chosen = {"_id": layout.places_of(log, after, upto), "kind": {"$in": _NEEDED_KINDS}}
        members = {"kind": 1, "ts": 1, "t": 1, "x": 1, "d": 1}
        found = await self._link.entries.find(chosen, members).to_list()
        present = await self._link.present()

        def is_recent(document: Document) -> bool:
            return present.is_recent(
                layout.number(document, "ts"), document.get("t", 0), DECIDED_MS
            )

        decisions = (EntryKind.COMMIT, EntryKind.ABORT)
        for each in found:
            if each["kind"] in decisions and is_recent(each):
                owner = layout.owner_of(each["x"])
                return just_decided("transaction" if owner >= FIRST_ID else "pointer", owner)
        pointers = {layout.owner_of(each["x"]) for each in found if each["kind"] not in decisions}
        ends: dict[int, Document] = {}
        for keys in layout.parts(end_of(pointer, log) for pointer in pointers):
            decided = self._link.entries.find({"x": {"$in": keys}}, members)
            ends |= {layout.owner_of(each["x"]): each async for each in decided}
        for pointer in sorted(pointers):
            end = ends.get(pointer)
            if end is None:
                return f"pointer {pointer} is open"
            if end.get("d") == Decision.COMMITTED and is_recent(end):
                return just_decided("pointer", pointer)
        return None
