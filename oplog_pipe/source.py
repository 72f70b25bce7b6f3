"""Follows the agents of one log."""

import asyncio
import logging
import time
from collections.abc import Callable

from oplog_kit.tls import tls_context
from oplog_pipe.copy_total import copy_total
from oplog_pipe.errors import ConfigError, GapError, SourceError
from oplog_pipe.recorder import Recorder
from oplog_pipe.settings import SourceSettings
from oplog_pipe.streams import (
    START,
    Change,
    Item,
    consumer_name,
    is_oplog,
    oplog_endpoints,
    oplog_format,
    topic_endpoints,
    topic_format,
)
from oplog_pipe.track import Track
from oplogc.backoff import Backoff
from oplogc.errors import OplogError, RefusedError
from oplogc.events import Checkpoint
from oplogc.receiver import Receiver

TIMEOUT_SECONDS = 10.0
HEARTBEAT_TIMEOUT_SECONDS = 40.0
"""Agents send something at least every 25 s."""

_SERIES_SECONDS = 60.0
"""A series of failures ends after this time without one."""

logger = logging.getLogger("oplog_pipe")


class Source:
    """Passes events of the agents to the recorder. ``backoff``: first and longest pause, seconds.

    Raises ConfigError for an address, a topic or a TLS file that cannot be used.
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
        agents, password = settings.agents, settings.password
        try:
            tls = settings.tls
            self._verify = tls_context(tls.ca_file, tls.cert_file, tls.key_file)
            if self._is_oplog:
                self._endpoints = oplog_endpoints(agents, password, consumer_name(settings.name))
                self._format = oplog_format()
            else:
                self._endpoints = topic_endpoints(
                    agents,
                    password,
                    settings.log,
                    settings.isolation,
                    consumer_name(settings.name),
                )
                self._format = topic_format(settings.log)
        except ValueError as error:
            raise ConfigError(f"source {settings.name!r}: {error}") from None

    async def follow(self, recorder: Recorder) -> None:
        """Follow until cancelled.

        Raises SourceError if an agent refuses for good, and GapError.
        """
        self._position = self._track.position
        receiver = Receiver(
            self._endpoints,
            self._format,
            None,
            TIMEOUT_SECONDS,
            HEARTBEAT_TIMEOUT_SECONDS,
            Backoff(*self._backoff),
            self._position,
            verify=self._verify,
            tell_failure=self._failed,
        )
        self._track.connected = lambda: receiver.connected
        try:
            while True:
                await recorder.room()
                await asyncio.wait({receiver.start()})
                self._put(receiver.take(), recorder)
        except OplogError as error:
            self._track.error = _reason(error, receiver.address)
            raise SourceError(f"source {self._settings.name!r}: {self._track.error}") from None
        finally:
            if self._asking is not None:
                self._asking.cancel()
            await receiver.aclose()

    def _put(self, items: list[Item], recorder: Recorder) -> None:
        if not items:
            return
        self._failures.over()
        if self._is_oplog:
            if any(type(item) is Change and item.op == "reset" for item in items):
                self._ask_total()
            recorder.put(self._track, items)
            return
        kept: list[Item] = []
        try:
            for item in items:
                if type(item) is Change and item.op == "reset":
                    self._gap()
                    if self._position == START:
                        continue
                    item = Checkpoint(START, item.sequence)
                self._position = item.event_id
                kept.append(item)
        finally:
            if kept:
                recorder.put(self._track, kept)

    def _gap(self) -> None:
        """Judge the event ``reset`` of a topic. From the first position on, nothing is gone."""
        if self._position == START:
            return
        name, log = self._settings.name, self._settings.log
        text = (
            f"source {name!r}: messages of {log} after the position {self._position} are gone: "
            "they have expired, or the topic was created again"
        )
        if self._settings.on_gap == "stop":
            self._track.error = text
            raise GapError(f"{text}; set on_gap: continue to go on with the oldest message")
        logger.warning("%s; going on with the oldest message", text)

    def _failed(self, url: str, reason: str, delay: float) -> None:
        self._track.error = f"{url}: {reason}"
        self._failures.tell(url, reason, delay)

    def _ask_total(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
        self._track.copy_total = None
        self._asking = asyncio.create_task(self._total(), name="oplog-pipe-total")

    async def _total(self) -> None:
        settings = self._settings
        self._track.copy_total = await copy_total(settings.agents, settings.password, self._verify)


class Failures:
    """Logs failures of a source: the first, second, fourth, eighth … of a series.

    ``clock``: seconds.
    """

    def __init__(self, source: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._count = 0
        self._last = 0.0
        self._told = False

    def tell(self, url: str, reason: str, delay: float) -> None:
        now = self._clock()
        if now - self._last > _SERIES_SECONDS:
            self._count = 0
        self._last = now
        self._count += 1
        if self._count & (self._count - 1) == 0:
            self._told = True
            logger.warning(
                "source %r: %s: %s; trying again in %.1f s", self._source, url, reason, delay
            )

    def over(self) -> None:
        """An agent sends again."""
        if self._told:
            self._told = False
            logger.info("source %r: receiving again", self._source)


def _reason(error: OplogError, address: str) -> str:
    text = str(error) if address in str(error) else f"{address}: {error}"
    is_password = isinstance(error, RefusedError) and error.status == 401
    return f"{text}; look at the password of the source" if is_password else text
