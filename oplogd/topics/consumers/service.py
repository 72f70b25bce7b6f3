"""Named consumers: their streams, their positions and their acknowledgements."""

from msgspec.structs import asdict

from oplogd.clock import Clock
from oplogd.errors import ConsumerError, TopicNotFoundError
from oplogd.ingest.appends import Appends
from oplogd.model.consumer import (
    Acknowledgement,
    ConsumerSettings,
    ShardKey,
    require_term,
)
from oplogd.store import Store
from oplogd.store.consumers import Acknowledged, ConsumerRow, no_consumer
from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.feeds import Feeds
from oplogd.stream.hub import Hub
from oplogd.stream.passes import Pass
from oplogd.topics.consumers.acknowledger import Acknowledger
from oplogd.topics.consumers.lags import NO_LAG, Lags, Retention, ShardLag, filter_of
from oplogd.topics.consumers.positions import (
    Positions,
    fault_of,
    position_of,
    positions_of,
)
from oplogd.topics.consumers.readers import Readers
from oplogd.topics.consumers.rules import (
    ConsumerShown,
    SeekBody,
    listed,
    require_shard,
    shown_shard,
)
from oplogd.topics.known import KnownTopics

# The id of ``reset`` in the stream of a topic, and the position of a copy. It names no entry.
_RESET = "0"


class NamedConsumers:
    """The named consumers of an agent. Methods raise the errors of the store.

    The agent runs ``readers.watch``.
    """

    def __init__(
        self,
        store: Store,
        hub: Hub,
        known: KnownTopics,
        feeds: Feeds,
        appends: Appends,
        clock: Clock,
    ) -> None:
        self._store = store
        self._rows = store.consumers
        # See ``Consumers``.
        self.find, self.select = store.consumers.find, store.consumers.select
        self._hub = hub
        self._known = known
        self._appends = appends
        self.lags = Lags(store, hub.oplog_ring, feeds)
        self._acknowledger = Acknowledger(
            lambda given: appends.confirmed(store.consumers.acknowledge(given))
        )
        self.readers = Readers(store.consumers, hub, clock)

    async def create(
        self, name: str, settings: ConsumerSettings, start: str
    ) -> tuple[ConsumerRow, bool]:
        """Create a consumer. Return it, and whether it is new.

        Raises ConsumerError, ConsumerExistsError, TooManyConsumersError and TopicNotFoundError.
        """
        positions = await self.positions_of(settings)
        position = await position_of(start, positions, "start")
        return await self._appends.confirmed(self._rows.create(name, settings, position))

    async def delete(self, name: str) -> None:
        """Delete a consumer. Its streams end. Raises ConsumerNotFoundError."""
        await self._appends.confirmed(self._rows.delete(name))
        self.readers.end_all(name)

    async def seek(self, row: ConsumerRow, asked: SeekBody) -> ConsumerRow:
        """Move a consumer, or one shard of it. Its streams end.

        Raises ConsumerError, ConsumerNotFoundError and TopicNotFoundError.
        """
        name, settings, _ = row.consumer
        if asked.shard is not None:
            require_shard(settings, asked.shard)
        positions = await self.positions_of(settings)
        position = await position_of(asked.position, positions, "position")
        shards = range(settings.shards) if asked.shard is None else [asked.shard]
        moved = await self._appends.confirmed(self._rows.seek(name, shards, position))
        self.readers.end([ShardKey(name, number) for number in shards])
        return moved

    async def show(self, row: ConsumerRow) -> ConsumerShown:
        """Return a consumer with the lags of its shards."""
        retention = await self.lags.retention()
        lags = await self.measure(row, retention)
        shards = [
            shown_shard(number, shard, lag)
            for number, (shard, lag) in enumerate(zip(row.shards, lags, strict=True))
        ]
        return ConsumerShown(**asdict(listed(row.consumer)), shards=shards)

    async def positions_of(self, settings: ConsumerSettings) -> Positions:
        """Return the positions of the log of a consumer. Raises TopicNotFoundError."""
        return await positions_of(settings, self._store, self._known)

    async def measure(self, row: ConsumerRow, retention: Retention) -> list[ShardLag]:
        """Return the lags of the shards of a consumer. A deleted topic has none."""
        settings = row.consumer.settings
        try:
            positions = await self.positions_of(settings)
        except TopicNotFoundError:
            return [NO_LAG] * settings.shards
        return [
            await self.lags.of(settings, positions, number, shard, retention)
            for number, shard in enumerate(row.shards)
        ]

    async def connect(
        self, row: ConsumerRow, shard: int, term: int | None, *, address: str, pass_: Pass
    ) -> StreamConsumer:
        """Take a shard, and return the consumer of its stream. The stream of the last reader ends.

        ``term``: see ``taken``. Raises ConsumerNotFoundError, StaleTermError, and the errors of
        ``Hub.connect``: then the last reader goes on.
        """
        name, settings, _ = row.consumer
        key, before = ShardKey(name, shard), row.shards[shard]
        positions = await self.positions_of(settings)

        async def connected(position: str) -> StreamConsumer:
            return await self._hub.connect(
                positions.parse(position),
                filter_of(settings, shard),
                checkpoints=True,
                address=address,
                name=name,
                topic=positions.topic,
                pass_=pass_,
            )

        position = before.position if term is None else before.start
        stream = await connected(position)
        try:
            consumer, taken = await self._appends.confirmed(self._rows.take(key, address, term))
            if consumer.settings != settings:  # deleted and created again
                raise no_consumer(name)
            if taken.start != position:  # acknowledged meanwhile
                self._hub.disconnect(stream)
                stream = await connected(taken.start)
        except BaseException:
            self._hub.disconnect(stream)
            raise
        stream.term = taken.term
        self.readers.remember(key, taken.term, settings)
        self.readers.add(key, stream)
        return stream

    async def settings_of(self, key: ShardKey, term: int) -> ConsumerSettings:
        """Return the settings of the consumer of a term. The store judges the term later.

        Raises ConsumerNotFoundError.
        """
        if (known := self.readers.settings_of(key, term)) is not None:
            return known
        row = await self._rows.find(key.name)
        settings = row.consumer.settings
        if key.shard < settings.shards and row.shards[key.shard].term == term:
            self.readers.remember(key, term, settings)
        return settings

    async def acknowledge(self, key: ShardKey, term: int, id_: str) -> None:
        """Note that a reader has handled everything up to an id. It is durable at the return.

        Raises ConsumerError for an id that the log never had, ConsumerNotFoundError, StaleTermError
        and TopicNotFoundError.
        """
        settings = await self.settings_of(key, term)
        require_shard(settings, key.shard)
        if not settings.is_of_oplog and id_ == _RESET:
            await self._require_term(key, term)
            return
        given = Acknowledgement(key, term, id_)
        if self.readers.lack_time(key, term, id_):
            # Of the stream before, or made up. As a place it could skip entries.
            await self._require_id(settings, given)
            await self._require_term(key, term)
            return
        if not self.readers.have_sent(key, term, id_):
            await self._require_id(settings, given)
        outcome = await self._acknowledged(given)
        if outcome.is_older and outcome.shard is not None:
            position = outcome.shard.position
            if position != id_ and await self._is_foreign(settings, position, id_):
                await self._acknowledged(given._replace(instead_of=position))

    async def _acknowledged(self, given: Acknowledgement) -> Acknowledged:
        outcome = await self._acknowledger.acknowledge(given)
        if outcome.error is not None:
            raise outcome.error
        return outcome

    async def _require_id(self, settings: ConsumerSettings, given: Acknowledgement) -> None:
        """Raise ConsumerError unless the log has, or had, the id. A stale term comes first."""
        fault = await fault_of(given.id, await self.positions_of(settings), settings.log)
        if not fault:
            return
        position = await self._require_term(given.key, given.term)
        # A stream with nothing behind its start has sent this start, unless it replicates all.
        if given.id != position or position == _RESET:
            raise ConsumerError("id", fault)

    async def _require_term(self, key: ShardKey, term: int) -> str:
        """Return the position of a shard. Raises ConsumerNotFoundError and StaleTermError."""
        shards = (await self._rows.find(key.name)).shards
        if key.shard >= len(shards):  # deleted and created again
            raise no_consumer(key.name)
        require_term(shards[key.shard], key, term)
        return shards[key.shard].position

    async def _is_foreign(self, settings: ConsumerSettings, position: str, id_: str) -> bool:
        positions = await self.positions_of(settings)
        return await positions.is_foreign(position) and await positions.is_of_log(id_)
