"""Decisions about pointers: the COMMIT or ABORT entry itself, in each log.

A report is recorded for the pointer before: see ``reports``. The time-out is only here.

The entry is appended once per log. Its digest is the decision, so another decision meets it. Every
append under the pointer is judged against it, so nothing follows it. Any agent that sees the entry
can do the rest.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from oplogd.errors import TopicNotFoundError, TransactionConflictError
from oplogd.model.event_id import Mark
from oplogd.model.pointer import Decision, decided, too_late
from oplogd.model.transaction import Marker, encode_marker
from oplogd.store.mongo.decisions.aborted import Aborted
from oplogd.store.mongo.decisions.appends import PointerAppender
from oplogd.store.mongo.decisions.late import LateReports, TimedOutList
from oplogd.store.mongo.decisions.rollbacks import Rollbacks
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.topic_layout import Document
from oplogd.store.mongo.pointers.published import decisions_of, end_of
from oplogd.store.mongo.pointers.reports import REPORTED, Reports, pointer_of, report_of
from oplogd.store.mongo.pointers.rows import PointerRows, key, pointer_and_log
from oplogd.store.mongo.pointers.stored import MAX_NUMBER, StoredMessages
from oplogd.store.mongo.topics.groups import Group, Once, new_entry
from oplogd.store.mongo.topics.judgement import entries_of
from oplogd.store.transactions import Decisions


class PointerDecider:
    """Decides and reports pointers, and rolls back what no report has committed.

    Methods raise PyMongo's errors, StoreUnavailableError and TransactionConflictError.
    ``decisions`` counts those of this process.
    """

    def __init__(
        self,
        link: Link,
        stored: StoredMessages,
        appender: PointerAppender,
        rollbacks: Rollbacks,
        aborted: Aborted,
        late: LateReports,
    ) -> None:
        self._link = link
        self._rows = PointerRows(link)
        self._reports = Reports(link)
        self._timed_out = TimedOutList(link)
        self._stored = stored
        self._appender = appender
        self._rollbacks = rollbacks
        self._aborted = aborted
        self._late = late
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

    async def report(
        self, logs: Sequence[int], pointer: int, decision: Decision
    ) -> dict[int, Mark]:
        """Record a report and carry it out. Return its marks by log, without deleted topics."""
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
        """Carry out the reports about a pointer, or the rest of that. Return their marks."""
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
                try:
                    marks[log] = await self._complete_late(pointer, log, decision, report)
                except TopicNotFoundError:  # deleted meanwhile
                    continue
            elif group.is_refused:
                await self._reports.leave(log, [pointer])
        return marks

    async def time_out(self, pointer: int, logs: Collection[int]) -> dict[int, Mark]:
        """Decide a pointer as timed out where it is open. Return the marks of these decisions."""
        return (await self._decide(pointer, Decision.TIMED_OUT, logs))[1]

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
        """See ``Pointers.rollback``.

        Entries appended while it runs stay.
        """
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
            # Another agent may be about to append the rest of a late commit: it must meet
            # entries, which are voided here.
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

    def _entry(self, pointer: int, log: int, decision: Decision) -> Group:
        data = encode_marker(Marker(str(pointer))).encode()
        once = Once(end_of(pointer, log), digest=str(decision))
        return Group(log, [new_entry(decision.kind, data, once=once)])

    def _count(self, groups: Iterable[Group], decision: Decision) -> None:
        new = sum(group.last is not None and not group.repeated for group in groups)
        self.decisions.add(decision, new)
