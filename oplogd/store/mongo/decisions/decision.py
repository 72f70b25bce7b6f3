"""Decisions about pointers: the COMMIT or ABORT entry itself, in each log.

A report is recorded for the pointer before: see ``reports``. The time-out is only here. The entry
is appended once per log. Its digest is the decision, so another decision meets it. Every append
under the pointer is judged against it, so nothing follows it. Any agent can do the rest.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from pymongo.errors import PyMongoError

from oplogd.errors import StoreUnavailableError, TopicNotFoundError, TransactionConflictError
from oplogd.model.event_id import Mark
from oplogd.model.pointer import Decision, decided, too_late
from oplogd.model.transaction import Marker
from oplogd.store.mongo.decisions.appends import PointerAppender
from oplogd.store.mongo.decisions.late import LateReports
from oplogd.store.mongo.decisions.rollbacks import Rollbacks
from oplogd.store.mongo.link.lease import FoldLease
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.topic_layout import Document
from oplogd.store.mongo.pointers.published import decided_pairs, decisions_of, end_of
from oplogd.store.mongo.pointers.reports import REPORTED, Reports, pointer_of, report_of
from oplogd.store.mongo.pointers.rows import PointerRows, key, note_aborted, pointer_and_log
from oplogd.store.mongo.pointers.stored import MAX_NUMBER, StoredMessages
from oplogd.store.mongo.topics.groups import Group, Once
from oplogd.store.mongo.topics.judgement import entries_of
from oplogd.store.mongo.topics.setup import TopicsSetup
from oplogd.store.mongo.transactions.records import entry_in
from oplogd.store.transactions import Decisions

# Time between two checks of the indexes.
_TIDY_SECONDS = 60.0


class PointerDecider:
    """Decides pointers, by report or time-out, and carries out rollbacks.

    Methods raise PyMongo's errors, StoreUnavailableError and TransactionConflictError.
    """

    def __init__(
        self,
        link: Link,
        lease: FoldLease,
        setup: TopicsSetup,
        stored: StoredMessages,
        appender: PointerAppender,
        rollbacks: Rollbacks,
        late: LateReports,
    ) -> None:
        self._link = link
        self._lease = lease
        self._setup = setup
        self._tidied_at = float("-inf")
        self._rows = PointerRows(link)
        self._reports = Reports(link)
        self._stored = stored
        self._appender = appender
        self._rollbacks = rollbacks
        self._late = late
        self.decisions = Decisions()

    async def decide(
        self, given: Collection[tuple[int, int]], decision: Decision
    ) -> dict[tuple[int, int], Group]:
        """Append a decision about each pair of a pointer and a log, unless it is decided.

        Return the groups by pair. Each has its outcome: see ``Group``.
        """
        groups = {}
        for pointer, log in given:
            once = Once(end_of(pointer, log), digest=str(decision))
            groups[pointer, log] = entry_in(log, decision.kind, Marker(str(pointer)), once)
        todo, size = list(groups.values()), self._link.timing.topics_per_step
        for start in range(0, len(todo), size):
            some = todo[start : start + size]
            await self._appender.run(some)
            new = sum(group.last is not None and not group.repeated for group in some)
            self.decisions.add(decision, new)
            await self._link.step("decision")
        return groups

    async def finish(self, decided: Mapping[tuple[int, int], Decision]) -> None:
        """Carry out the decisions about pairs of a pointer and a log, if any step is left.

        Messages waiting for their publish are dropped. Aborted ones are noted for the sweep, and
        timed out ones are listed.
        """
        keys = {key(*pair): decision for pair, decision in decided.items()}
        for row in await self._rows.among(keys):
            pointer, log = pointer_and_log(row)
            if row.get("stored"):
                await self._stored.drop_new(pointer, log)
            if row.get("entries") and keys[row["_id"]] is Decision.ABORTED:
                await note_aborted(self._link, pointer, log)
            if row.get("entries") and keys[row["_id"]] is Decision.TIMED_OUT:
                end = end_of(pointer, log)
                if ended := (await entries_of(self._link, [Once(end)])).get(end):
                    await self._late.timed_out.add(pointer, log, int(row["begun"]), ended.mark.ms)
            await self._link.step("dropped")
            await self._rows.remove([row["_id"]])

    async def forget(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Remove what is left of pointers of deleted topics."""
        gone = list(pairs)
        await self._stored.remove([(*pair, MAX_NUMBER) for pair in gone])
        await self._rows.remove(key(*pair) for pair in gone)

    async def report(
        self, logs: Sequence[int], pointer: int, decision: Decision
    ) -> dict[int, Mark]:
        """Record a report and carry it out. Return its marks by log, without deleted topics.

        A time-out is not recorded, and has marks where the pointer was open.
        """
        if decision is Decision.TIMED_OUT:
            return (await self._decide(pointer, decision, logs))[1]
        ends = [end_of(pointer, log) for log in logs]
        for found in (await entries_of(self._link, map(Once, ends))).values():
            # Decided before there were records of reports.
            if found.digest not in (None, decision, Decision.TIMED_OUT):
                raise decided(pointer, Decision(found.digest))
        report = await self._reports.record(pointer, decision, logs, self._rollbacks.help)
        await self._link.step("recorded")
        if "due" in report:
            return await self.complete_all(report)
        marks = await self._complete(report, decision, logs)
        await self._reports.settle(report)
        return marks

    async def complete_all(self, report: Document) -> dict[int, Mark]:
        """Carry out the reports about a pointer, or the rest of them. Return their marks."""
        marks: dict[int, Mark] = {}
        for decision in REPORTED:
            marks |= await self._complete(report, decision, report[decision.value])
        await self._reports.settle(report)
        return marks

    async def _complete(
        self, report: Document, decision: Decision, logs: Collection[int]
    ) -> dict[int, Mark]:
        pointer = pointer_of(report)
        groups, marks = await self._decide(pointer, decision, logs)
        for (_, log), group in groups.items():
            if group.clash is not None:
                with suppress(TopicNotFoundError):  # deleted meanwhile
                    marks[log] = await self._complete_late(pointer, log, decision, report)
            elif group.is_refused:
                await self._reports.leave(log, [pointer])
        return marks

    async def _decide(
        self, pointer: int, decision: Decision, logs: Collection[int]
    ) -> tuple[dict[tuple[int, int], Group], dict[int, Mark]]:
        groups = await self.decide([(pointer, log) for log in logs], decision)
        marks = {log: group.last for (_, log), group in groups.items() if group.last}
        await self.finish({(pointer, log): decision for log in marks})
        return groups, marks

    async def roll_back(
        self, log: int, pointer: int, stamps: Sequence[int] | None, *, force: bool
    ) -> Mark | None:
        """See ``Pointers.rollback``. Entries appended while it runs stay."""
        try:
            return await self._roll_back(log, pointer, stamps, force=force)
        except TransactionConflictError:
            if not force:
                raise
        # The report of a commit has overtaken it: now it is late.
        return await self._roll_back(log, pointer, stamps, force=force)

    async def _roll_back(
        self, log: int, pointer: int, stamps: Sequence[int] | None, *, force: bool
    ) -> Mark | None:
        is_free = await self._is_aborted(pointer, log)
        is_late = not is_free and await self.is_committed(pointer, log)
        if is_late and not force:
            raise too_late(pointer)
        if is_late:
            # Else another agent could still append the rest of a late commit, and none voids it.
            await self.report([log], pointer, Decision.COMMITTED)
        mark = None
        for note in await self._rollbacks.pending(pointer, log):
            try:
                mark = await self._rollbacks.complete(note)
            except TransactionConflictError:
                if not is_late:  # else it is another rollback that the report has overtaken
                    raise
        for note in await self._rollbacks.note(
            pointer, log, stamps, is_free=is_free or is_late, is_gap=is_late
        ):
            mark = await self._rollbacks.complete(note) or mark
        return mark

    async def _is_aborted(self, pointer: int, log: int) -> bool:
        """Return whether a pointer was aborted. After the time-out, this is the report of it."""
        ended = (await decisions_of(self._link, log, [pointer])).get(pointer)
        if ended is Decision.TIMED_OUT:
            try:
                await self.report([log], pointer, Decision.ABORTED)
            except TransactionConflictError:  # it has committed
                return False
        return ended in (Decision.TIMED_OUT, Decision.ABORTED)

    async def is_committed(self, pointer: int, log: int) -> bool:
        """Return whether a pointer was reported as committed in a log."""
        if report := report_of(await self._reports.find(pointer), log):
            return report is Decision.COMMITTED
        # Decided before there were records of reports.
        found = await decisions_of(self._link, log, [pointer])
        return found.get(pointer) is Decision.COMMITTED

    async def _complete_late(
        self, pointer: int, log: int, decision: Decision, report: Document
    ) -> Mark:
        """Carry out a report in a log in which the pointer is decided in another way."""
        end = end_of(pointer, log)
        found = (await entries_of(self._link, [Once(end)]))[end]
        if found.digest != Decision.TIMED_OUT:
            raise decided(pointer, None if found.digest is None else Decision(found.digest))
        await self.finish({(pointer, log): Decision.TIMED_OUT})
        mark = found.mark
        if decision is Decision.COMMITTED:
            mark, is_new = await self._late.commit(pointer, log, report, mark)
        else:
            is_new = await self._late.abort(pointer, log)
        self.decisions.add(decision, is_new)
        return mark

    async def keep(self) -> int:
        """See ``Pointers.keep``."""
        if not self._lease.held:
            return 0
        now = self._link.clock.boot()
        if now - self._tidied_at >= _TIDY_SECONDS:
            await self._setup.create_index()
            for each in (self._rows, self._rollbacks, self._reports, self._late.timed_out):
                await each.create_indexes()
            self._tidied_at = now
        await self._rows.date_again()
        count = await self._complete_rollbacks()
        await self._complete_reports()
        return count + await self._end_pointers()

    async def _complete_rollbacks(self) -> int:
        """A failing rollback does not hold up the others."""
        count, after = 0, ""
        trouble: Exception | None = None
        while self._lease.held and (note := await self._rollbacks.due(after)) is not None:
            after = note["_id"]
            try:
                await self._rollbacks.complete(note)
                count += 1
            except TransactionConflictError:  # the pointer has committed before
                continue
            except (PyMongoError, StoreUnavailableError) as error:
                trouble = error
        if trouble is not None:
            raise trouble
        return count

    async def _complete_reports(self) -> None:
        """Do the rest of reports."""
        after = ""
        while self._lease.held and (found := await self._reports.due(after)):
            for each in found:
                after = each["_id"]
                try:
                    await self.complete_all(each)
                except TransactionConflictError:  # an agent of an earlier version was faster
                    await self._reports.settle(each)

    async def _end_pointers(self) -> int:
        """Abort overdue pointers. Finish decided ones."""
        present = await self._link.present()
        count, after = 0, ""
        while self._lease.held and (rows := await self._rows.due(after)):
            after = rows[-1]["_id"]
            by_pair = {pointer_and_log(row): row for row in rows}
            decided = await decided_pairs(self._link, by_pair)
            overdue = [
                pair
                for pair, row in by_pair.items()
                if pair not in decided and present.is_over(row["begun"], row["expires"])
            ]
            unreported = await self._reports.unreported(overdue)
            groups = await self.decide(unreported, Decision.TIMED_OUT)
            for pair, group in groups.items():
                if group.last is not None:
                    decided[pair] = Decision.TIMED_OUT
                    count += not group.repeated
            await self.finish(decided)
            await self.forget(p for p, group in groups.items() if group.is_refused)
            await self._rows.calm(row["_id"] for row in rows)
        return count
