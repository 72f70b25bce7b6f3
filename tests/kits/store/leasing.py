"""Short ways to poll leases, and to append with their fences."""

from oplogd.model.lease import Fence
from oplogd.store import FencedBatch, Store
from oplogd.store.leases import Lease, LeaseRequest
from oplogd.store.topics import MessageBatch, Placed, Refused, Topic
from tests.kits.models.operations import operation
from tests.kits.store.kits import log_of
from tests.kits.store.messages import messages, payloads_of

ORDERS = "orders"
TTL_MS = 10_000


def request(
    holder: str,
    *,
    name: str = ORDERS,
    ttl_ms: int = TTL_MS,
    refresh: bool = False,
    note: str | None = None,
) -> LeaseRequest:
    return LeaseRequest(name, holder, ttl_ms, refresh, note)


async def lead(
    store: Store, holder: str, *, name: str = ORDERS, ttl_ms: int = TTL_MS, refresh: bool = False
) -> Fence:
    """Poll, and return the fence of the present term. The holder must lead then."""
    lease = await store.leases.poll(request(holder, name=name, ttl_ms=ttl_ms, refresh=refresh))
    assert lease.holder == holder
    return Fence(name, lease.term)


def held(holder: str | None, term: int, left_ms: int = TTL_MS, note: str = "") -> Lease:
    return Lease(ORDERS, holder, term, left_ms, note)


def fenced(fence: Fence, *ids: str) -> FencedBatch:
    """Return inserts of objects with these ids."""
    return FencedBatch([operation(id_=each) for each in ids], fence)


def fenced_messages(topic: Topic, fence: Fence | None, *payloads: object) -> MessageBatch:
    return MessageBatch(topic.log, messages(payloads), fence)


async def ids_of(store: Store) -> list[str]:
    """Return the ids in all operations of the log, which are inserts of ``fenced``."""
    return [entry.data.partition('"id":"')[2].partition('"')[0] for entry in await log_of(store)]


async def is_accepted(store: Store, topic: Topic, fence: Fence) -> bool:
    """Append a message to the topic and an operation to the log; they must have one fate."""
    logs_before = await payloads_of(store.topics, topic), await ids_of(store)
    name = f"{fence.term} {len(logs_before[0])}"
    (outcome,) = await store.topics.append([fenced_messages(topic, fence, name)])
    (is_appended,) = await store.append_fenced([fenced(fence, name)])
    logs_after = await payloads_of(store.topics, topic), await ids_of(store)
    if is_appended:
        assert isinstance(outcome, Placed)
        assert logs_after == tuple([*before, name] for before in logs_before)
    else:
        assert outcome is Refused.STALE
        assert logs_after == logs_before
    return is_appended
