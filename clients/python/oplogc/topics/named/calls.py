"""Calls about named consumers, as methods of ``AsyncTopics``."""

from collections.abc import Sequence
from datetime import datetime

from oplogc.topics.calls import consumers, lists
from oplogc.topics.calls.agents import Agents
from oplogc.topics.calls.consumers import ConsumerStatus, ListedConsumer
from oplogc.topics.calls.topics import Isolation
from oplogc.wire.errors import RefusedError


class ConsumerCalls:
    """They raise RefusedError with status 404 if there is no such consumer or topic."""

    _agents: Agents

    async def create_consumer(
        self,
        name: str,
        log: str,
        *,
        types: Sequence[str] = (),
        parents: Sequence[str] = (),
        isolation: Isolation | None = None,
        start: str | datetime = "now",
        shards: int = 1,
    ) -> ConsumerStatus:
        """Create a named consumer and return it. One with these settings may exist already.

        ``log``: ``system/oplog``, or a topic. ``types``, ``parents``: only of the oplog: see
        ``Consumer``. ``isolation``: only of a topic: see ``TopicConsumer``. ``start``: ``now``,
        ``copy`` for a copy of all objects or the oldest message, an id to begin after, or a time.
        It counts only for a new consumer. ``shards``: number of parts of the log, each with a
        position of its own and a reader. Raises RefusedError with status 409 if the consumer has
        other settings, and UnavailableError if there are too many shards in the store.
        """
        call = consumers.create(name, log, types, parents, isolation, start, shards)
        return await self._agents.fetch(call)

    async def get_consumer(self, name: str) -> ConsumerStatus:
        """Return a named consumer with the positions, terms and lags of its shards."""
        return await self._agents.fetch(consumers.get(name))

    async def list_consumers(self) -> tuple[ListedConsumer, ...]:
        """Return the named consumers whose logs this client may read, sorted by name."""
        return await lists.consumers(self._agents)

    async def delete_consumer(self, name: str) -> None:
        """Delete a named consumer. Its readers end.

        If the answer to an attempt was lost, a missing consumer counts as deleted.
        """
        call = consumers.delete(name)
        answer, lost = await self._agents.ask(call)
        error = consumers.refusal(call, answer)
        is_gone = isinstance(error, RefusedError) and error.status == 404
        if error is not None and not (lost and is_gone):
            raise error

    async def seek_consumer(
        self, name: str, position: str | datetime, shard: int | None = None
    ) -> ConsumerStatus:
        """Move a named consumer to a position, see ``start`` of ``create_consumer``. Return it.

        ``shard``: move only this one. The readers end with StaleTermError: start them again.
        """
        return await self._agents.fetch(consumers.seek(name, position, shard))

    async def acknowledge(self, name: str, id: str, *, term: int, shard: int = 0) -> None:
        """Acknowledge everything up to an id of the stream. An older id changes nothing.

        ``term``: of the reader, in the header ``Oplog-Term`` of its stream. ``NamedConsumer`` does
        all that by itself. Raises StaleTermError if another reader has taken the shard.
        """
        await self._agents.fetch(consumers.acknowledge(name, id, term, shard))
