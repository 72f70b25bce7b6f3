"""Deletion of the commit logs of idle groups.

    heads := the newest entries of the logs
    judge: each is old, and its group has no unfinished transaction
    append the end at exactly head + 1

A beginning transaction has its row before its begin record. So either its row is seen, or its
record takes the place of the end, or the end is before it and the record is refused.
"""

from collections.abc import Callable

from oplogd.model.names import SYSTEM
from oplogd.model.transaction import GROUP_PREFIX
from oplogd.store.mongo.interface.topics import MongoTopics
from oplogd.store.mongo.link.lease import FoldLease
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.topic_layout import CATALOGUE, log_of, number
from oplogd.store.mongo.transactions.rows import TransactionRows
from oplogd.store.transactions import IDLE_MS

# Logs judged together.
_PAGE = 200

# The end of the range of names.
_NAMES_END = f"{SYSTEM}/{GROUP_PREFIX[:-1]}{chr(ord(GROUP_PREFIX[-1]) + 1)}"


async def retire(
    link: Link,
    lease: FoldLease,
    rows: TransactionRows,
    topics: MongoTopics,
    is_followed: Callable[[int], bool],
) -> int:
    """See ``Transactions.retire``. Only the holder of the lease deletes.

    Raises PyMongo's errors, and StoreUnavailableError.
    """
    count, after = 0, f"{SYSTEM}/{GROUP_PREFIX}"
    catalogue = await link.topics.find_one({"_id": CATALOGUE})
    while catalogue is not None and lease.held:
        chosen = {"_id": {"$gt": after, "$lt": _NAMES_END}}
        page = await link.topics.find(chosen).sort("_id", 1).limit(_PAGE).to_list()
        if not page:
            break
        after = page[-1]["_id"]
        idle = {}  # time in ms after which each log is idle
        for topic in page:
            ttl = topic.get("ttl")
            seconds = number(catalogue, "default_ttl") if ttl is None else ttl
            idle[log_of(topic)] = max(IDLE_MS, 1000 * seconds)
        heads = (await topics.heads.newest(idle.keys())).logs
        busy = await rows.busy(idle.keys())
        present = await link.removal()
        for log, head in heads.items():
            oldest_ms = present.ages.oldest(present.ms - idle[log])
            is_old = head.mark.ms < oldest_ms and not head.is_ended
            if is_old and log not in busy and not is_followed(log) and lease.held:
                count += await topics.end_behind(log, head.mark)
    return count
