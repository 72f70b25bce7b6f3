"""Follows the agents of one log."""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

from oplog_kit.tls import tls_context
from oplog_pipe.errors import ConfigError, GapError, SourceError
from oplog_pipe.follow.checkpoints import Witness
from oplog_pipe.follow.recorder import Recorder
from oplog_pipe.follow.store import StoreReport, ask_store, knows
from oplog_pipe.follow.streams import (
    START,
    Item,
    consumer_name,
    has_states,
    is_oplog,
    is_reset,
    oplog_endpoints,
    oplog_format,
    topic_endpoints,
    topic_format,
)
from oplog_pipe.follow.track import Track
from oplog_pipe.model.settings import SourceSettings
from oplogc.follow.receiver import Receiver
from oplogc.http.address import Endpoint, shown
from oplogc.http.backoff import Backoff
from oplogc.wire.errors import OplogError, RefusedError
from oplogc.wire.events import Checkpoint

TIMEOUT_SECONDS = 10.0
HEARTBEAT_TIMEOUT_SECONDS = 40.0
"""Agents send something at least every 25 s."""

WITNESS_SECONDS = 5.0
"""Time between two witnesses while states come. A copy that was cut off repeats at most this."""

_SERIES_SECONDS = 60.0
"""A series of failures ends after this time without one."""

logger = logging.getLogger("oplog_pipe")


class LogSource:
    """Passes events of the agents to the recorder. ``backoff``: first and longest pause, seconds.

    Raises ConfigError for an address, a topic or a TLS file of no use.
    """

    def __init__(
        self, settings: SourceSettings, track: Track, backoff: tuple[float, float]
    ) -> None:
        self._settings = settings
        self._track = track
        self._backoff = backoff
        self._is_oplog = is_oplog(settings.log)
        self._failures = Failures(settings.name)
        self._asking: asyncio.Task[None] | None = None
        self._asked_at = 0.0
        self._has_compared = False
        agents, password = settings.agents, settings.password
        try:
            tls = settings.tls
            self._verify = tls_context(tls.ca_file, tls.cert_file, tls.key_file)
            name, log = consumer_name(settings.name), settings.log
            if self._is_oplog:
                self._endpoints = oplog_endpoints(agents, password, name)
                self._format = oplog_format()
            else:
                isolation = settings.isolation
                self._endpoints = topic_endpoints(agents, password, log, isolation, name)
                self._format = topic_format(log)
        except ValueError as error:
            raise ConfigError(f"source {settings.name!r}: {error}") from None
        self._urls = dict(zip(self._endpoints, agents, strict=True))

    async def follow(self, recorder: Recorder) -> None:
        """Follow until cancelled. Raises SourceError if an agent refuses for good, and GapError."""
        self._position = self._track.position
        receiver = self._receiver = Receiver(
            self._endpoints,
            self._format,
            None,
            TIMEOUT_SECONDS,
            HEARTBEAT_TIMEOUT_SECONDS,
            Backoff(*self._backoff),
            self._position,
            verify=self._verify,
            tell_failure=self._failed,
            opened=partial(self._opened, recorder),
        )
        self._track.connected = lambda: receiver.connected
        try:
            while True:
                await recorder.room()
                await asyncio.wait({receiver.start()})
                if items := receiver.take():
                    self._failures.over()
                    if self._is_oplog:
                        await self._put(items, recorder)
                    else:
                        self._put_messages(items, recorder)
        except OplogError as error:
            self._track.error = _reason(error, receiver.address)
            raise SourceError(f"source {self._settings.name!r}: {self._track.error}") from None
        finally:
            if self._asking is not None:
                self._asking.cancel()
            await receiver.aclose()

    # The store behind the agents

    async def _opened(self, recorder: Recorder, endpoint: Endpoint, store: str | None) -> str:
        """Return the position for this agent's stream.

        Raises SourceError if another agent has another store, and GapError.
        """
        track = self._track
        is_other = None not in (store, track.store) and store != track.store
        if store is not None and (is_other or not self._has_compared):
            await self._compare(endpoint, store)
        if is_other and self._position != START:
            if self._is_oplog:
                logger.warning(
                    "source %r: %s has another store than before: copying all objects again",
                    self._settings.name, shown(endpoint.url),
                )  # fmt: skip
            else:
                self._gap(f"{shown(endpoint.url)} has another store than before")
            return await self._restart(recorder, store)
        if store is not None and store != track.store:
            await recorder.step(partial(track.adopt, store))
        if track.witness is None or track.witness.is_reached(self._position):
            return self._position
        if not await knows(endpoint, track.witness.head, store, self._format, self._verify):
            logger.warning(
                "source %r: the log of %s does not go on from before: its store was restored from"
                " a backup, or has a new epoch: copying all objects again",
                self._settings.name, shown(endpoint.url),
            )  # fmt: skip
            return await self._restart(recorder, track.store)
        self._position = track.witness.before(self._position)
        return self._position

    async def _restart(self, recorder: Recorder, store: str | None) -> str:
        await recorder.step(partial(self._track.restart, store))
        self._position = START
        return START

    async def _compare(self, endpoint: Endpoint, store: str) -> None:
        """Raise SourceError if another agent of the list has another store."""
        others = [each for each in self._endpoints if each != endpoint]
        for other, found in zip(others, await asyncio.gather(*map(self._ask, others)), strict=True):
            if found is not None and found.store not in (None, store):
                self._track.error = (
                    f"{shown(endpoint.url)} and {shown(other.url)} have different stores: list"
                    " only agents of one store in `agents`"
                )
                raise SourceError(f"source {self._settings.name!r}: {self._track.error}")
        self._has_compared = True

    async def _ask(self, endpoint: Endpoint) -> StoreReport | None:
        return await ask_store(self._urls[endpoint], self._settings.password, self._verify)

    # What its agents send

    async def _put(self, items: list[Item], recorder: Recorder) -> None:
        track, position = self._track, items[-1].event_id
        begins_copy = any(map(is_reset, items))
        if begins_copy or has_states(position) != has_states(self._position):
            found = await self._ask(self._receiver.endpoint)
            if found is None:  # without a witness the items could not be judged later
                await self._receiver.aclose()
                delay = self._backoff[0]
                self._failed(self._receiver.address, "/status of the agent does not answer", delay)
                await asyncio.sleep(delay)
                return
            if begins_copy:
                track.copy_total = found.live
            recorder.put(track, items)
            await recorder.step(partial(self._witness, position, found))
        else:
            recorder.put(track, items)
        self._position = position
        witness = track.witness
        is_used = has_states(position) or (witness is not None and witness.is_of_state)
        is_old = time.monotonic() - self._asked_at >= WITNESS_SECONDS
        if is_used and is_old and (self._asking is None or self._asking.done()):
            renewing = self._renew_witness(recorder)
            self._asking = asyncio.create_task(renewing, name="oplog-pipe-witness")

    async def _renew_witness(self, recorder: Recorder) -> None:
        position, connections = self._position, self._receiver.connections
        found = await self._ask(self._receiver.endpoint)
        # Another connection may have another store behind it.
        is_same = self._receiver.connections == connections and self._receiver.connected
        if found is not None and is_same:
            self._witness(position, found)
            recorder.put(self._track, [])  # to save it, even if nothing else comes

    def _witness(self, position: str, found: StoreReport) -> None:
        """Note the head reported by an agent after everything up to a position was received."""
        self._asked_at = time.monotonic()
        if found.head is not None and found.store in (None, self._track.store):
            self._track.witness = Witness(position, found.head)

    def _put_messages(self, items: list[Item], recorder: Recorder) -> None:
        accepted: list[Item] = []
        try:
            for item in items:
                if is_reset(item):
                    self._gap("they have expired, or the topic was created again")
                    if self._position == START:
                        continue
                    item = Checkpoint(START, item.sequence)
                self._position = item.event_id
                accepted.append(item)
        finally:
            if accepted:
                recorder.put(self._track, accepted)

    def _gap(self, reason: str) -> None:
        """Judge a gap in a topic. From the first position on, nothing is gone."""
        if self._position == START:
            return
        name, log = self._settings.name, self._settings.log
        gone = f"messages of {log} after the position {self._position} are gone"
        text = f"source {name!r}: {gone}: {reason}"
        if self._settings.on_gap == "stop":
            self._track.error = text
            raise GapError(f"{text}; set on_gap: continue to go on with the oldest message")
        logger.warning("%s; going on with the oldest message", text)

    def _failed(self, url: str, reason: str, delay: float) -> None:
        self._track.error = f"{url}: {reason}"
        self._failures.tell(url, reason, delay)


class Failures:
    """Logs the first, second, fourth, eighth … failure of a series. ``clock``: seconds."""

    def __init__(self, source: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._count = 0
        self._last = 0.0
        self._logged = False

    def tell(self, url: str, reason: str, delay: float) -> None:
        now = self._clock()
        if now - self._last > _SERIES_SECONDS:
            self._count = 0
        self._last = now
        self._count += 1
        if self._count & (self._count - 1) == 0:
            self._logged = True
            logger.warning(
                "source %r: %s: %s; trying again in %.1f s", self._source, url, reason, delay
            )

    def over(self) -> None:
        """An agent sends again."""
        if self._logged:
            self._logged = False
            logger.info("source %r: receiving again", self._source)


def _reason(error: OplogError, address: str) -> str:
    text = str(error) if address in str(error) else f"{address}: {error}"
    is_password = isinstance(error, RefusedError) and error.status == 401
    return f"{text}; look at the password of the source" if is_password else text
