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
    located: LogBounds,
    epoch: int,
    *,
    greeting: bool,
) -> Phase:
    """Return the first phase of a consumer.

    The store was asked for ``position`` in ``epoch`` of the ring and answered ``located``.
    ``greeting``: send a checkpoint first, unless states are sent.
    """
    start = resolve(position, located, located.now_ms)
    if isinstance(start, After):
        return Live(subscription, start.mark, epoch, located.first_offset, greeting=greeting)
    if isinstance(position, EventId):
        subscription.counters.to_states += 1
    return _replication(subscription, start, located)


async def resume(phase: LogPhase) -> Step:
    """Go on as a consumer that reconnects at the phase's mark.

    The log was trimmed past that mark, or another log may have replaced it.
    Raises StoreUnavailableError; then call it again.
    """
    subscription = phase.subscription
    epoch = subscription.ring.epoch
    located = await subscription.store.locate(phase.mark.offset)
    start = resolve_mark(phase.mark, located, located.now_ms)
    if isinstance(start, After):
        phase.confirm(epoch, located)
        return Step(b"", phase)
    subscription.counters.to_states += 1
    return Step(b"", _replication(subscription, start, located))


def _replication(
    subscription: Subscription, start: Since | FullReplication, located: LogBounds
) -> Replication:
    if isinstance(start, Since):
        return Replication.since(subscription, located, start.ms)
    return Replication.full(subscription, located)
