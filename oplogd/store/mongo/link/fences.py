"""Judging fences: whether the leases in ``oplog_leases`` still have the terms of publishes.

Acquiring a lease writes nothing into any log. A fence is safe all the same, if it is judged after
the head was read, before each insert:

- A later term's batch is in the log, up to this head: a majority had its term before the append.
  The lease is read with majority after the head, and causally after it, so the read returns this
  term or a later one. The fence does not hold.
- A later term's batch is appended behind this head: it takes head + 1. The insert judged before
  meets a duplicate key, however late it is carried out, and is judged again.
- There is no batch of a later term yet: the insert lands before all of them. The new leader sends
  the same rows again, behind it.

The decision of a transaction is no append, but a change of its row. It is safe, because the row is
there before the lease is read, and a new term looks for rows before it is answered:

- The row is there when the new term looks: it is aborted, or completed if it is decided. Only one
  of the two changes finds it open.
- The row comes later: the lease is read after that, and shows the new term.

So a majority must have each new term, and each release, before the answer. Otherwise a fail-over
takes a term back, and two leaders get the same one.
"""

from collections.abc import Collection
from typing import Any

from oplogd.errors import NotConfirmedError
from oplogd.model.lease import Fence
from oplogd.store.mongo.link.damage import whole
from oplogd.store.mongo.link.link import Link

LEASES = "oplog_leases"


async def holding(link: Link, fences: Collection[Fence]) -> set[Fence]:
    """Return the fences that hold: their lease has a holder and this term, expired or not.

    Call it after the heads were read.
    """
    if not fences:
        return set()
    held: dict[str, Any] = {
        "_id": {"$in": sorted({fence.lease for fence in fences})},
        "lease.holder": {"$ne": None},
    }
    async with link.reading() as session:
        found = link.database[LEASES].find(held, {"lease.term": 1}, session=session)
        terms = {each["_id"]: whole(each["lease"].get("term")) async for each in found}
    return {fence for fence in fences if terms.get(fence.lease) == fence.term}


def ended_meanwhile(link: Link, fence: Fence) -> NotConfirmedError:
    """Return the error for a batch whose term ended, with a part of it perhaps stored."""
    return NotConfirmedError(
        f"MongoDB at {link.hosts}: term {fence.term} of the lease {fence.lease} ended while a"
        " request was being stored; some of it may be stored"
    )
