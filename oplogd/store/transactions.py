"""The interface between the agent and the transactions of a store."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from oplogd.clock.ages import Present
from oplogd.model.event_id import Mark, format_id
from oplogd.model.lease import Fence
from oplogd.model.message_id import record_id
from oplogd.model.once import OnceNumber
from oplogd.model.pointer import Decision
from oplogd.model.transaction import Reason, Record, State
from oplogd.shared.tally import Tally, tally

# Rows of finished transactions are forgotten after this time.
RETENTION_MS = 86_400_000

# The commit log of a group is deleted after this time without an entry, or after its longer time to
# live.
IDLE_MS = 86_400_000

# In ``Commit.order``: the record is an operation of the oplog.
OPLOG_INDEX = 0xFFFF_FFFF


class RecordLimits(NamedTuple):
    """Bounds of one transaction. ``bytes``: of the encoded contents together."""

    records: int = 100_000
    bytes: int = 64_000_000


class NewTransaction(NamedTuple):
    """``log``: the commit log. ``group``: None for the log of a topic.

    ``only_log``: the one log of all records; None: any log. ``fence``: judged with the decision to
    commit; None: no condition. ``once``: the same. ``owner``: who begins it, a text of at most 300
    characters such as ``sub:ada``; None: anybody, or an agent of a version before owners.
    """

    log: int
    group: str | None
    only_log: int | None
    timeout_ms: int
    fence: Fence | None = None
    once: OnceNumber | None = None
    owner: str | None = None


class Transaction(NamedTuple):
    """A transaction as the store has it. Times are ms since 1970 by the store's clock.

    ``log``, ``group``, ``only_log``, ``fence``, ``once`` and ``owner``: see ``NewTransaction``.
    ``reason``: of an abort. ``logs``: the touched logs, 0 for the oplog. ``records`` and ``bytes``:
    written so far. After the decision to commit, ``records`` is the committed number. ``begin`` and
    ``commit``: marks in the commit log, None until they are known.
    """

    id: int
    log: int
    group: str | None
    only_log: int | None
    state: State
    reason: Reason | None
    begun_ms: int
    expires_ms: int
    logs: tuple[int, ...]
    records: int
    bytes: int
    begin: Mark | None
    commit: Mark | None
    fence: Fence | None = None
    once: OnceNumber | None = None
    owner: str | None = None

    def is_overdue(self, present: Present) -> bool:
        return self.state is State.OPEN and present.is_over(self.begun_ms, self.expires_ms)


class CommittedLog(NamedTuple):
    """A topic's log touched by a commit.

    ``mark``: of the COMMIT entry; None if the topic was deleted before. ``last``: see ``Marker``.
    """

    log: int
    mark: Mark | None
    last: int


class OperationRun(NamedTuple):
    """Consecutive operations of a commit in the oplog, with one time."""

    first_offset: int
    length: int
    ms: int


class Commit(NamedTuple):
    """A committed transaction, and the places of its records.

    ``order``: for each lsn an index in ``logs``, or OPLOG_INDEX. ``runs``: the operations by lsn. A
    run with offset 0: they left the log before their places were noted.
    """

    transaction: Transaction
    logs: tuple[CommittedLog, ...]
    runs: tuple[OperationRun, ...]
    order: "array[int]"

    def record_ids(self) -> Iterator[str | None]:
        """Return the ids under which committed readers see the records, by lsn.

        None: the record's topic was deleted, or its place was not noted.
        """
        operations = self._operation_ids()
        for lsn, index in enumerate(self.order):
            if index == OPLOG_INDEX:
                yield next(operations, None)
                continue
            _, mark, last = self.logs[index]
            yield mark and str(record_id(mark.ms, mark.sequence, lsn, is_last=lsn == last))

    def _operation_ids(self) -> Iterator[str | None]:
        for first, count, ms in self.runs:
            for offset in range(first, first + count):
                yield format_id(Mark(offset, ms)) if first else None


@tally
class Decisions(Tally):
    """Transactions or pointers decided by this process, and by earlier ones in its place.

    A pointer counts once for each topic.
    """

    committed: int
    aborted: int
    timed_out: int

    def add(self, decision: Decision | Reason, count: int = 1) -> None:
        match decision:
            case Decision.COMMITTED:
                self.committed += count
            case Decision.TIMED_OUT | Reason.TIMEOUT:
                self.timed_out += count
            case _:
                self.aborted += count


class OpenStats(NamedTuple):
    """Transactions without a decision, or pairs of a pointer and a topic.

    ``oldest_ms``: begin of the oldest one; 0: there is none.
    """

    open: int
    oldest_ms: int


class Transactions(Protocol):
    """The transactions of a store. Any agent may continue a transaction of another.

    Every method may raise StoreUnavailableError. A repeated call then continues. Methods with an
    id raise TransactionNotFoundError. Methods may be called concurrently.

    A transaction with a fence commits only if the fence holds at its decision. Otherwise it is
    aborted. Once a poll has shown a holder a new term of the lease, nothing of an earlier term is
    decided any more, and what was decided before is complete. ``begin``, ``write`` and ``commit``
    raise StaleFenceError if the fence does not hold, also for a transaction aborted for it.

    A transaction with ``once`` commits only if none has committed with this number of its key, or a
    larger one. Otherwise it is aborted, with Reason.ONCE. The newest committed transaction of each
    key is never forgotten, and its owner has the key. Other owners neither begin nor commit with
    the key, and get no transaction of it: TransactionConflictError. A transaction without an owner
    may take over any key.
    """

    # The agent may replace it before the start.
    decisions: Decisions

    async def begin(self, new: NewTransaction) -> Transaction:
        """Begin a transaction and append its begin record to the commit log.

        If its number of a key has committed, nothing begins: return the transaction that has.
        Raises TopicNotFoundError if the commit log's topic was deleted, TransactionConflictError if
        the key has another owner, a larger number has committed or the time is over already, and
        TooManyKeysError for a new key.
        """

    async def write(self, id_: int, records: Sequence[Record], limits: RecordLimits) -> Transaction:
        """Write records: they are durable when the call returns. All of them or none.

        Records written before, with the same digest, are passed over. Records of topics
        become DEFERRED entries at once. Operations wait for the commit. Raises
        TransactionConflictError if the transaction is not open or an lsn has another digest,
        TopicError for a log other than ``only_log``, TopicNotFoundError for a
        deleted topic, and TransactionTooLargeError.
        """

    async def commit(self, id_: int, records: int) -> Commit:
        """Commit a transaction with exactly the records with lsn 0 to ``records`` - 1 or more.

        Records with a larger lsn are ignored. A repeated call returns the same. If another
        transaction has committed with this number of its key, return that commit. Raises
        TransactionConflictError if a record is missing or the key has another owner (then the
        transaction stays open), or if the transaction was aborted, timed out, or committed with
        another number of records.
        """

    async def commit_whole(
        self, new: NewTransaction, records: Sequence[Record], limits: RecordLimits
    ) -> Commit:
        """Begin a transaction, write all of its records, and commit it.

        ``records``: with lsn 0 to their number - 1, in any order. If its number of a key has
        committed, return that commit. Raises the errors of ``begin``, ``write`` and ``commit``.
        None of them leaves an open transaction, except that after StoreUnavailableError it may
        have committed, or is open until it times out: a repeated call is another transaction.
        """

    async def abort(self, id_: int) -> Transaction:
        """Abort a transaction, unless it is aborted or timed out. Return it.

        Raises TransactionConflictError if it commits or has committed.
        """

    async def find(self, id_: int) -> Transaction:
        """Return a transaction. An overdue one is aborted first."""

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

    async def newest(self, key: str) -> Transaction:
        """Return the newest committed transaction of a key. Raises OnceKeyNotFoundError."""

    async def keys(self, after: str, limit: int, owner: str | None = None) -> list[Transaction]:
        """Return the newest committed transaction of each key past one, sorted by key.

        ``owner``: only those of this owner; None: all.
        """

    async def forget_key(self, key: str, owner: str | None = None) -> None:
        """Forget a key, so its numbers can commit again. Raises OnceKeyNotFoundError.

        ``owner``: also raise it if the newest transaction of the key has another owner.
        Raises TransactionConflictError while a transaction is about to commit with it.
        """

    async def keep(self) -> int:
        """Abort overdue transactions, complete decided ones, forget old ones.

        Return the number of aborted or completed transactions. Of several agents on one store only
        one does this.
        """

    async def retire(self, is_followed: Callable[[int], bool]) -> int:
        """Delete the commit logs of idle groups without a reader at this agent.

        Idle: its last entry is older than IDLE_MS and its time to live, and no transaction of the
        group is open or unfinished. A beginning transaction keeps the log, or is refused as
        after any deletion: its agent creates the log again. Return the number of logs. Of several
        agents on one store only one does this.
        """

    async def stats(self) -> OpenStats: ...
