"""The bulk write of one collection, and the meaning of its answer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import bson
from bson import Int64
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument
from pymongo import DeleteOne, ReplaceOne
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import BulkWriteError

from oplog_pipe.errors import SinkError
from oplog_pipe.message import Message
from oplog_pipe.model.reasons import is_of_id, of_mongodb
from oplog_pipe.sinks.parts.ownership import Owner
from oplog_pipe.sinks.parts.template import Numbered

Document = Mapping[str, Any]

# Transient codes: hosts and networks, elections and shutdown, time-outs, conflicts, a full disk.
PASSING = frozenset((
    6, 7, 89, 9001, 91, 189, 10058, 10107, 11600, 11602, 13435, 13436, 50, 64, 202, 262, 112, 14031,
))  # fmt: skip
_DUPLICATE_KEY = 11000
_LARGEST = 16 * 1024 * 1024


class Writes:
    """The last message of each object of one collection."""

    def __init__(self, objects: Mapping[str, Numbered], collection: str, owner: Owner) -> None:
        """Raises SinkError with the index of a message that MongoDB cannot store."""
        self._collection = collection
        self._owner = owner
        # Writes of one kind in a row share a command.
        self._objects = sorted(objects.items(), key=lambda each: each[1][1].op == "delete")
        self._requests = [_request(id, *each, str(owner)) for id, each in self._objects]
        self._deletes = [id for id, (_, message) in self._objects if message.op == "delete"]

    def run(self, database: Database[Document], check: Callable[[], None]) -> None:
        """``check``: called right before the write. Raises SinkError if it is too late."""
        collection = database[self._collection]
        details: Mapping[str, Any] | None = None
        check()
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

        The upsert of an older message fails as a duplicate: it inserts a second document.
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
            reason = f"MongoDB: {of_mongodb(first['code'], str(first.get('errmsg', '')))}"
            passes = all(each["code"] in PASSING for each in others)
            raise SinkError(reason, transient=passes, index=self._place(first))
        if gone:
            raise SinkError("MongoDB: another owner has just deleted a document", transient=True)
        for concern in details.get("writeConcernErrors", ()):
            name = str(concern.get("codeName", "")) or "write concern"
            reason = of_mongodb(concern.get("code"), "", name)
            raise SinkError(f"MongoDB: {reason}", transient=True)

    def _check_others(
        self, collection: Collection[Document], ids: Sequence[str]
    ) -> Mapping[str, object]:
        """Return the version of each document.

        Raises SinkError for one of another owner, ConfigError for a version not of this folder.
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
    owners = {"$in": [owner, None]}
    not_newer = {"_id": id, "version": {"$lte": message.version}, "owner": owners}
    if message.op == "delete":
        return DeleteOne(not_newer)
    try:
        document = {
            "_id": id,
            "version": Int64(message.version),
            "source": message.source,
            "timestamp": DatetimeMS(message.timestamp),
            "owner": owner,
            "data": message.data,
        }
        encoded = bson.encode(document)
    except Exception as error:  # its text quotes the document
        reason = f"{message!r} is no document of MongoDB ({type(error).__name__})"
        raise SinkError(reason, index=index) from None
    if len(encoded) > _LARGEST:
        raise SinkError(f"{message!r} is larger than a document of MongoDB may be", index=index)
    return ReplaceOne(not_newer, RawBSONDocument(encoded), upsert=True)
