"""Appending the operations of a commit: each once, by any number of agents."""

from array import array
from bisect import bisect_right
from collections.abc import Sequence

from oplogd.errors import StoreUnavailableError
from oplogd.store.mongo.link.layout import Numbered, OfTransaction
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.log.conditional import ConditionalAppender, OrderedBatch
from oplogd.store.mongo.log.ends import Head
from oplogd.store.mongo.log.log import Log
from oplogd.store.mongo.transactions.payloads import Payloads
from oplogd.store.mongo.transactions.places import OperationPlaces
from oplogd.store.transactions import OperationRun


class OperationAppender:
    """Methods raise PyMongo's errors, and StoreUnavailableError for an unusable log."""

    def __init__(
        self, link: Link, log: Log, appender: ConditionalAppender, payloads: Payloads
    ) -> None:
        self._link = link
        self._log = log
        self._appender = appender
        self._payloads = payloads

    async def append(self, txn: int, upto_lsn: int) -> tuple[OperationRun, ...]:
        """Append the payloads of a transaction below an ``lsn``, in order. Return their places.

        Any number of agents may do so at once, and again later, with the same ``upto_lsn``.
        Another agent may complete the transaction and remove its payloads meanwhile. Then this call
        raises StoreUnavailableError or TransactionNotFoundError, or returns fewer places.
        """
        lsns = array("q")
        async for lsn in self._payloads.each_lsn(txn):
            if lsn < upto_lsn:
                lsns.append(lsn)
        if not lsns:
            return ()
        places = OperationPlaces(self._link, self._log, txn)
        await places.create()
        writer = OfTransaction(txn, len(lsns))
        last = await places.last()
        while last < lsns[-1]:
            # A page at a time: a transaction may be larger than the memory for it.
            page = await self._page(txn, last, lsns)
            await self._appender.append(OperationBatch(places, self._log, writer, page))
            last = page[-1][0]
            await self._link.step("page")
        return await places.runs(lsns)

    async def _page(self, txn: int, after_lsn: int, lsns: "array[int]") -> list[Numbered]:
        page = [each for each in await self._payloads.page(txn, after_lsn) if each[0] <= lsns[-1]]
        start = bisect_right(lsns, after_lsn)
        if not page or [lsn for lsn, _ in page] != lsns[start : start + len(page)].tolist():
            raise StoreUnavailableError(
                f"MongoDB at {self._link.hosts}: another agent has completed transaction {txn}"
            )
        return page


class OperationBatch(OrderedBatch):
    """Its condition is that no agent has appended an operation yet.

    Its numbers are each ``lsn``. A writer's token would not do: several processes append at once,
    so all entries up to the head are judged again before each insert.
    """

    def __init__(
        self, places: OperationPlaces, log: Log, writer: OfTransaction, page: list[Numbered]
    ) -> None:
        super().__init__(page)
        self._places = places
        self._log = log
        self.writer = writer

    async def head(self) -> Head:
        return await self._log.newest()

    async def judge(self, head: Head, chunk: Sequence[Numbered]) -> list[Numbered]:
        last = await self._places.last()
        self.remove(last)
        return [each for each in chunk if each[0] > last]

    async def folded(self) -> tuple[int, int]:
        return await self._places.folded()

    def landed(self, landed: Sequence[Numbered], head: Head | None, *, is_beaten: bool) -> None:
        if landed and head is not None:
            self.remove(landed[-1][0])
