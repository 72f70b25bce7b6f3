"""The agent without its HTTP server: its parts, their tasks, and their shutdown in order."""

import asyncio
import dataclasses
import logging
from collections.abc import Sequence
from socket import socket
from typing import Any

from oplogd.clock import SYSTEM, Clock
from oplogd.clock.keeper import ClockKeeper
from oplogd.config.settings import Settings
from oplogd.errors import StoreUnavailableError
from oplogd.garbage import Freezer
from oplogd.host.descriptors import Descriptors
from oplogd.ingest.appends import Appends
from oplogd.ingest.gate import Gate
from oplogd.ingest.ignored import IgnoredMembers
from oplogd.ingest.queue import IngestQueue
from oplogd.ingest.request_writer import FencedWriter
from oplogd.ingest.spool import Spool
from oplogd.ingest.udp import UdpIngest
from oplogd.ingest.writer import Writer
from oplogd.shared.inbox import Inbox
from oplogd.store import Store
from oplogd.store.transactions import RecordLimits
from oplogd.stream.caught_up import caught_up
from oplogd.stream.feeds import Feeds
from oplogd.stream.follower import follow
from oplogd.stream.hub import Hub
from oplogd.stream.ring.frames import Framer
from oplogd.stream.ring.ring import Ring
from oplogd.stream.ring.waker import Waker
from oplogd.stream.topic_follower import follow_topics
from oplogd.topics.consumers.service import NamedConsumers
from oplogd.topics.counters import TopicCounters
from oplogd.topics.parts import TopicParts
from oplogd.watch.bounded import QUEUE_OF_A_WORKER, THE_QUEUE, BoundedQueue
from oplogd.watch.health import Health
from oplogd.watch.latency import LatencyProbe
from oplogd.watch.lease_counters import LeaseCounters
from oplogd.watch.rates import RateMeter, Rates
from oplogd.watch.tasks import Tasks
from oplogd.watch.turns import Turns, watch_turns
from oplogd.workers.upkeep import Upkeep
from oplogd.workers.workers import Worker

_LOCATE_SECONDS = 5.0
# Time of a stop for ending the streams and the requests, but at most half of it.
END_SECONDS = 10.0

logger = logging.getLogger("oplogd.agent")


class Agent:
    """Call ``open_spool`` and ``start``, and watch ``failed``. End: ``shut``, ``drain``, ``stop``.

    The caller opens and closes the store. ``worker``: the place of this process among others that
    work as one agent; None: there are no others.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        udp_sockets: Sequence[socket],
        clock: Clock = SYSTEM,
        worker: Worker | None = None,
    ) -> None:
        self.worker = worker = worker or Worker.alone()
        tallies = worker.tallies
        self.inbox = Inbox(worker.workers.mailboxes, worker.number, clock)
        self.settings = settings
        # Credentials end by the time of day, as their makers mean it, also while the guarded time
        # does not follow a step.
        self.time_of_day = clock.now_ms
        self.clock = clock = dataclasses.replace(clock, now_ms=store.clock.now_ms)
        self.clock_keeper = ClockKeeper(store, clock)
        self.store = store
        self.health = Health()
        self.appends = Appends(self.health, clock)
        self.gate = Gate(store.space, self.health, self.sweep_soon, clock)
        self.descriptors = Descriptors(tallies.requests_refused.cell("connections"))
        self.counters = tallies.ingest
        self.leases = LeaseCounters(counted=tallies.leases, inbox=self.inbox)
        admit = self.gate.admit
        number, count = worker.number, worker.workers.count
        name = THE_QUEUE if count == 1 else QUEUE_OF_A_WORKER
        room = settings.max_queued_events, settings.max_queued_bytes
        self.queue = IngestQueue(*room, admit, name)
        self.fenced = IngestQueue(*room, admit, name)
        self.ignored = IgnoredMembers(self.counters, clock)
        self.udp = UdpIngest(
            udp_sockets, self.queue, self.counters, self.ignored, clock, tallies.datagrams
        )
        self.spool = Spool.of(settings, number, count, self.health, self.counters, clock)
        self.latency = LatencyProbe(seconds=tallies.latency)
        self.turns = Turns(tallies.loop)
        self.framer = Framer(settings.object_url or "")
        waker = Waker()
        self.ring = Ring(self.framer.route, settings.ring_size, settings.ring_bytes, waker.wake)
        self.feeds = Feeds(
            store.topics,
            waker.wake,
            max_bytes=settings.ring_bytes,
            clock=clock,
            ages=store.clock.ages,
            shared=worker.heads(),
        )
        self.upkeep = Upkeep(settings, store, self.feeds, clock, worker)
        self.hub = Hub(
            store,
            self.ring,
            self.framer,
            heartbeat=settings.heartbeat,
            max_connection_age=settings.max_connection_age,
            max_clients=settings.max_clients,
            max_clients_per_address=settings.max_clients_per_address,
            stall_timeout=settings.stall_timeout,
            feeds=self.feeds,
            clock=clock,
            time_of_day=self.time_of_day,
            ages=store.clock.ages,
            places=worker.places,
            counters=tallies.streams,
            refused=tallies.consumers_refused,
        )
        store.transactions.decisions = tallies.transactions
        store.pointers.decisions = tallies.pointers
        self.topics = TopicParts(
            store,
            self.health,
            max_queued=settings.max_queued_events,
            max_queued_bytes=settings.max_queued_bytes,
            queue_name=name,
            poll_limit=settings.poll_limit,
            limits=RecordLimits(settings.txn_max_records, settings.txn_max_bytes),
            pointer_timeout=settings.pointer_timeout,
            leases=self.leases,
            counters=TopicCounters(tallies.topics, worker.page),
            feeds=self.feeds,
            appends=self.appends,
            admit=admit,
        )
        if store.kind == "sqlite" and (place := worker.writer_place) is not None:
            place.turn.observe = tallies.write_waits.observe
            for queue in (self.queue, self.fenced, self.topics.queue):
                queue.before_take = place.turn.coming
        self.consumers = NamedConsumers(
            store, self.hub, self.topics.known, self.feeds, self.appends, clock
        )
        self.transactions = self.topics.transactions
        self.pointers = self.topics.pointers
        self.started = clock.monotonic()
        self.stopping = False
        self._is_stored = False
        self._meter = RateMeter(
            lambda: (self.counters.received, self.counters.ingested, self.hub.counters.events_sent),
            clock,
        )
        self._tasks = Tasks(logger)
        self.run = self._tasks.run
        # Resolves with a sentence when a task that must not end has died.
        self.failed = self._tasks.failed
        # The queues, and the tasks that empty them.
        self._writing: list[tuple[BoundedQueue[Any], asyncio.Task[None]]] = []

    @property
    def queued(self) -> int:
        """The number of operations that are received and not yet stored."""
        return self.queue.count + self.fenced.count

    @property
    def rates(self) -> Rates:
        return self._meter.rates

    def sweep_soon(self) -> None:
        """See ``Upkeep``."""
        self.upkeep.sweep_soon()

    async def open_spool(self) -> None:
        """Open the spool if there is one. Raises StoreError."""
        if self.spool is not None:
            await self.spool.open()

    async def start(self) -> None:
        """Start all tasks. If the store does not answer, the agent starts degraded.

        The follower then finds the head as soon as the store answers.
        """
        follower = self.health.part("follower")
        try:
            async with asyncio.timeout(_LOCATE_SECONDS):
                bounds = await self.store.locate()
                await self.clock_keeper.look()
        except StoreUnavailableError as error:
            follower.bad(str(error))
        except TimeoutError:
            follower.bad(f"the store did not answer within {_LOCATE_SECONDS:g} s")
        else:
            self.ring.restart(bounds.head)
        await self.gate.look()
        self.inbox.start()
        await self.leases.learn(self.worker.alive_others)
        self.udp.start()
        writer = Writer(
            self.store,
            self.queue,
            self.counters,
            self.health,
            self.spool,
            self.latency,
            self.clock,
            self.appends,
            self.gate,
        )
        writing = self.run("writer", writer.run())
        fenced = FencedWriter(
            self.store, self.fenced, self.counters, self.leases, self.health, self.appends
        )
        writing_fenced = self.run("writer of fenced operations", fenced.run())
        writing_messages = self.run("message writer", self.topics.writer.run())
        self._writing = [
            (self.queue, writing),
            (self.fenced, writing_fenced),
            (self.topics.queue, writing_messages),
        ]
        self.run("watch of appends", self.appends.run())
        if self.store.space is not None:
            self.run("watch of the disk", self.gate.run())
        for name, work in self.upkeep.tasks():
            self.run(name, work)
        self.run("follower", follow(self.store, self.ring, self.health, self.latency))
        self.run("topic follower", follow_topics(self.store.topics, self.feeds, self.health))
        self.run("keeper of the clock", self.clock_keeper.run())
        self.run("ticker", self.hub.tick())
        self.run("watch of terms", self.consumers.readers.watch())
        self.run("freezer", Freezer(self.hub).run())
        self.run("rates", self._meter.run())
        self.run("turns", watch_turns(self.turns))
        if self.worker.page is not None:
            self.run("figures of topics", self.topics.counters.keep_saved(self.clock))
        self.run("watch of descriptors", self.descriptors.watch(self.clock))
        if self.spool is not None:
            self.run("spool", self.spool.mend())

    async def shut(self, *, is_last: bool = True, also: Sequence[socket] = ()) -> None:
        """Stop intake and store the queue: see ``UdpIngest.stop``.

        If the store does not take it in time, ``drain`` ends the streams before: then call
        ``stored``.
        """
        self.stopping = True
        await self.udp.stop(is_last=is_last, also=also)
        self._is_stored = await self._is_stored_in_time()

    async def drain(self) -> None:
        """Send what is stored to the consumers, then end their streams. Call ``shut`` before."""
        if self._is_stored:
            await caught_up(self.store, self.ring, self.feeds, self.hub)
        await self.hub.end_all()
        await self.hub.cut_off_the_rest()

    async def stored(self) -> None:
        """Wait until the queues are empty or their writers have died."""
        for queue, writer in self._writing:
            emptied = asyncio.create_task(queue.emptied(), name="queue")
            await asyncio.wait({emptied, writer}, return_when=asyncio.FIRST_COMPLETED)
            emptied.cancel()

    async def stop(self) -> None:
        """Cancel all tasks and close the spool."""
        await self._tasks.cancel()
        await self.inbox.stop()
        if self.spool is not None:
            await self.spool.close()

    async def _is_stored_in_time(self) -> bool:
        """Return whether the queue is stored while there is still time to end everything else."""
        timeout = self.settings.shutdown_timeout
        seconds = timeout - min(END_SECONDS, timeout / 2)
        storing = asyncio.create_task(self.stored(), name="storing the queue")
        patience = asyncio.ensure_future(self.clock.sleep(seconds))
        await asyncio.wait({storing, patience}, return_when=asyncio.FIRST_COMPLETED)
        is_stored = storing.done()
        for task in (storing, patience):
            task.cancel()
        if not is_stored:
            logger.error("the store has not taken the queue within %g s: ending the rest", seconds)
        return is_stored
