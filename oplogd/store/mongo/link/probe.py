"""A look at a database before anything is created in it."""

from oplogd.store.mongo.link.errors import translating
from oplogd.store.mongo.link.link import Link


async def look_for_log(url: str) -> tuple[str, bool]:
    """Return the database's name, and whether it holds a log or states, or the first server's.

    Raises StoreError for a URL that cannot be used, StoreUnavailableError if MongoDB is
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
