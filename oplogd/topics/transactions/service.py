"""Transactions as clients use them: names of topics instead of logs."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

from oplogd.errors import (
    OnceKeyNotFoundError,
    StoreUnavailableError,
    TopicError,
    TopicExistsError,
    TopicNotFoundError,
    TransactionConflictError,
)
from oplogd.model.lease import Fence, require_same
from oplogd.model.message import Message
from oplogd.model.names import OPLOG, SYSTEM, TopicName, no_topic
from oplogd.model.once import no_key, number_over, require_own
from oplogd.model.transaction import DEFAULT_GROUP, Record, State, group_log, no_transaction
from oplogd.store.topics import MIN_MAX_BYTES, Topic, Topics
from oplogd.store.transactions import (
    Commit,
    NewTransaction,
    RecordLimits,
    Transaction,
    Transactions,
)
from oplogd.topics.known import KnownTopics
from oplogd.topics.publish import Acknowledged, without_rings
from oplogd.topics.transactions.answers import shown
from oplogd.topics.transactions.begin import Begin
from oplogd.topics.transactions.room import RecordRoom
from oplogd.topics.transactions.rules import OTHER_TOPIC, Writing

_OPLOG_LOG = 0
# Records handled before other requests get their turn.
_PIECE = 1000


class TransactionService:
    """Begins, writes, ends and shows transactions.

    Methods raise StoreUnavailableError, and with an id TransactionNotFoundError.

    ``acknowledged`` gets the last durable entry of each log before a request is answered.
    ``is_followed``: whether this agent keeps the newest entries of a log in memory. ``room``: for
    the records of all requests waiting for the store.
    """

    def __init__(
        self,
        transactions: Transactions,
        topics: Topics,
        known: KnownTopics,
        limits: RecordLimits,
        acknowledged: Acknowledged = without_rings,
        is_followed: Callable[[int], bool] = lambda log: False,
        room: RecordRoom | None = None,
    ) -> None:
        self._transactions = transactions
        self._topics = topics
        self._known = known
        self._acknowledged = acknowledged
        self._is_followed = is_followed
        self._room = room or RecordRoom(limits.records, limits.bytes)
        self.limits = limits

    async def begin(self, begin: Begin) -> Transaction:
        """Begin a transaction: see ``Transactions.begin``. Raises DiskFullError, too."""
        self._room.require_disk()
        topic = await self._commit_log(begin)
        try:
            transaction = await self._transactions.begin(_new(begin, topic))
        except TopicNotFoundError:  # deleted since it was looked up
            topic = await self._commit_log(begin, other_than=topic)
            transaction = await self._transactions.begin(_new(begin, topic))
        if transaction.begin is not None and transaction.state is State.OPEN:
            self._acknowledged(topic.log, transaction.begin.offset)
        return transaction

    async def write(self, id_: int, writing: Writing) -> Transaction:
        """Write records, all or none.

        Raises TopicNotFoundError, TopicError for a topic closed to this transaction,
        TransactionConflictError, TransactionTooLargeError, and QueueFullError.
        """
        with self._room.taken(len(writing.records), writing.bytes):
            topics = [await self._find(name) for name in writing.topics if name != OPLOG]
            try:
                transaction = await self._write(id_, writing, topics)
            except TopicNotFoundError:  # deleted since it was looked up
                topics = await self._known.still(topics)
                transaction = await self._write(id_, writing, topics)
        await self._acknowledge({topic.log for topic in topics})
        return transaction

    async def commit(self, id_: int, records: int) -> Commit:
        """Commit a transaction: see ``Transactions.commit``. Raises TransactionConflictError."""
        if records > self.limits.records and records > (await self.find(id_)).records:
            raise TransactionConflictError(f"transaction {id_} has fewer than {records:,} records")
        return self._committed(await self._transactions.commit(id_, records))

    async def commit_whole(self, begin: Begin) -> Commit:
        """Commit a transaction with all of its records: see ``Transactions.commit_whole``.

        Raises the errors of ``begin`` and ``write``, too.
        """
        try:
            return self._committed(await self._whole(begin))
        except TopicNotFoundError:
            # Maybe its number committed when the topic was there.
            if begin.once is not None:
                with suppress(OnceKeyNotFoundError):
                    newest = await self._transactions.newest(begin.once.key)
                    require_own(begin.once.key, begin.owner, newest.owner)
                    if newest.once == begin.once:
                        return await self._transactions.commit(newest.id, newest.records)
                    if newest.once is not None and newest.once.number > begin.once.number:
                        raise number_over(begin.once, newest.once.number) from None
            raise

    async def abort(self, id_: int) -> Transaction:
        """Abort a transaction. Raises TransactionConflictError."""
        transaction = await self._transactions.abort(id_)
        await self._acknowledge({transaction.log})
        return transaction

    async def find(self, id_: int, owner: str | None = None) -> Transaction:
        """``owner``: a transaction of another one is not found, nor one without; None: any."""
        found = await self._transactions.find(id_)
        if owner is not None and found.owner != owner:
            raise no_transaction(id_)
        return found

    async def require_owner(self, id_: int, owner: str | None, fence: Fence | None = None) -> None:
        """Raise TransactionNotFoundError if the transaction has another owner, or none.

        Raise TransactionConflictError if a request gives another fence than the begin did.
        ``owner`` None: any. One look-up is for both.
        """
        if owner is not None or fence is not None:
            found = await self.find(id_, owner)
            if fence is not None:
                require_same(id_, found.fence, fence)

    async def topics_of(self, id_: int) -> list[TopicName]:
        """Return the topics with records of a transaction, without deleted ones."""
        found = await self._transactions.find(id_)
        topics = await self._topics.current({log for log in found.logs if log})
        names = [topic.name for topic in topics.values()]
        return [OPLOG, *names] if 0 in found.logs else names

    async def select(
        self,
        state: State | None,
        group: str | None,
        limit: int,
        before: int | None = None,
        owner: str | None = None,
    ) -> list[Transaction]:
        """Return transactions in this state and group, of this owner, the newest first. None: any.

        ``before``: only those with smaller ids.
        """
        return await self._transactions.select(state, group, limit, before, owner)

    async def newest(self, key: str, owner: str | None = None) -> Transaction:
        """Return the newest committed transaction of a key. Raises OnceKeyNotFoundError.

        ``owner``: a key whose newest transaction has another one is not found; None: any.
        """
        found = await self._transactions.newest(key)
        if owner is not None and found.owner != owner:
            raise no_key(key)
        return found

    async def keys(self, after: str, limit: int, owner: str | None = None) -> list[Transaction]:
        """Return the newest committed transaction of each key past one: see ``Transactions``."""
        return await self._transactions.keys(after, limit, owner)

    async def forget_key(self, key: str, owner: str | None = None) -> None:
        """Forget a key: see ``Transactions.forget_key``."""
        await self._transactions.forget_key(key, owner)

    async def shown(self, transactions: Sequence[Transaction]) -> list[dict[str, Any]]:
        """Return transactions for an answer. Names of deleted topics are missing."""
        logs = {log for transaction in transactions for log in transaction.logs}
        logs |= {each.only_log for each in transactions if each.only_log is not None}
        topics = logs - {_OPLOG_LOG}
        current = await self._topics.current(topics) if topics else {}
        names = {log: str(topic.name) for log, topic in current.items()}
        names[_OPLOG_LOG] = str(OPLOG)
        return [shown(transaction, names) for transaction in transactions]

    async def _whole(self, begin: Begin) -> Commit:
        writing = begin.writing
        assert writing is not None
        with self._room.taken(len(writing.records), writing.bytes):
            topics = [await self._find(name) for name in writing.topics if name != OPLOG]
            commit_log = await self._commit_log(begin)
            try:
                return await self._commit_whole(begin, commit_log, writing, topics)
            except TopicNotFoundError:  # one was deleted since it was looked up
                topics = await self._known.still(topics)
                if commit_log.log not in await self._topics.current([commit_log.log]):
                    commit_log = await self._commit_log(begin, other_than=commit_log)
                return await self._commit_whole(begin, commit_log, writing, topics)

    async def _commit_whole(
        self, begin: Begin, commit_log: Topic, writing: Writing, topics: Sequence[Topic]
    ) -> Commit:
        records = await self._records(writing, topics)
        return await self._transactions.commit_whole(_new(begin, commit_log), records, self.limits)

    async def _commit_log(self, begin: Begin, other_than: Topic | None = None) -> Topic:
        if begin.topic is not None and begin.topic != OPLOG:
            return await self._find(begin.topic, other_than)
        name = group_log(begin.group or DEFAULT_GROUP)
        try:
            return await self._known.find(name, other_than)
        except TopicNotFoundError:
            # If the topic exists already, another request or agent has just created it.
            with suppress(TopicExistsError):
                await self._topics.create(name, None)
            return await self._known.look_up(name)

    async def _find(self, name: TopicName, other_than: Topic | None = None) -> Topic:
        if name.namespace == SYSTEM:
            raise no_topic(name)
        return await self._known.find(name, other_than)

    async def _write(self, id_: int, writing: Writing, topics: Sequence[Topic]) -> Transaction:
        records = await self._records(writing, topics)
        try:
            return await self._transactions.write(id_, records, self.limits)
        except TopicError:
            only = (await self.find(id_)).only_log
            index = next((i for i, record in enumerate(records) if record.log != only), 0)
            raise TopicError(f"records[{index}].topic", OTHER_TOPIC) from None

    async def _records(self, writing: Writing, topics: Sequence[Topic]) -> list[Record]:
        logs = {OPLOG: _OPLOG_LOG} | {topic.name: topic.log for topic in topics}
        records: list[Record] = []
        for each in writing.records:
            if isinstance(each.content, Message) and len(each.content.data) >= MIN_MAX_BYTES:
                await self._known.fitting(each.topic, [each.content])
            records.append(Record(each.lsn, logs[each.topic], each.content, each.digest))
            if len(records) % _PIECE == 0:
                await asyncio.sleep(0)
        return records

    def _committed(self, commit: Commit) -> Commit:
        """Let the next poll of this agent see a commit."""
        for log in commit.logs:
            if log.mark is not None:
                self._acknowledged(log.log, log.mark.offset)
        transaction = commit.transaction
        if transaction.commit is not None:
            self._acknowledged(transaction.log, transaction.commit.offset)
        return commit

    async def _acknowledge(self, logs: Collection[int]) -> None:
        """Let the next poll of this agent see the newest entries of these logs.

        A failure is no fault of the request: its entries are durable.
        """
        if followed := [log for log in logs if self._is_followed(log)]:
            with suppress(StoreUnavailableError, TopicNotFoundError):
                for log, topic in (await self._topics.current(followed)).items():
                    bounds = await self._topics.log(topic).locate()
                    self._acknowledged(log, bounds.head.offset)


def _new(begin: Begin, commit_log: Topic) -> NewTransaction:
    group, only_log = begin.group, None
    if begin.topic == OPLOG:
        group, only_log = DEFAULT_GROUP, _OPLOG_LOG
    elif begin.topic is not None:
        only_log = commit_log.log
    return NewTransaction(
        commit_log.log, group, only_log, begin.timeout_ms, begin.fence, begin.once, begin.owner
    )
