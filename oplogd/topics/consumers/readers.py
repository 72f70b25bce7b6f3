"""The readers of named consumers at this agent: their streams, and the ends of old terms."""

import logging
from collections import OrderedDict
from collections.abc import Collection
from typing import NamedTuple

from oplogd.clock import Clock
from oplogd.errors import StoreUnavailableError
from oplogd.model.consumer import ConsumerSettings, ShardKey, is_time
from oplogd.store.consumers import Consumers
from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.hub import Hub
from oplogd.topics.consumers.positions import is_behind

# Terms whose settings are kept. A term is of one consumer for ever.
_MOST_KNOWN = 10_000

# Time between two looks for terms that have ended at other agents.
LOOK_SECONDS = 1.0

logger = logging.getLogger("oplogd.consumers")


class _Term(NamedTuple):
    key: ShardKey
    term: int


class Readers:
    """The newest stream of each shard here. The agent runs ``watch``."""

    def __init__(self, rows: Consumers, hub: Hub, clock: Clock) -> None:
        self._rows = rows
        self._hub = hub
        self._clock = clock
        # The last used comes last.
        self._terms: OrderedDict[_Term, ConsumerSettings] = OrderedDict()
        self._streams: dict[ShardKey, StreamConsumer] = {}

    def add(self, key: ShardKey, stream: StreamConsumer) -> None:
        """Add a stream that has its term. Of the streams of its shard only the newest goes on."""
        newest = self._streams.get(key)
        if newest is not None and newest.term > stream.term:  # taken by another reader meanwhile
            stream.end()
            return
        self.end([key])
        self._streams[key] = stream

    def end(self, keys: Collection[ShardKey]) -> None:
        """End the streams of shards."""
        for key in keys:
            stream = self._streams.pop(key, None)
            if stream is not None:
                stream.end()

    def end_all(self, name: str) -> None:
        """End the streams of a consumer."""
        self.end([key for key in self._streams if key.name == name])

    def remember(self, key: ShardKey, term: int, settings: ConsumerSettings) -> None:
        """Remember the settings of the consumer of a term."""
        self._terms[_Term(key, term)] = settings
        self._terms.move_to_end(_Term(key, term))
        if len(self._terms) > _MOST_KNOWN:
            self._terms.popitem(last=False)

    def settings_of(self, key: ShardKey, term: int) -> ConsumerSettings | None:
        """Return the settings of the consumer of a term, None if they are not known here."""
        known = self._terms.get(_Term(key, term))
        if known is not None:
            self._terms.move_to_end(_Term(key, term))
        return known

    def have_sent(self, key: ShardKey, term: int, id_: str) -> bool:
        """Return whether the stream of a term is past an id, so that the log has it."""
        stream = self._of(key, term)
        return stream is not None and is_behind(id_, stream.phase.position)

    def lack_time(self, key: ShardKey, term: int, id_: str) -> bool:
        """Return whether a time is past all that the stream of a term has replicated.

        False without this stream here.
        """
        stream = self._of(key, term)
        if stream is None or not (is_time(id_) and id_.isascii() and id_.isdecimal()):
            return False
        return int(id_) > stream.subscription.replicated_ms

    def _of(self, key: ShardKey, term: int) -> StreamConsumer | None:
        stream = self._streams.get(key)
        return stream if stream is not None and stream.term == term else None

    async def watch(self) -> None:
        """End the streams whose terms have ended, at other agents too, until cancelled."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except StoreUnavailableError as error:
                logger.debug("the terms of named consumers are not known: %s", error)

    async def look(self) -> None:
        """End the streams whose terms have ended. Forget those that have gone."""
        streams = self._streams
        for key, stream in list(streams.items()):
            if stream not in self._hub.consumers:
                del streams[key]
        if not streams:
            return
        looked_at = dict(streams)
        terms = await self._rows.terms(list(looked_at))
        for key, stream in looked_at.items():
            if terms.get(key, stream.term + 1) > stream.term:
                stream.end()
