"""Completing decided transactions. Any agent may do it, at any time and together.

    commit record, once
    everything of earlier commits: those of the same commit log with a smaller offset there
    one COMMIT entry in each touched topic, once, and the operations, once each
    the row: committed

All commits of one commit log end in the order of their commit records. A commit record missing in
the log when another one was found there comes after it. So the earlier ones are known, and all
their entries are there before any later COMMIT entry.

An abort has no order. Deleted topics get no entry.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from oplogd.errors import StoreUnavailableError, TransactionNotFoundError
from oplogd.model.commit_log import abort_record, commit_record
from oplogd.model.event_id import Mark
from oplogd.model.message import Message
from oplogd.model.transaction import Marker
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.topic_layout import END_NUMBER, identity
from oplogd.store.mongo.topics.groups import Group, Once
from oplogd.store.mongo.topics.judgement import entries_of
from oplogd.store.mongo.transactions.appends import SharedAppender
from oplogd.store.mongo.transactions.once import KeyRows
from oplogd.store.mongo.transactions.operations import OperationAppender
from oplogd.store.mongo.transactions.payloads import Payloads
from oplogd.store.mongo.transactions.places import forget_notes
from oplogd.store.mongo.transactions.records import entry_in, lasts
from oplogd.store.mongo.transactions.row import TransactionRow, TxnPhase, finished
from oplogd.store.mongo.transactions.rows import TransactionRows
from oplogd.store.topics import EntryKind
from oplogd.store.transactions import CommittedLog, OperationRun


class Ordered(NamedTuple):
    """A commit with the mark of its commit record. None: the commit log was deleted."""

    row: TransactionRow
    commit: Mark | None


class _Request:
    """A commit waiting for its turn."""

    def __init__(self, row: TransactionRow) -> None:
        self.row = row
        self.is_done = False


class _Turns:
    """The commits of one commit log. ``waiting`` includes those whose turn it is."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting: list[_Request] = []


class Completion:
    """Methods raise PyMongo's errors, and StoreUnavailableError."""

    def __init__(
        self,
        link: Link,
        rows: TransactionRows,
        appender: SharedAppender,
        payloads: Payloads,
        operations: OperationAppender,
        keys: KeyRows,
    ) -> None:
        self._link = link
        self._rows = rows
        self._appender = appender
        self._payloads = payloads
        self._operations = operations
        self._keys = keys
        # By commit log, while there is a commit.
        self._turns: dict[int, _Turns] = {}

    async def complete(self, row: TransactionRow) -> TransactionRow:
        """Complete a decided transaction. Return its row."""
        if row.phase is TxnPhase.COMMITTING:
            return await self._commit(row)
        if row.phase is TxnPhase.ABORTING:
            return await self._abort(row)
        return row

    async def settle(self, row: TransactionRow) -> bool:
        """Let a decided transaction be the newest one of its key. Return whether it is."""
        id_, once = row.transaction.id, row.transaction.once
        found = once and await self._keys.settle(id_, once)
        if not found or found.newest.txn != id_:
            return False
        await self._link.step("settled")
        if found.previous:
            await self._rows.let_go(found.previous)
        return True

    async def forget(self, is_allowed: Callable[[], bool]) -> None:
        """Forget old transactions while it is allowed."""
        while is_allowed() and (ids := await self._rows.old()):
            for each in ids:
                # A late write may have left something.
                await self._payloads.remove(each)
            await forget_notes(self._link, ids)
            await self._rows.forget(ids)
            await asyncio.sleep(0)
        for each in await self._rows.unclean() if is_allowed() else ():
            await self._payloads.remove(each)
            await self._rows.cleaned(each)

    async def _commit(self, row: TransactionRow) -> TransactionRow:
        """Commit in turns, one per commit log. The first one in a turn completes all of them."""
        id_, log, *_ = row.transaction
        request = _Request(row)
        turns = self._turns.setdefault(log, _Turns())
        turns.waiting.append(request)
        try:
            async with turns.lock:
                if not request.is_done:
                    taken = list(turns.waiting)
                    rows = {each.row.transaction.id: each.row for each in taken}
                    await self._complete_all(log, list(rows.values()))
                    for each in taken:
                        each.is_done = True
        finally:
            turns.waiting.remove(request)
            if not turns.waiting:
                self._turns.pop(log, None)
        # Another request for this transaction may have failed, in whose turn it was.
        return await self.complete(await self._rows.find(id_))

    async def _complete_all(self, log: int, rows: Sequence[TransactionRow]) -> None:
        groups = [_commit_record(row) for row in rows]
        await self._appender.run(groups)
        await self._link.step("commit-record")
        commits = [Ordered(row, group.last) for row, group in zip(rows, groups, strict=True)]
        upto = max((each.commit.offset for each in commits if each.commit), default=0)
        own = {row.transaction.id for row in rows}
        commits += await self._earlier(log, upto, own)
        commits.sort(key=lambda each: each.commit.offset if each.commit else 0)
        ready: list[Ordered] = []
        for commit in commits:
            ready.append(commit)
            if commit.row.has_operations:
                await self._finish(ready)
                ready = []
        await self._finish(ready)

    async def _earlier(self, log: int, upto: int, own: Iterable[int]) -> list[Ordered]:
        """Return the unfinished commits whose commit record is before an offset."""
        others = {
            identity(row.transaction.id, log, END_NUMBER): row
            for row in await self._rows.committing(log)
            if row.transaction.id not in own
        }
        found = await entries_of(self._link, map(Once, others))
        return [
            Ordered(others[key], entry.mark)
            for key, entry in found.items()
            if entry.mark.offset < upto
        ]

    async def _finish(self, commits: Sequence[Ordered]) -> None:
        """Write the entries of commits into all touched logs, in this order.

        Only the last one may have operations.
        """
        counts = [lasts(row) for row, _ in commits]
        groups = [
            {
                log: _end_entry(row, log, EntryKind.COMMIT, Marker(str(row.transaction.id), *found))
                for log, found in sorted(each.items())
                if log != row.transaction.log
            }
            for (row, _), each in zip(commits, counts, strict=True)
        ]
        await self._append([group for each in groups for group in each.values()])
        for (row, mark), found, appended in zip(commits, counts, groups, strict=True):
            logs = [
                CommittedLog(log, appended[log].last if log in appended else mark, found[log][1])
                for log in row.topics
            ]
            await self._end(row, mark, logs)

    async def _end(
        self, row: TransactionRow, commit: Mark | None, logs: Sequence[CommittedLog]
    ) -> None:
        """Append the operations of a commit, and end it."""
        id_ = row.transaction.id
        runs: tuple[OperationRun, ...] = ()
        if row.has_operations:
            try:
                runs = await self._operations.append(id_, row.transaction.records)
            except (StoreUnavailableError, TransactionNotFoundError):
                if (await self._rows.find(id_)).phase is TxnPhase.COMMITTING:
                    raise
                return  # another agent was faster, and has removed the payloads
            await self._link.step("operations")
        members = finished(commit, logs, runs)
        if is_kept := await self.settle(row):
            members |= {"kept": True, "unclean": row.has_operations}
        await self._rows.finish(id_, TxnPhase.COMMITTING, members)
        await self._link.step("finished")
        if row.has_operations:
            await self._payloads.remove(id_)
            if is_kept:
                await self._rows.cleaned(id_)

    async def _abort(self, row: TransactionRow) -> TransactionRow:
        txn = row.transaction
        assert txn.reason is not None
        marker = Marker(str(txn.id))
        record = marker if txn.group is None else abort_record(txn.id, txn.reason)
        group = _end_entry(row, txn.log, EntryKind.ABORT, record)
        await self._appender.run([group])
        await self._link.step("abort-record")
        others = [log for log in sorted(row.topics) if log != txn.log]
        await self._append([_end_entry(row, log, EntryKind.ABORT, marker) for log in others])
        await self._rows.finish(txn.id, TxnPhase.ABORTING, {"phase": TxnPhase.ABORTED})
        await self._link.step("finished")
        if row.has_operations:
            await self._payloads.remove(txn.id)
        return await self._rows.find(txn.id)

    async def _append(self, groups: Sequence[Group]) -> None:
        size = self._link.timing.topics_per_step
        for start in range(0, len(groups), size):
            await self._appender.run(groups[start : start + size])
            await self._link.step("marker")


def _end_entry(row: TransactionRow, log: int, kind: EntryKind, content: Message | Marker) -> Group:
    """Return the last entry of a transaction in a log."""
    return entry_in(log, kind, content, Once(identity(row.transaction.id, log, END_NUMBER)))


def _commit_record(row: TransactionRow) -> Group:
    txn = row.transaction
    record: Message | Marker = commit_record(txn.id, txn.records)
    if txn.group is None:
        record = Marker(str(txn.id), *lasts(row).get(txn.log, (0, -1)))
    return _end_entry(row, txn.log, EntryKind.COMMIT, record)
