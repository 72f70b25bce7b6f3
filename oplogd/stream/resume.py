"""The first phase of a consumer, and the phase that follows if the log does not continue."""

from oplogd.event_id import EventId, Position
from oplogd.store import LogBounds
from oplogd.stream.live import Live, LogPhase
from oplogd.stream.phase import Phase, Step, Subscription
from oplogd.stream.replication import Replication
from oplogd.stream.start import After, FullReplication, Since, resolve, resolve_mark


def begin(
    subscription: Subscription,
    position: Position | None,
    bounds: LogBounds,
    epoch: int,
    *,
    greeting: bool,
) -> Phase:
    """Return the first phase of a consumer.

    ``bounds``: the store's answer to ``locate`` for ``position``, in ``epoch`` of the ring.
    ``greeting``: send a checkpoint first, unless states are sent.
    """
    start = resolve(position, bounds, bounds.now_ms)
    if isinstance(start, After):
        return Live(subscription, start.mark, epoch, bounds.first_offset, greeting=greeting)
    if isinstance(position, EventId):
        subscription.counters.to_states += 1
    return _replication(subscription, start, bounds)


async def resume(phase: LogPhase) -> Step:
    """Continue as if the consumer reconnected at the phase's mark.

    The log was trimmed past that mark, or another log may have replaced it.
    Raises StoreUnavailableError; then call it again.
    """
    subscription = phase.subscription
    epoch = subscription.ring.epoch
    bounds = await subscription.store.locate(phase.mark.offset)
    start = resolve_mark(phase.mark, bounds, bounds.now_ms)
    if isinstance(start, After):
        phase.confirm(epoch, bounds)
        return Step(b"", phase)
    subscription.counters.to_states += 1
    return Step(b"", _replication(subscription, start, bounds))


def _replication(
    subscription: Subscription, start: Since | FullReplication, bounds: LogBounds
) -> Replication:
    if isinstance(start, Since):
        return Replication.since(subscription, bounds, start.ms)
    return Replication.full(subscription, bounds)
