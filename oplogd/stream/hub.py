"""The hub connects, wakes, counts and ends all consumers of an agent."""

import logging
import random
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from oplogd.clock import SYSTEM, Clock
from oplogd.clock.ages import Ages
from oplogd.errors import StoreUnavailableError, TooManyShardsError
from oplogd.model.event_id import Position
from oplogd.model.shard import Shard
from oplogd.model.transaction import DEFAULT_ISOLATION, Isolation
from oplogd.shared.places import OwnPlaces, Places
from oplogd.store import Store
from oplogd.store.topics import Topic
from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.feeds import Feeds
from oplogd.stream.passes import FOR_EVER, Pass
from oplogd.stream.phases.oplog_bridge import OplogBridge
from oplogd.stream.phases.phase import Feed, ReadSlots, StreamCounters, Subscription
from oplogd.stream.phases.record_pages import RecordPages
from oplogd.stream.phases.start import TopicPosition
from oplogd.stream.refused import Refusal, RefusedConsumers
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.frames import Framer
from oplogd.stream.ring.ring import Ring

# Time between two looks at the consumers. With a short heartbeat it is a quarter of the heartbeat.
_TICK_SECONDS = 0.5

# The ends of 1,000 or more streams are spread over this time; fewer take less in proportion.
END_SPREAD_SECONDS = 3.0

# The ends of streams that may not go on are spread over this time.
GONE_SPREAD_SECONDS = 2.0

# Streams whose ends are due within this time end together.
_END_PAUSE_SECONDS = 0.01

# A stalled stream is cut off when its end has been due for this long.
END_GRACE_SECONDS = 10.0
# A stream is cut off when its pass has been over for this, even if its consumer takes bytes slowly.
END_MOST_SECONDS = 30.0

# A stop waits this long for consumers to read to the end of their streams.
END_WAIT_SECONDS = 2.0

logger = logging.getLogger("oplogd.stream")


class TooManyClientsError(Exception):
    """``--max-clients`` consumers are connected."""


class TooManyFromAddressError(Exception):
    """``--max-clients-per-address`` consumers of this address are connected."""


class Hub:
    """All consumers of an agent. Durations are in seconds. 0: no limit, except of clients."""

    def __init__(
        self,
        store: Store,
        ring: Ring,
        framer: Framer,
        *,
        heartbeat: float,
        max_connection_age: float,
        max_clients: int,
        max_clients_per_address: int = 0,
        stall_timeout: float = 0,
        feeds: Feeds | None = None,
        clock: Clock = SYSTEM,
        time_of_day: Callable[[], int] | None = None,
        ages: Callable[[], Ages] = Ages,
        places: Places | None = None,
        counters: StreamCounters | None = None,
        refused: RefusedConsumers | None = None,
    ) -> None:
        """``feeds``: the feeds of the topics; None where the store has none.

        ``time_of_day``: by which passes end, in ms since 1970; None: as ``clock`` has it.
        ``places``: those that the agent's processes share; None: there is one process.
        """
        self._clock = clock
        self._time_of_day = time_of_day or clock.now_ms
        self._feed = Feed(ring, OplogBridge(store, framer))
        self._feeds = feeds
        self._tick = min(_TICK_SECONDS, heartbeat / 4)
        # Consumers are looked at once per tick: a heartbeat due a tick early is never late.
        self._heartbeat = heartbeat - self._tick
        self._max_age = max_connection_age or float("inf")
        self.max_clients = max_clients
        self.max_clients_per_address = max_clients_per_address
        self._places = places or OwnPlaces()
        self.stall_timeout = stall_timeout or float("inf")
        self._ending = False
        self.counters = counters or StreamCounters()
        # Number of refused consumers by the reason.
        self.refused = refused or RefusedConsumers()
        self._read_slots = ReadSlots()
        self.pages = RecordPages(self._read_slots.entries, clock, ages)
        self.consumers: set[StreamConsumer] = set()

    @property
    def oplog_ring(self) -> Ring:
        return self._feed.ring

    @property
    def held(self) -> int:
        """The number of consumers waiting for the decision of a pointer."""
        return sum(consumer.held_by is not None for consumer in self.consumers)

    @contextmanager
    def refusing(self, reason: Refusal, errors: type[Exception] = Exception) -> Iterator[None]:
        """Count a consumer as refused if the block raises one of these errors."""
        try:
            yield
        except errors:
            self.refused[reason] += 1
            raise

    async def connect(
        self,
        position: Position | TopicPosition | None,
        filter_: Filter,
        *,
        checkpoints: bool,
        address: str,
        name: str = "",
        topic: Topic | None = None,
        pass_: Pass = FOR_EVER,
    ) -> StreamConsumer:
        """Return a new consumer at ``position``; None: behind the head.

        ``disconnect`` must follow. ``topic`` None: the oplog. ``address`` is HOST:PORT.
        Raises StoreUnavailableError, TooManyClientsError, TooManyFromAddressError,
        TooManyShardsError and TopicNotFoundError.
        """
        with self._place(address), self.refusing("store", StoreUnavailableError):
            feed = self._feed
            if topic is not None:
                assert self._feeds is not None
                feed = await self._feeds.open(topic)
            with self.refusing("shards", TooManyShardsError):
                view = feed.ring.view(filter_)
            subscription = Subscription(feed, view, self.counters, self._read_slots, self.pages)
            try:
                phase = await feed.bridge.begin(subscription, position, greeting=checkpoints)
            except BaseException:
                feed.release(view)
                raise
            self.counters.connections += 1
            now = self._clock.monotonic()
            age = self._max_age * random.uniform(0.8, 1.2)
            consumer = StreamConsumer(
                self.counters.connections,
                address,
                subscription,
                phase,
                heartbeat=self._heartbeat,
                checkpoints=checkpoints,
                ends_at=now + min(age, pass_.seconds(self._time_of_day() / 1000, self._tick)),
                clock=self._clock,
                connected_at=self._clock.now_ms() / 1000,
                last_write=now,
                name=name,
                pass_=pass_,
            )
            self.consumers.add(consumer)
        if self._ending or consumer.ends_at <= now:
            consumer.end()
        return consumer

    async def connect_topic(
        self,
        topic: Topic,
        position: TopicPosition | None,
        *,
        checkpoints: bool,
        address: str,
        name: str = "",
        isolation: Isolation = DEFAULT_ISOLATION,
        shard: Shard | None = None,
        pass_: Pass = FOR_EVER,
    ) -> StreamConsumer:
        """Return a new consumer of a topic: see ``connect``."""
        filter_ = Filter(committed=isolation is Isolation.READ_COMMITTED, shard=shard)
        return await self.connect(
            position,
            filter_,
            checkpoints=checkpoints,
            address=address,
            name=name,
            topic=topic,
            pass_=pass_,
        )

    @contextmanager
    def _place(self, address: str) -> Iterator[None]:
        """Reserve a place for a consumer of this address. Raises if there is none."""
        host = _host(address)
        full = self._places.take(host, self.max_clients, self.max_clients_per_address)
        if full:
            self.refused[full] += 1
            if full == "max_clients":
                raise TooManyClientsError
            raise TooManyFromAddressError
        try:
            yield
        except BaseException:
            self._places.free(host)
            raise

    def disconnect(self, consumer: StreamConsumer) -> None:
        """Forget a consumer. A second call does nothing."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            self._places.free(_host(consumer.address))
            consumer.close()
            consumer.subscription.feed.release(consumer.view)
            logger.debug("consumer %d has gone after %d events", consumer.id, consumer.sent)

    async def tick(self) -> None:
        """Look at all consumers regularly until cancelled."""
        while True:
            await self._clock.sleep(self._tick)
            self.look(self._clock.monotonic())

    def look(self, now: float) -> None:
        """Wake consumers whose heartbeat or end is due at ``now``, and cut off stalled ones."""
        self.pages.drop_unused()
        self._end_expired()
        self._feed.ring.wake([consumer for consumer in self.consumers if consumer.tick(now)])
        for consumer in [each for each in self.consumers if each.connection.is_full]:
            connection = consumer.connection
            stalled = connection.stalled_seconds(now, consumer.last_write)
            overdue = min(stalled, now - consumer.ends_at) >= END_GRACE_SECONDS
            overdue = overdue or now - consumer.pass_ended_at >= END_MOST_SECONDS
            if (overdue or stalled >= self.stall_timeout) and connection.abort():
                reason = "its end was due" if overdue else "--stall-timeout"
                taken = "consumer %d at %s took no byte for %.1f s (%s): cut off"
                logger.info(taken, consumer.id, consumer.address, stalled, reason)

    def _end_expired(self) -> None:
        """End the streams whose credential would end before the next look.

        ``ends_at`` does so, too, unless the time of day has jumped.
        """
        soon = self._time_of_day() / 1000 + self._tick
        now = self._clock.monotonic()
        for consumer in self.consumers:
            if consumer.pass_.until is not None and consumer.pass_.until <= soon:
                consumer.end_without_pass(now)

    def end_without(self, is_valid: Callable[[Hashable], bool]) -> None:
        """End the streams whose credential is not valid any more, spread over a short time."""
        now = self._clock.monotonic()
        for consumer in self.consumers:
            if not is_valid(consumer.pass_.credential):
                consumer.end_without_pass(now + random.uniform(0, GONE_SPREAD_SECONDS))

    async def end_all(self) -> None:
        """End the streams, spread over time so that consumers do not all reconnect at once.

        A stream opened later ends at once.
        """
        self._ending = True
        consumers = list(self.consumers)
        random.shuffle(consumers)
        seconds = END_SPREAD_SECONDS * min(1.0, len(consumers) / 1000)
        begun = self._clock.monotonic()
        ended = 0
        while ended < len(consumers):
            await self._clock.sleep(min(_END_PAUSE_SECONDS, seconds))
            share = (self._clock.monotonic() - begun) / seconds
            due = len(consumers) if share >= 1 else int(len(consumers) * share)
            for consumer in consumers[ended:due]:
                consumer.end()
            ended = due

    async def cut_off_the_rest(self) -> None:
        """After ``end_all``, wait a little for streams to be read, then cut off the rest."""
        until = self._clock.monotonic() + END_WAIT_SECONDS
        while self.consumers and self._clock.monotonic() < until:
            await self._clock.sleep(_END_PAUSE_SECONDS)
        if cut_off := sum(consumer.connection.abort() for consumer in list(self.consumers)):
            logger.info("%d consumers did not read to the end of their streams: cut off", cut_off)


def _host(address: str) -> str:
    return address.rpartition(":")[0]
