"""Reports, from their record to the last of their logs."""

from collections.abc import Collection, Sequence

from oplogd.errors import TopicNotFoundError, TransactionConflictError
from oplogd.model.event_id import Mark
from oplogd.model.pointer import Decision, decided
from oplogd.store.mongo.decisions.decision import Decider
from oplogd.store.mongo.decisions.late import LateReports
from oplogd.store.mongo.decisions.rollbacks import Rollbacks
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.topic_layout import Document
from oplogd.store.mongo.pointers.published import decisions_of, end_of
from oplogd.store.mongo.pointers.reports import REPORTED, Reports, pointer_of, report_of
from oplogd.store.mongo.topics.groups import Once
from oplogd.store.mongo.topics.judgement import entries_of
from oplogd.store.mongo.transactions.completion import Step


class Reporting:
    """Methods raise PyMongo's errors, StoreUnavailableError and TransactionConflictError."""

    def __init__(
        self,
        link: Link,
        reports: Reports,
        decider: Decider,
        late: LateReports,
        rollbacks: Rollbacks,
        step: Step,
    ) -> None:
        self._link = link
        self._reports = reports
        self._decider = decider
        self._late = late
        self._rollbacks = rollbacks
        self._step = step

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
        await self._step("recorded")
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
        groups = await self._decider.decide([(pointer, log) for log in logs], decision)
        marks = {log: group.last for (_, log), group in groups.items() if group.last}
        await self._decider.finish({(pointer, log): decision for log in marks})
        for (_, log), group in groups.items():
            if group.clash is not None:
                try:
                    marks[log] = await self._complete_late(pointer, log, decision, report)
                except TopicNotFoundError:  # deleted meanwhile
                    continue
            elif group.is_refused:
                await self._reports.leave(log, [pointer])
        return marks

    async def is_aborted(self, pointer: int, log: int) -> bool:
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
        await self._decider.finish({(pointer, log): Decision.TIMED_OUT})
        mark = found.mark
        if decision is Decision.COMMITTED:
            mark, is_new = await self._late.commit(pointer, log, report, mark)
        else:
            is_new = await self._late.abort(pointer, log)
        self._decider.decisions.add(decision, is_new)
        return mark
