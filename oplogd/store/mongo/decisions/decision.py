"""Decisions about pointers: the COMMIT or ABORT entry itself, in each log.

A report is recorded for the pointer before: see ``reports``. The time-out is only here.

The entry is appended once per log. Its digest is the decision, so another decision meets it. Every
append under the pointer is judged against it, so nothing follows it. Any agent that sees the entry
can do the rest.
"""

from collections.abc import Collection, Iterable, Mapping

from oplogd.model.pointer import Decision
from oplogd.model.transaction import Marker, encode_marker
from oplogd.store.mongo.decisions.aborted import Aborted
from oplogd.store.mongo.decisions.appends import PointerAppender
from oplogd.store.mongo.decisions.late import TimedOutList
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.pointers.published import end_of
from oplogd.store.mongo.pointers.rows import PointerRows, key, pointer_and_log
from oplogd.store.mongo.pointers.stored import MAX_NUMBER, StoredMessages
from oplogd.store.mongo.topics.groups import Group, Once, new_entry
from oplogd.store.mongo.topics.judgement import entries_of
from oplogd.store.transactions import Decisions


class PointerDecider:
    """Methods raise PyMongo's errors, and StoreUnavailableError.

    ``decisions`` counts those of this process.
    """

    def __init__(
        self, link: Link, stored: StoredMessages, aborted: Aborted, appender: PointerAppender
    ) -> None:
        self._link = link
        self._rows = PointerRows(link)
        self._stored = stored
        self._aborted = aborted
        self._timed_out = TimedOutList(link)
        self._appender = appender
        self.decisions = Decisions()

    async def decide(
        self, given: Collection[tuple[int, int]], decision: Decision
    ) -> dict[tuple[int, int], Group]:
        """Append a decision about each pair of a pointer and a log, unless it is decided.

        Return the groups by pair. Each has its outcome: see ``Group``.
        """
        groups = {pair: self._entry(*pair, decision) for pair in given}
        todo, size = list(groups.values()), self._link.timing.topics_per_step
        for start in range(0, len(todo), size):
            some = todo[start : start + size]
            await self._appender.run(some)
            self._count(some, decision)
            await self._link.step("decision")
        return groups

    async def finish(self, decided: Mapping[tuple[int, int], Decision]) -> None:
        """Carry out the decisions about pairs of a pointer and a log, if any step is left.

        Messages waiting for their publish are dropped. Aborted ones are noted for the sweep, and
        those that timed out are listed.
        """
        keys = {key(*pair): decision for pair, decision in decided.items()}
        for row in await self._rows.among(keys):
            pointer, log = pointer_and_log(row)
            if row.get("stored"):
                await self._stored.drop_new(pointer, log)
            if row.get("entries") and keys[row["_id"]] is Decision.ABORTED:
                await self._aborted.note(pointer, log)
            if row.get("entries") and keys[row["_id"]] is Decision.TIMED_OUT:
                end = end_of(pointer, log)
                if ended := (await entries_of(self._link, [Once(end)])).get(end):
                    await self._timed_out.add(pointer, log, int(row["begun"]), ended.mark.ms)
            await self._link.step("dropped")
            await self._rows.remove([row["_id"]])

    async def forget(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Remove what is left of pointers of deleted topics."""
        gone = list(pairs)
        await self._stored.remove([(*pair, MAX_NUMBER) for pair in gone])
        await self._rows.remove(key(*pair) for pair in gone)

    def _entry(self, pointer: int, log: int, decision: Decision) -> Group:
        data = encode_marker(Marker(str(pointer))).encode()
        once = Once(end_of(pointer, log), digest=str(decision))
        return Group(log, [new_entry(decision.kind, data, once=once)])

    def _count(self, groups: Iterable[Group], decision: Decision) -> None:
        new = sum(group.last is not None and not group.repeated for group in groups)
        self.decisions.add(decision, new)
