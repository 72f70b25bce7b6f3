"""The regular work on pointers. Only the holder of the lease does it."""

from pymongo.errors import PyMongoError

from oplogd.errors import StoreUnavailableError, TransactionConflictError
from oplogd.model.pointer import Decision
from oplogd.store.mongo.decisions.decision import PointerDecider
from oplogd.store.mongo.decisions.late import TimedOutList
from oplogd.store.mongo.decisions.rollbacks import Rollbacks
from oplogd.store.mongo.link.lease import FoldLease
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.pointers.published import decided_pairs
from oplogd.store.mongo.pointers.reports import Reports, report_of
from oplogd.store.mongo.pointers.rows import PointerRows, pointer_and_log
from oplogd.store.mongo.topics.setup import TopicsSetup

# Time between two checks of the indexes.
_TIDY_SECONDS = 60.0


class PointerKeeper:
    """Methods raise PyMongo's errors, and StoreUnavailableError."""

    def __init__(
        self,
        link: Link,
        lease: FoldLease,
        decider: PointerDecider,
        rollbacks: Rollbacks,
        setup: TopicsSetup,
    ) -> None:
        self._link = link
        self._lease = lease
        self._rows = PointerRows(link)
        self._decider = decider
        self._reports = Reports(link)
        self._timed_out = TimedOutList(link)
        self._rollbacks = rollbacks
        self._setup = setup
        self._tidied_at = float("-inf")

    async def keep(self) -> int:
        """See ``Pointers.keep``."""
        if not self._lease.held:
            return 0
        now = self._link.clock.boot()
        if now - self._tidied_at >= _TIDY_SECONDS:
            await self._setup.create_index()
            await self._rows.create_indexes()
            await self._rollbacks.create_indexes()
            await self._reports.create_indexes()
            await self._timed_out.create_indexes()
            self._tidied_at = now
        await self._rows.date_again()
        count = await self._complete_rollbacks()
        await self._complete_reports()
        return count + await self._end_pointers()

    async def _complete_rollbacks(self) -> int:
        """A rollback that fails does not hold up the others."""
        count, after = 0, ""
        trouble: Exception | None = None
        while self._lease.held and (notes := await self._rollbacks.due(after)):
            for note in notes:
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
                    await self._decider.complete_all(each)
                except TransactionConflictError:  # an agent of an earlier version was faster
                    await self._reports.settle(each)

    async def _end_pointers(self) -> int:
        """Abort overdue pointers. Finish those that were decided."""
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
            reports = await self._reports.among({pointer for pointer, _ in overdue})
            unreported = [
                (pointer, log)
                for pointer, log in overdue
                if pointer not in reports or report_of(reports[pointer], log) is None
            ]
            groups = await self._decider.decide(unreported, Decision.TIMED_OUT)
            for pair, group in groups.items():
                if group.last is not None:
                    decided[pair] = Decision.TIMED_OUT
                    count += not group.repeated
            await self._decider.finish(decided)
            await self._decider.forget(p for p, group in groups.items() if group.is_refused)
            await self._rows.calm(row["_id"] for row in rows)
        return count
