"""The fence of an owner's documents: a document in a collection of its own."""

from typing import Any

from pymongo import ReturnDocument
from pymongo.database import Database

from oplog_pipe.sinks.mongodb.writes import Document
from oplog_pipe.sinks.parts.fence import Fence, other_driver

COLLECTION = "oplog_fence"


class MongodbFence:
    """Its methods raise the driver's errors."""

    def __init__(self, owner: str) -> None:
        self._owner = owner

    def begin_term(self, database: Database[Document]) -> int:
        found: Any = database[COLLECTION].find_one_and_update(
            {"_id": self._owner},
            {"$inc": {"term": 1}, "$set": {"step": -1}},
            upsert=True,
            return_document=ReturnDocument.AFTER,
        )
        return int(found["term"])

    def move(self, fence: Fence, database: Database[Document]) -> None:
        """Raises FencedError if a later term has begun."""
        earlier = {"_id": self._owner, "term": fence.term, "step": {"$lte": fence.step}}
        change = {"$set": {"step": fence.step}}
        if not database[COLLECTION].update_one(earlier, change).matched_count:
            raise other_driver(self._owner)

    def read(self, database: Database[Document]) -> Fence | None:
        found = database[COLLECTION].find_one({"_id": self._owner})
        return None if found is None else Fence(int(found["term"]), int(found["step"]))
