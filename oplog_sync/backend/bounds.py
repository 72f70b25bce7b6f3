"""Divide the states in MongoDB into ranges of keys."""

from collections.abc import Iterator

from pymongo.collection import Collection

from oplog_sync.backend.documents import past
from oplogd.store.mongo.link.layout import Document

# Keys sampled for each range of states. The size of a range is then right within about a quarter.
_SAMPLES = 20


def sampled_bounds(states: Collection[Document], parts: int) -> list[str]:
    """Return keys, in the server's order, to divide the states into about ``parts`` ranges."""
    sample = [
        {"$sample": {"size": parts * _SAMPLES}},
        {"$project": {"_id": 1}},
        {"$sort": {"_id": 1}},
    ]
    keys = [document["_id"] for document in states.aggregate(sample)]
    chosen = [keys[len(keys) * number // parts] for number in range(1, parts)]
    return list(dict.fromkeys(chosen))  # a sample may hold a key twice


def counted_bounds(states: Collection[Document], rows: int) -> Iterator[str]:
    """Yield every ``rows``-th key, for servers without ``$sample``."""
    after: str | None = None
    while True:
        found = states.find(past("_id", after, None), {"_id": 1}).sort("_id", 1)
        document = next(found.skip(rows - 1).limit(1), None)
        if document is None:
            return
        after = document["_id"]
        yield after
