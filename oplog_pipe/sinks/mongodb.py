"""A sink that keeps collections of MongoDB equal to the source, through PyMongo.

A document is ``{_id, version, source, timestamp, owner, data}``. The sink changes and deletes
documents of its owner only.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import bson
from bson import Int64
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument
from pymongo import DeleteOne, MongoClient, ReplaceOne
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import (
    BulkWriteError,
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
from oplog_pipe.model.options import MongodbOptions
from oplog_pipe.model.reasons import is_of_id, of_mongodb
from oplog_pipe.sinks.parts.collapse import Numbered, collapse
from oplog_pipe.sinks.parts.ownership import Owner
from oplog_pipe.sinks.parts.template import Template

Document = Mapping[str, Any]
Result = TypeVar("Result")

# Documents that the end of a copy deletes with one command.
_PIECE = 1000
_DUPLICATE_KEY = 11000
_LARGEST = 16 * 1024 * 1024
# Whatever the message: wrong user or password, a missing right.
_OF_TARGET = (13, 18)
# Codes that pass by themselves: hosts and networks; elections and shutdown; time-outs; conflicts;
# no room on the disk.
_PASSING = frozenset((
    6, 7, 89, 9001, 91, 189, 10058, 10107, 11600, 11602, 13435, 13436, 50, 64, 202, 262, 112, 14031,
))  # fmt: skip
_AWAY = (ConnectionFailure, ExecutionTimeout, WTimeoutError, WaitQueueTimeoutError)
_LABELS = ("RetryableWriteError", "TransientTransactionError", "SystemOverloadedError")


class MongodbSink:
    """Writes a batch with one unordered bulk write per collection.

    A deleted object leaves nothing behind: until its delete comes again, an older message that
    comes again brings it back.
    """

    def __init__(self, options: MongodbOptions, namespace: str = ".*") -> None:
        """``namespace``: regular expression of the namespaces that the sink gets."""
        self._namespace = re.compile(namespace)
        self._options = options
        self._collection = Template(options.collection)
        self._id = Template(options.id)
        self._client: MongoClient[Document] | None = None
        self._owner: Owner | None = None
        # Collections whose newest version is not above that of the folder.
        self._judged: set[str] = set()

    def own(self, owner: Owner) -> None:
        self._owner = owner

    def open(self) -> None:
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
        owner = self._me
        for name, objects in collapse(messages, self._collection.of, self._id.of).items():
            index = next(iter(objects.values()))[0]
            writes = _Writes(objects, name, owner)
            if name not in self._judged:
                self._run(partial(self._judge_new, name), index)
            self._run(writes.run, index)

    def begin_copy(self, generation: int, source: str) -> None:
        """Do nothing: the versions of the copy's messages are above the generation."""

    def end_copy(self, generation: int, source: str) -> None:
        old = {"owner": str(self._me), "source": source, "version": {"$lt": generation}}

        def remove(database: Database[Document]) -> None:
            for collection in self._collections(database):
                with collection.find(old, {"_id": 1}, batch_size=_PIECE) as found:
                    while ids := [each["_id"] for each in islice(found, _PIECE)]:
                        collection.delete_many({"_id": {"$in": ids}, **old})

        self._run(remove)

    def adopt(self, former: str) -> int:
        """Change all documents of the former owner, one collection after the other.

        After a failure a part of them is changed: call it again.
        """

        def work(database: Database[Document]) -> int:
            collections = self._collections(database)
            for each in collections:
                self._judge(each, former)
            change = {"$set": {"owner": str(self._me)}}
            return sum(
                each.update_many({"owner": former}, change).modified_count for each in collections
            )

        return self._run(work)

    def close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            client.close()

    @property
    def _me(self) -> Owner:
        assert self._owner is not None
        return self._owner

    def _judge_new(self, name: str, database: Database[Document]) -> None:
        self._judge(database[name], str(self._me))
        self._judged.add(name)

    def _judge(self, collection: Collection[Document], owner: str) -> None:
        """Judge the newest version of an owner's documents. Raises ConfigError."""
        # In a large collection this takes long without an index on owner and version.
        newest = collection.find_one({"owner": owner}, {"version": 1}, sort=[("version", -1)])
        version = newest.get("version") if newest else None
        if isinstance(version, int):
            self._me.check(f"collection {collection.name}", version)

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


class _Writes:
    """The last message of each object of one collection."""

    def __init__(self, objects: Mapping[str, Numbered], collection: str, owner: Owner) -> None:
        """Raises SinkError with the index of a message that is no document of MongoDB."""
        self._collection = collection
        self._owner = owner
        # Writes of one kind in a row share a command.
        self._objects = sorted(objects.items(), key=lambda each: each[1][1].op == "delete")
        self._requests = [_request(id, *each, str(owner)) for id, each in self._objects]
        self._deletes = [id for id, (_, message) in self._objects if message.op == "delete"]

    def run(self, database: Database[Document]) -> None:
        collection = database[self._collection]
        details: Mapping[str, Any] | None = None
        try:
            deleted = collection.bulk_write(self._requests, ordered=False).deleted_count
        except BulkWriteError as error:
            details = error.details
            deleted = details.get("nRemoved", 0)
        if details is not None:  # not above: a traceback with the first error would quote documents
            self._judge(collection, details)
        if deleted < len(self._deletes):
            self._check_others(collection, self._deletes)

    def _judge(self, collection: Collection[Document], details: Mapping[str, Any]) -> None:
        """Raise SinkError unless each refused message is older than its document.

        The upsert of an older message finds no document of its version or below, and cannot insert
        a second one with this id.
        """
        errors = sorted(details.get("writeErrors", ()), key=self._place)
        others = [each for each in errors if each["code"] != _DUPLICATE_KEY]
        losers = [each for each in errors if each["code"] == _DUPLICATE_KEY]
        ids = [self._objects[each["index"]][0] for each in losers]
        newest = self._check_others(collection, ids)
        gone = False
        for each in losers:
            id, (_, message) = self._objects[each["index"]]
            version = newest.get(id)
            if id not in newest and is_of_id(str(each.get("errmsg", ""))):
                gone = True
            elif not isinstance(version, int) or version <= message.version:
                others.append(each)  # a unique index of the user refuses it
        if others:
            first = min(others, key=self._place)
            raise SinkError(
                f"MongoDB: {of_mongodb(first['code'], str(first.get('errmsg', '')))}",
                transient=all(each["code"] in _PASSING for each in others),
                index=self._place(first),
            )
        if gone:
            raise SinkError("MongoDB: another owner has just deleted a document", transient=True)
        for concern in details.get("writeConcernErrors", ()):
            code, name = concern.get("code"), str(concern.get("codeName", ""))
            raise SinkError(
                f"MongoDB: {of_mongodb(code, '', name or 'write concern')}", transient=True
            )

    def _check_others(
        self, collection: Collection[Document], ids: Sequence[str]
    ) -> Mapping[str, object]:
        """Return the version of each document. Raises SinkError for one of another owner.

        Raises ConfigError for a version that the folder has not given.
        """
        if not ids:
            return {}
        asked = {"_id": {"$in": list(ids)}}
        found = {each["_id"]: each for each in collection.find(asked, {"version": 1, "owner": 1})}
        for id, (index, _) in self._objects:
            if id in found and not self._owner.may_write(found[id].get("owner")):
                where = f"collection {self._collection}: document {id!r}"
                raise self._owner.refusal(where, found[id]["owner"], index)
        versions = {id: each.get("version") for id, each in found.items()}
        numbers = [each for each in versions.values() if isinstance(each, int)]
        self._owner.check(f"collection {self._collection}", max(numbers, default=None))
        return versions

    def _place(self, error: Mapping[str, Any]) -> int:
        index: int = error["index"]
        return self._objects[index][1][0]


def _request(id: str, index: int, message: Message, owner: str) -> ReplaceOne[Document] | DeleteOne:
    not_newer = {
        "_id": id,
        "version": {"$lte": message.version},
        "owner": {"$in": [owner, None]},
    }
    if message.op == "delete":
        return DeleteOne(not_newer)
    try:
        encoded = bson.encode(
            {
                "_id": id,
                "version": Int64(message.version),
                "source": message.source,
                "timestamp": DatetimeMS(message.timestamp),
                "owner": owner,
                "data": message.data,
            }
        )
    except Exception as error:  # its text quotes the document
        reason = type(error).__name__
        told = f"{message!r} is no document of MongoDB ({reason})"
        raise SinkError(told, index=index) from None
    if len(encoded) > _LARGEST:
        raise SinkError(f"{message!r} is larger than a document of MongoDB may be", index=index)
    return ReplaceOne(not_newer, RawBSONDocument(encoded), upsert=True)


def _passes(error: PyMongoError) -> bool:
    if isinstance(error, _AWAY) or any(error.has_error_label(each) for each in _LABELS):
        return True
    return isinstance(error, OperationFailure) and error.code in _PASSING


def _reason(error: PyMongoError) -> str:
    if isinstance(error, OperationFailure):
        details = error.details or {}
        return of_mongodb(
            error.code, str(details.get("errmsg", "")), str(details.get("codeName", ""))
        )
    return " ".join(str(error).split())  # of the connection: servers and times
