"""Taking over a database: a new one, or the first server's. Its identity and secret."""

import contextlib
import logging
import secrets

from pymongo import ReturnDocument
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import DuplicateKeyError

from oplogd.errors import StoreUnavailableError
from oplogd.store.base import SECRET_BYTES, sound_identity, sound_secret
from oplogd.store.mongo.link.damage import offset_of
from oplogd.store.mongo.link.errors import translating
from oplogd.store.mongo.link.layout import FIRST_SERVERS_LOG, IDENTITY, LOG, Document
from oplogd.store.mongo.link.link import Link

logger = logging.getLogger("oplogd.store")


async def set_first_log_aside(link: Link) -> bool:
    """Set the first server's log aside. Return False if the log is empty.

    Raises StoreUnavailableError if one is set aside already.
    """
    if await link.log.find_one({}, {"_id": 1}) is None:
        return False
    if not await link.rename(LOG, FIRST_SERVERS_LOG):
        raise StoreUnavailableError(
            f"MongoDB at {link.hosts}: the first server's log was set aside as"
            f" {FIRST_SERVERS_LOG}, but it still writes to {LOG}: stop it, then rename or drop"
            f" {LOG}"
        )
    logger.info(
        "the first server's log is set aside as %s, its states are taken over", FIRST_SERVERS_LOG
    )
    return True


async def create_row(link: Link, max_bytes: int) -> None:
    """Create the log's row, unless another holder of the lease was faster."""
    now = await link.now_ms()
    is_first_servers = (
        await link.options(FIRST_SERVERS_LOG) is not None
        or await link.states.find_one() is not None
    )
    newest = await link.states.find_one({}, {"ts": 1}, sort=[("ts", -1)])
    offset = await link.states.find_one({}, {"n": 1}, sort=[("n", -1)])
    row: Document = {
        "_id": LOG,
        "n": max(offset_of(offset), 0) if offset else 0,
        "ts": max(now, int(newest["ts"])) if newest else now,
        "first": 1,
        "created": 1 if is_first_servers else now,  # the first server retained all tombstones
        "purged": 0,
        "adopted": now if is_first_servers else 0,
        "max_bytes": max_bytes,
        "writers": {},
    }
    with contextlib.suppress(DuplicateKeyError):
        await link.meta.insert_one(row)


async def read_own(meta: AsyncCollection[Document]) -> tuple[str | None, bytes | None]:
    """Return identity and secret. Make what the store lacks: all agents then get the same ones.

    A majority has them when this returns. None: it is damaged.
    """
    chosen = {"_id": IDENTITY}
    found = await meta.find_one(chosen)
    if found is None:
        made = {"identity": secrets.token_hex(16), "secret": secrets.token_bytes(SECRET_BYTES)}
        found = await _change(meta, chosen, {"$setOnInsert": made}, upsert=True)
    if found is not None and "secret" not in found:  # of an agent of a version before
        lacking = {**chosen, "secret": {"$exists": False}}
        found = await _change(
            meta, lacking, {"$set": {"secret": secrets.token_bytes(SECRET_BYTES)}}
        )
    found = found or {}
    return sound_identity(found.get("identity")), sound_secret(found.get("secret"))


async def _change(
    meta: AsyncCollection[Document], chosen: Document, change: Document, *, upsert: bool = False
) -> Document | None:
    """Change the document of the identity. Return it, also if another agent was faster."""
    found: Document | None = None
    with contextlib.suppress(DuplicateKeyError):
        found = await meta.find_one_and_update(
            chosen, change, upsert=upsert, return_document=ReturnDocument.AFTER
        )
    return await meta.find_one({"_id": IDENTITY}) if found is None else found


async def look_for_log(url: str) -> tuple[str, bool]:
    """Return the database's name, and whether it holds a log or states, or the first server's.

    Raises StoreError for an unusable URL, StoreUnavailableError if MongoDB is
    unreachable.
    """
    link = Link(url, brief=True)
    try:
        with translating(link.hosts):
            for collection in (link.meta, link.log, link.states):
                if await collection.find_one({}, {"_id": 1}) is not None:
                    return link.database.name, True
    finally:
        await link.close()
    return link.database.name, False
