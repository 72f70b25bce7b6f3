"""The interface between the agent and the named consumers of a store."""

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

import msgspec

from oplogd.errors import (
    ConsumerExistsError,
    ConsumerNotFoundError,
    OplogError,
    StoreUnavailableError,
    TooManyConsumersError,
)
from oplogd.model.consumer import (
    MAX_ROWS,
    Acknowledgement,
    ConsumerSettings,
    NamedConsumer,
    ShardKey,
    ShardPosition,
)
from oplogd.model.names import TopicName
from oplogd.model.transaction import Isolation


class ConsumerRow(NamedTuple):
    """A named consumer with the positions of its shards, by their numbers."""

    consumer: NamedConsumer
    shards: list[ShardPosition]


class Acknowledged(NamedTuple):
    """The outcome of an acknowledgement.

    ``shard``: after it; None if it failed with ``error``. ``is_older``: it changed nothing, because
    the position was not before its id.
    """

    shard: ShardPosition | None
    error: OplogError | None = None
    is_older: bool = False


class Consumers(Protocol):
    """The named consumers of a store. Several agents on one store share them.

    Every method may raise StoreUnavailableError; the call may have been carried out all the same.
    Methods may be called concurrently. Changes are durable when the call returns.

    Terms of a name never repeat, also after its consumer was deleted and created again.
    """

    async def create(
        self, name: str, settings: ConsumerSettings, position: str
    ) -> tuple[ConsumerRow, bool]:
        """Create a consumer with all shards at a position. Return it, and whether it is new.

        A consumer of this name with the same settings is returned as it is. Raises
        ConsumerExistsError for other settings, and TooManyConsumersError.
        """

    async def find(self, name: str) -> ConsumerRow:
        """Return a consumer. Raises ConsumerNotFoundError."""

    async def select(self, after: str, limit: int) -> list[ConsumerRow]:
        """Return consumers past a name, sorted by name."""

    async def delete(self, name: str) -> None:
        """Delete a consumer. Raises ConsumerNotFoundError."""

    async def seek(self, name: str, shards: Collection[int], position: str) -> ConsumerRow:
        """Move shards to a position, with the next term. Return the consumer.

        Raises ConsumerNotFoundError.
        """

    async def take(
        self, key: ShardKey, reader: str, term: int | None
    ) -> tuple[NamedConsumer, ShardPosition]:
        """Take a shard, see ``taken``. Raises ConsumerNotFoundError and StaleTermError."""

    async def acknowledge(self, given: Sequence[Acknowledgement]) -> list[Acknowledged]:
        """Acknowledge for different shards, see ``acknowledged``. Return the outcome of each.

        Errors of single ones: ConsumerNotFoundError, StaleTermError and StoreUnavailableError.
        """

    async def terms(self, keys: Collection[ShardKey]) -> dict[ShardKey, int]:
        """Return the terms of these shards. Those of deleted consumers are missing."""


class _Stored(msgspec.Struct):
    """``ConsumerSettings`` as a text."""

    namespace: str
    topic: str
    types: list[str]
    parents: list[str]
    isolation: Isolation
    shards: int


def encode_settings(settings: ConsumerSettings) -> str:
    """Return settings as JSON. Equal settings are equal texts."""
    log, types, parents, isolation, shards = settings
    stored = _Stored(*log, sorted(types), sorted(parents), isolation, shards)
    return msgspec.json.encode(stored).decode()


def decode_settings(text: str | bytes) -> ConsumerSettings:
    """Return the settings in a text. Raises StoreUnavailableError if it is damaged."""
    try:
        stored = msgspec.json.decode(text, type=_Stored)
    except msgspec.MsgspecError as error:
        raise StoreUnavailableError(
            f"the store holds damaged settings of a named consumer, delete this consumer: {error}"
        ) from None
    return ConsumerSettings(
        TopicName(stored.namespace, stored.topic),
        frozenset(stored.types),
        frozenset(stored.parents),
        stored.isolation,
        stored.shards,
    )


def no_consumer(name: str) -> ConsumerNotFoundError:
    return ConsumerNotFoundError(f"there is no consumer {name}")


def other_settings(name: str) -> ConsumerExistsError:
    return ConsumerExistsError(
        f"the consumer {name} exists with other settings; delete it, or choose another name"
    )


def too_many_consumers() -> TooManyConsumersError:
    return TooManyConsumersError(
        f"the named consumers of this store have {MAX_ROWS:,} shards already; delete some"
    )
