"""Writes the batches of a streaming query to a topic, each batch once.

The tasks return their rows. The driver writes all of them in one transaction, whose number is the
batch, and whose key is the query and the topic. So a repeated batch is found committed, also if
another driver runs the query, and whatever partitions the repetition has.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from oplog_kit.units import rough_size
from oplog_kit.wording import counted
from oplog_sync.errors import AgentRefusedError, SyncError
from oplog_sync.topics.agent import AgentClient, Retrying
from oplog_sync.topics.write import (
    JSON,
    MAX_BYTES,
    MAX_ROWS,
    check_columns,
    messages_of,
    send_batch,
)
from oplogd.model.names import TopicName
from oplogd.store.transactions import RecordLimits

# Of one task: its rows are in memory, and Spark returns at most 2 GiB.
MAX_TASK_BYTES = 1 << 30

# The longest pause between two requests of a batch. After it the batch begins again.
_TIMEOUT_MS = 300_000
# Beginnings of one batch, if its transaction times out.
_ATTEMPTS = 5

_TXNS = "/v1/txns"
_TRIGGERS = "maxOperationsPerTrigger, maxOffsetsPerTrigger or maxFilesPerTrigger of its source"


@dataclass
class StagedRows(WriterCommitMessage):
    """The rows of a task, as lines: the members of a message, without the opening brace."""

    query: str
    count: int
    lines: bytes


class _Begun(msgspec.Struct):
    txn: str
    state: str = "open"


_decode_begun = msgspec.json.Decoder(_Begun).decode


class _Batch(NamedTuple):
    """``key``: of the query and the topic."""

    number: int
    key: str
    rows: int
    size: int
    tasks: Sequence[StagedRows]


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """See the module. The rows of a task keep their order, and tasks follow by their partition."""

    def __init__(
        self, agents: AgentClient, name: TopicName, schema: T.StructType, retry: Retrying
    ) -> None:
        """Raises OptionError: see ``check_columns``."""
        check_columns(schema)
        self._agents = agents
        self._name = name
        self._retry = retry

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        lines: list[bytes] = []
        size = 0
        for message in messages_of(iterator):
            size += len(message)
            if size > MAX_TASK_BYTES:
                raise SyncError(
                    f"one task of the batch has more than {rough_size(MAX_TASK_BYTES)} of messages;"
                    f" let a batch have fewer rows ({_TRIGGERS})"
                )
            lines.append(message[1:])
        return StagedRows(_query(), len(lines), b"\n".join(lines))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        tasks = [each for each in messages if isinstance(each, StagedRows) and each.count]
        if not tasks:
            return
        batch = _Batch(
            batchId,
            key_of(tasks[0].query, self._name),
            sum(each.count for each in tasks),
            sum(len(each.lines) for each in tasks),
            tasks,
        )
        try:
            self._commit(batch)
        finally:
            self._agents.close()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: tasks write nothing."""

    def _commit(self, batch: _Batch) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            begun = self._begin(batch)
            if begun.state == "committed":
                return
            try:
                self._write(begun.txn, batch)
                answer = self._ask(f"/{begun.txn}/commit", {"records": batch.rows})
            except AgentRefusedError as error:
                self._abort(begun.txn)
                # It has timed out, or another driver has the number. The next begin tells.
                if error.status not in (404, 409) or attempt == _ATTEMPTS:
                    raise
            except BaseException:
                self._abort(begun.txn)
                raise
            else:
                self._check(batch, answer)
                return

    def _check(self, batch: _Batch, answer: bytes) -> None:
        """Raise SyncError if the rows of a committed batch are in no topic."""
        if b"null" in answer:  # in place of an id
            raise SyncError(
                f"the topic {self._name} was deleted while batch {batch.number} was written, and"
                " the rows of the batch with it; create the topic if there is none, and start the"
                " query again: it goes on with the next batch"
            )

    def _begin(self, batch: _Batch) -> _Begun:
        once = {"key": batch.key, "number": batch.number}
        body = {"topic": str(self._name), "timeout_ms": _TIMEOUT_MS, "once": once}
        try:
            return _decode_begun(self._ask("", body))
        except AgentRefusedError as error:
            if error.status == 400 and "once" in str(error):
                raise SyncError(f"{error}; the agents must be upgraded first") from None
            if error.status != 409:
                raise
            raise SyncError(
                f"batch {batch.number} of the query has been followed by a later one in the topic"
                f" {self._name}: the checkpoint is an older copy, or another driver runs the query;"
                f" begin with a new checkpoint ({error})"
            ) from None

    def _write(self, txn: str, batch: _Batch) -> None:
        def post(records: Sequence[bytes]) -> None:
            try:
                self._ask(f"/{txn}/records", b'{"records":[' + b",".join(records) + b"]}")
            except AgentRefusedError as error:
                if error.status == 413 and "--txn-max-" in str(error):
                    raise _too_large(batch, error) from None
                if error.status == 413 and len(records) == 1:
                    raise SyncError(
                        f"batch {batch.number} has a row that is too large for a request: {error};"
                        " start the agents with a larger --max-body-size"
                    ) from None
                raise

        for records in _requests(str(self._name), batch.tasks):
            send_batch(records, post)

    def _ask(self, path: str, body: object) -> bytes:
        def ask() -> bytes:
            return self._agents.ask("POST", _TXNS + path, body, JSON).body

        return self._retry(ask)

    def _abort(self, txn: str) -> None:
        """Free the records of a transaction now, not at its time-out."""
        with suppress(SyncError):
            self._agents.ask("POST", f"{_TXNS}/{txn}/abort", {})


def key_of(query: str, name: TopicName) -> str:
    """Return the key of a query's batches in a topic.

    A key has at most 249 characters, and the name of a topic may have more.
    """
    return f"spark-{query}-{blake2b(str(name).encode(), digest_size=8).hexdigest()}"


def _query() -> str:
    """Return the id of the running query: it stays with the checkpoint."""
    task = TaskContext.get()
    query = task and task.getLocalProperty("sql.streaming.queryId")
    if not query:
        raise SyncError("Spark does not tell the id of the query; a batch could not be told apart")
    return query


def _requests(topic: str, tasks: Iterable[StagedRows]) -> Iterator[list[bytes]]:
    """Return the records of requests, numbered through all tasks."""
    prefix = b'{"topic":%s,"lsn":%%d,' % msgspec.json.encode(topic).replace(b"%", b"%%")
    lsn = size = 0
    records: list[bytes] = []
    for task in tasks:
        for line in task.lines.split(b"\n"):
            if records and (len(records) == MAX_ROWS or size + len(line) > MAX_BYTES):
                yield records
                records, size = [], 0
            records.append(prefix % lsn + line)
            lsn += 1
            size += len(line) + len(prefix)
    yield records


def _too_large(batch: _Batch, error: AgentRefusedError) -> SyncError:
    # Not below the defaults, which let other batches through.
    records, size = max(batch.rows, RecordLimits().records), 2 * batch.size
    flags = f"--txn-max-records {records}" if "--txn-max-records" in str(error) else ""
    if not flags or size > RecordLimits().bytes:
        flags += f" --txn-max-bytes {max(size, RecordLimits().bytes)}"
    return SyncError(
        f"batch {batch.number} has {counted(batch.rows, 'row')} and {batch.size:,} bytes, and is"
        f" written in one transaction: {error}; start the agents with {flags.strip()}, then this"
        f" batch goes through; later ones have fewer rows with {_TRIGGERS}"
    )
