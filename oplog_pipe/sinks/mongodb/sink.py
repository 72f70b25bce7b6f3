"""Keep collections of MongoDB equal to the source, through PyMongo.

A document is ``{_id, version, source, timestamp, owner, data}``. The sink changes and deletes
documents of its owner only.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import (
    ConnectionFailure,
    ExecutionTimeout,
    InvalidName,
    OperationFailure,
    PyMongoError,
    WaitQueueTimeoutError,
    WTimeoutError,
)

from oplog_pipe.errors import SinkError, TargetError
from oplog_pipe.message import Message
from oplog_pipe.model.reasons import of_mongodb
from oplog_pipe.sinks.mongodb import MongodbOptions
from oplog_pipe.sinks.mongodb.fence import MongodbFence
from oplog_pipe.sinks.mongodb.writes import PASSING, Document, Writes
from oplog_pipe.sinks.parts.fence import LOOK_SECONDS, Fence, FenceLook
from oplog_pipe.sinks.parts.ownership import OwnedRows
from oplog_pipe.sinks.parts.template import Template, collapse

Result = TypeVar("Result")

# Documents the end of a copy deletes with one command.
_PIECE = 1000
# Whatever the message: wrong user or password, a missing right.
_OF_TARGET = (13, 18)
_AWAY = (ConnectionFailure, ExecutionTimeout, WTimeoutError, WaitQueueTimeoutError)
_LABELS = ("RetryableWriteError", "TransientTransactionError", "SystemOverloadedError")


class MongodbSink(OwnedRows):
    """Writes a batch with one unordered bulk write per collection.

    A deleted object leaves nothing behind. So an older message, repeated, brings the object back
    until its delete comes again.
    """

    def __init__(self, options: MongodbOptions, namespace: str = ".*") -> None:
        """``namespace``: regular expression of the namespaces the sink gets."""
        super().__init__()
        self._options = options
        self._namespace = re.compile(namespace)
        self._collection = Template(options.collection)
        self._id = Template(options.id)
        self._client: MongoClient[Document] | None = None
        self._look = FenceLook()

    def open(self) -> None:
        self.close()  # the client of an attempt that failed
        milliseconds = round(self._options.timeout * 1000)
        try:
            self._client = MongoClient(
                self._options.url,
                socketTimeoutMS=milliseconds,
                connectTimeoutMS=min(milliseconds, 5000),
                serverSelectionTimeoutMS=min(milliseconds, 5000),
                appname="oplog-pipe",
            )
        except Exception:  # its words may hold the password
            raise SinkError(
                "url: not a URL such as mongodb://user:password@host; percent-encode special"
                " characters of the password"
            ) from None
        self._run(lambda database: database.command("ping"))

    def write(self, messages: Sequence[Message]) -> None:
        for name, objects in collapse(messages, self._collection.of, self._id.of).items():
            index = next(iter(objects.values()))[0]
            writes = Writes(objects, name, self._owner)
            self._run(partial(self._write, name, writes), index)

    def end_copy(self, generation: int, source: str) -> None:
        old = {"owner": str(self._owner), "source": source, "version": {"$lt": generation}}

        def remove(database: Database[Document]) -> None:
            for collection in self._collections(database):
                self._judge_new(collection)
                with collection.find(old, {"_id": 1}, batch_size=_PIECE) as found:
                    while ids := [each["_id"] for each in islice(found, _PIECE)]:
                        self._look.look()
                        collection.delete_many({"_id": {"$in": ids}, **old})

        self._run(remove)

    @property
    def late_seconds(self) -> float:
        # A bulk write is two commands, and the driver may repeat each.
        return LOOK_SECONDS + 4 * self._options.timeout

    def begin_term(self) -> int:
        return self._run(MongodbFence(str(self._owner)).begin_term)

    def read_fence(self) -> Fence | None:
        return self._run(MongodbFence(str(self._owner)).read)

    def move_fence(self, fence: Fence) -> None:
        self._run(partial(MongodbFence(str(self._owner)).move, fence))

    def stand_at(self, fence: Fence) -> None:
        self._look = FenceLook(fence, self.read_fence)

    def adopt(self, former: str) -> int:
        """Change all documents of the former owner. After a failure, call it again."""

        def work(database: Database[Document]) -> int:
            collections = self._collections(database)
            for each in collections:
                self._judge(each, former)
            change = {"$set": {"owner": str(self._owner)}}
            return sum(
                each.update_many({"owner": former}, change).modified_count for each in collections
            )

        return self._run(work)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _write(self, name: str, writes: Writes, database: Database[Document]) -> None:
        self._judge_new(database[name])
        self._look.look()
        writes.run(database, self._look.check)

    def _judge_new(self, each: Collection[Document]) -> None:
        self._judge_once(each.name, partial(self._judge, each, str(self._owner)))

    def _judge(self, collection: Collection[Document], owner: str) -> None:
        """Judge the newest version of an owner's documents. Raises ConfigError."""
        # In a large collection this takes long without an index on owner and version.
        newest = collection.find_one({"owner": owner}, {"version": 1}, sort=[("version", -1)])
        version = newest.get("version") if newest else None
        if isinstance(version, int):
            self._owner.check(f"collection {collection.name}", version)

    def _collections(self, database: Database[Document]) -> list[Collection[Document]]:
        names = database.list_collection_names(filter={"type": "collection"})
        return [
            database[each] for each in sorted(names) if self._collection.fits(each, self._namespace)
        ]

    def _run(
        self, work: Callable[[Database[Document]], Result], index: int | None = None
    ) -> Result:
        """Run work, and translate its errors. ``index``: of a message whose names it uses."""
        assert self._client is not None
        try:
            return work(self._client[self._options.database])
        except InvalidName as error:
            raise SinkError(f"MongoDB: {error}", index=index) from error
        except PyMongoError as error:
            reason = f"MongoDB: {_reason(error)}"
            if isinstance(error, OperationFailure) and error.code in _OF_TARGET:
                raise TargetError(reason) from None
            raise SinkError(reason, transient=_passes(error)) from None  # it may quote a document


def _passes(error: PyMongoError) -> bool:
    if isinstance(error, _AWAY) or any(error.has_error_label(each) for each in _LABELS):
        return True
    return isinstance(error, OperationFailure) and error.code in PASSING


def _reason(error: PyMongoError) -> str:
    if isinstance(error, OperationFailure):
        details = error.details or {}
        words, name = str(details.get("errmsg", "")), str(details.get("codeName", ""))
        return of_mongodb(error.code, words, name)
    return " ".join(str(error).split())  # of the connection: servers and times
