"""Requests under pointers of foreign transactions, one by one, from an event loop."""

from collections.abc import Sequence
from typing import Any

from oplogc.http.answers import Answer
from oplogc.topics.calls import lists
from oplogc.topics.calls import pointers as calls
from oplogc.topics.calls.agents import Agents
from oplogc.topics.calls.call import Call
from oplogc.topics.calls.lists import ListedPointer
from oplogc.topics.calls.pointers import MAX_KEYS, OpenPointer, Published
from oplogc.topics.calls.topics import confirmation, refusal
from oplogc.topics.messages.message import Sendable, encode
from oplogc.topics.messages.names import TopicName, topic_name
from oplogc.topics.messages.snapshot import HasWritePointer, pointer_of
from oplogc.wire.errors import OplogError, OutcomeUnknownError, ProtocolError, UnavailableError

Pointer = int | str | HasWritePointer
"""The write pointer of a foreign transaction: a number, its digits, or the transaction."""


class AsyncPointers:
    """Made by ``AsyncTopics.pointers``. ``AsyncForeignPublisher`` is the simpler way to publish.

    A pointer is a whole number from 0 to 2^62 - 1. A call concerns its messages in one topic, and
    not those in other topics. Calls raise the errors of ``AsyncTopics``.

    ``store``, and ``publish`` with messages, would store messages twice if they were repeated. If
    the answer to an attempt is lost they raise OutcomeUnknownError. The other calls are repeated.
    """

    def __init__(self, agents: Agents) -> None:
        self._agents = agents

    async def publish(self, topic: str, pointer: Pointer, *messages: Sendable) -> Published:
        """Publish messages under a pointer, in one request. Return their places.

        No messages: publish the messages stored under the pointer. Another call without new ones
        returns the same place. Raises OutcomeUnknownError, MessageError, BadRequestError if stored
        messages must be published first, and RefusedError once the pointer is decided.
        """
        name, number = topic_name(topic), pointer_of(pointer)
        return await self.publish_encoded(name, number, [encode(each) for each in messages])

    async def store(self, topic: str, pointer: Pointer, *messages: Sendable) -> None:
        """Store messages under a pointer, in one request. Readers get them after ``publish``.

        Raises OutcomeUnknownError, MessageError, BadRequestError if the pointer has too many stored
        messages, and RefusedError once it is decided.
        """
        name, number = topic_name(topic), pointer_of(pointer)
        if not messages:
            raise ValueError("store: give at least one message")
        await self.store_encoded(name, number, [encode(each) for each in messages])

    async def publish_encoded(
        self, name: TopicName, pointer: int, messages: Sequence[bytes]
    ) -> Published:
        """Do as ``publish``. Raise ProtocolError only if no messages were given."""
        call = calls.publish(name, pointer, messages)
        if not messages:
            return await self._agents.fetch(call)
        answer = await self._once(call)
        try:
            published = call.read(answer)
            if len(published.places) != len(messages):
                raise ProtocolError(f"{answer.url} does not confirm each message")
        except ProtocolError as error:
            raise _unknown(call, error) from error
        return published

    async def store_encoded(self, name: TopicName, pointer: int, messages: Sequence[bytes]) -> None:
        """Do as ``store``."""
        call = calls.store(name, pointer, messages)
        if error := confirmation(await self._once(call)):
            raise _unknown(call, error) from error

    async def rollback(
        self,
        topic: str,
        pointer: Pointer,
        published: Published | Sequence[str] | None = None,
        *,
        force: bool = False,
    ) -> None:
        """Remove messages of a pointer from a topic, for every reader. It can be repeated.

        ``published``: the answer of ``publish``, or keys of such answers. None: everything under
        the pointer, stored messages included. A rollback does not decide the pointer. After the
        time-out it is a report of an abort. Raises RefusedError once the pointer was reported as
        committed. ``force``: remove them then, too. A reader that resumes before them gets a gap.
        """
        name, number = topic_name(topic), pointer_of(pointer)
        keys: Sequence[str] = ()
        if isinstance(published, Published):
            if (published.topic, published.pointer) != (str(name), number):
                raise ValueError("published: is of another topic or pointer")
            keys = published.keys
            if not keys:  # a request without keys would mean everything
                return
        elif published is not None:
            if isinstance(published, str) or not published:
                raise ValueError("published: give a list of keys, or None for everything")
            keys = [calls.rollback_key(key) for key in published]
        for first in range(0, max(len(keys), 1), MAX_KEYS):
            call = calls.rollback(name, number, keys[first : first + MAX_KEYS], force)
            await self._agents.fetch(call)

    async def commit(self, pointer: Pointer, topics: Sequence[str]) -> None:
        """Report that the transaction of a pointer has committed, for readers without a snapshot.

        ``topics``: those with messages under it. They take no more of its messages. The report is
        for all of them or for none, and can be repeated. After the time-out, readers get them
        at the end of the topic. Raises RefusedError if the pointer was reported as aborted.
        """
        await self._report(pointer, "commit", topics)

    async def abort(self, pointer: Pointer, topics: Sequence[str]) -> None:
        """Report that the transaction of a pointer was aborted.

        The report is for all ``topics`` or for none, and can be repeated. Raises RefusedError if
        the pointer was reported as committed.
        """
        await self._report(pointer, "abort", topics)

    async def list(self, topic: str, limit: int | None = None) -> tuple[OpenPointer, ...]:
        """Return the open pointers of a topic, the oldest first.

        ``limit``: 1,000 at most. None: 100.
        """
        return await self._agents.fetch(calls.list_pointers(topic_name(topic), limit))

    async def list_all(self) -> tuple[ListedPointer, ...]:
        """Return the open pointers of all topics, the oldest first.

        A pointer is listed once for each topic in which it is open.
        """
        return await lists.pointers(self._agents)

    async def _report(self, pointer: Pointer, decision: str, topics: Sequence[str]) -> None:
        call = calls.report(pointer_of(pointer), decision, calls.topic_names(topics))
        await self._agents.fetch(call)

    async def _once(self, call: Call[Any]) -> Answer:
        """Return the answer to a request that must not be repeated if it may be carried out."""
        try:
            answer, _ = await self._agents.ask(call, repeat=False)
        except UnavailableError as error:
            if not error.lost:
                raise
            raise _unknown(call, error) from error
        if refused := refusal(call, answer):
            if isinstance(refused, ProtocolError):
                raise _unknown(call, refused) from refused
            raise refused
        return answer


def _unknown(call: Call[Any], error: OplogError) -> OutcomeUnknownError:
    verb = call.path.rpartition("/")[2]
    return OutcomeUnknownError(f"{verb}: the messages may be stored, roll them back: {error}")
