"""The identity of the store: one document in ``oplog_meta``."""

import secrets

from pymongo import ReturnDocument
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import DuplicateKeyError

from oplogd.store.base import sound_identity
from oplogd.store.mongo.link.layout import IDENTITY, Document

_ID = {"_id": IDENTITY}


async def read_identity(meta: AsyncCollection[Document]) -> str | None:
    """Return the identity. Make it if the store has none: all agents then get the same one.

    A majority has it when this returns. None: the document is damaged.
    """
    found = await meta.find_one(_ID)
    if found is None:
        made = {"$setOnInsert": {"identity": secrets.token_hex(16)}}
        try:
            found = await meta.find_one_and_update(
                _ID, made, upsert=True, return_document=ReturnDocument.AFTER
            )
        except DuplicateKeyError:  # another agent was faster
            found = await meta.find_one(_ID)
    return sound_identity(found and found.get("identity"))
