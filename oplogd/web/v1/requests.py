"""The parts of requests common to endpoints under /v1: names, rights, bodies, and answers."""

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
from fastapi import Depends, Request, Response

from oplogd.decode.buffers import Buffer
from oplogd.decode.media_types import AVRO, JSON
from oplogd.errors import DiskFullError, StoreUnavailableError
from oplogd.ingest.appends import Appends
from oplogd.model.lease import Fence
from oplogd.model.message import Message, ttl_seconds
from oplogd.model.names import OPLOG, SYSTEM, TopicName, check_name, no_topic
from oplogd.model.operation import Operation
from oplogd.model.transaction import DEFAULT_GROUP, group_log, is_group_log
from oplogd.store.transactions import Commit
from oplogd.topics.codec.codec import Codec, InvalidMessagesError, reading_publish
from oplogd.topics.codec.codecs import MEDIA_TYPES, codec_of
from oplogd.topics.poll import PollAnswer
from oplogd.topics.publish import PublishService
from oplogd.topics.transactions.begin import Begin
from oplogd.topics.transactions.rules import Writing
from oplogd.topics.transactions.service import TransactionService
from oplogd.web.access.caller import Caller
from oplogd.web.access.origin import is_from_page
from oplogd.web.access.sides import ReadAuthenticator, WriteAuthenticator
from oplogd.web.describe.parameters import FenceHeader, NamespacePart, TopicPart
from oplogd.web.http.bodies import BodyReader
from oplogd.web.http.headers import fence_of, media_type, not_understood
from oplogd.web.http.problem import COMMON_HEADERS, STORE_AWAY, Problem, refuse_stopping

TOPICS = "/v1/namespaces/{namespace}/topics"
TOPIC = f"{TOPICS}/{{topic}}"

# Answers to writes and polls: no page of another origin may read them.
HEADERS = {"Cache-Control": "no-cache, no-store, must-revalidate"}

# Effects of repeating an unconfirmed request.
CONTINUES = "a repeated request continues"
COMMITS_TWICE = "a repeated request may commit the records twice"
STORES_TWICE = "a repeated request may store the messages twice"

_T = TypeVar("_T")


class Api:
    """The parts common to all endpoints.

    ``reader``, ``mover`` and ``writer`` are dependencies that return the client. It refuses what
    its right does not grant. Writes are refused while the agent stops. ``readable``, ``writable``,
    ``manageable``, ``visible`` and ``with_pointers`` return the topic in a request's path. They
    raise Problem unless the client has this right to it.
    """

    def __init__(
        self,
        readers: ReadAuthenticator,
        writers: WriteAuthenticator,
        bodies: BodyReader,
        appends: Appends,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._readers = readers
        self._writers = writers
        self.bodies = bodies
        self.appends = appends
        self._is_stopping = is_stopping
        self.readable = _topic_of(self.reader, Caller.require_read)
        self.writable = _topic_of(self.writer, Caller.require_write)
        self.manageable = _topic_of(self.writer, Caller.require_manage)
        self.visible = _topic_of(self.reader, Caller.require_seen)
        self.with_pointers = _topic_of(self.reader, Caller.require_pointers)

    async def reader(self, request: Request) -> Caller:
        """Return the client of a request that reads. Raises Problem."""
        return await self._readers.caller(request)

    async def mover(self, request: Request) -> Caller:
        """Return the client of a request that moves a reader's position. Raises Problem."""
        return await self._readers.mover(request)

    async def writer(self, request: Request) -> Caller:
        """Return the client of a request that changes something. Raises Problem."""
        caller = await self._writers.caller(request)
        refuse_stopping(self._is_stopping)
        return caller

    def require_still(self, caller: Caller) -> None:
        """Raise Problem 401 if the credential of a client went while it sent its body."""
        self._writers.require_still(caller)

    def require_still_reading(self, caller: Caller) -> None:
        """Raise as ``require_still``, for a request that reads."""
        self._readers.require_still(caller)

    async def confirmed(self, work: Coroutine[Any, Any, _T], then: str = CONTINUES) -> _T:
        """Return the result of work that writes. Raises Problem 503 if it is not confirmed.

        ``then``: the effect of a repeated request.
        """
        with continuing(then):
            return await self.appends.confirmed(work)


def _topic_of(
    client: Callable[[Request], Awaitable[Caller]], require: Callable[[Caller, TopicName], None]
) -> Callable[..., Awaitable[TopicName]]:
    """Return a dependency for a topic. ``client`` is asked once for all of a request.

    ``require``: raises unless the client has the right to the topic.
    """

    async def allowed(
        namespace: NamespacePart, topic: TopicPart, caller: Caller = Depends(client)
    ) -> TopicName:
        name = topic_name(namespace, topic)
        require(caller, name)
        return name

    return allowed


async def committing_whole(service: TransactionService, appends: Appends, asked: Begin) -> Commit:
    """Commit a whole transaction. Raises Problem 503 if it is not confirmed."""
    with continuing(CONTINUES if asked.once else COMMITS_TWICE):
        return await appends.confirmed(service.commit_whole(asked))


async def given_fence(request: Request, _: FenceHeader = None) -> Fence | None:
    """Return the fence of a request, None without one. Raises Problem 400."""
    return fence_of(request)


def allowed_fence(request: Request, caller: Caller) -> Fence | None:
    """Return the fence of a request. Raises Problem 400, and 403 for a lease of others."""
    fence = fence_of(request)
    allow_fence(caller, fence)
    return fence


def allow_fence(caller: Caller, fence: Fence | None) -> None:
    """Raise Problem 403 for a fence with a lease that the client may not use."""
    if fence is not None:
        caller.require_lease(fence.lease)


def require_begin(caller: Caller, asked: Begin) -> None:
    """Raise Problem 403 unless the client may begin a transaction, and write its records.

    All writers share the commit log of the default group.
    """
    if asked.topic is not None:
        caller.require_write(asked.topic)
    elif asked.group is not None and asked.group != DEFAULT_GROUP:
        caller.require_write(group_log(asked.group))
    else:
        caller.require_some_write()
    if asked.writing is not None:
        require_records(caller, asked.writing)


def begun_by(caller: Caller, asked: Begin) -> Begin:
    """Return a begin with its owner.

    With ``once`` it has none if the client manages all: such a client may take any key over.
    """
    return asked._replace(owner=caller.noted if asked.once is None else caller.owner)


def require_records(caller: Caller, writing: Writing) -> None:
    """Raise Problem 403 unless the client may write all these records."""
    for name in writing.topics:
        caller.require_write(name)
    if OPLOG in writing.topics:
        contents = (each.content for each in writing.records)
        caller.require_objects(each.key for each in contents if isinstance(each, Operation))


def json_body(
    bodies: BodyReader, parse: Callable[[Buffer], _T], max_bytes: int, *, of_any_type: bool = False
) -> Any:
    """Return the dependency that reads JSON. ``of_any_type``: Content-Type does not matter."""

    async def read(request: Request) -> _T:
        async with bodies.received(request, "", max_bytes) as raw:
            if not of_any_type:
                require_json(request, raw)
        return parse(raw)

    return Depends(read)


def answer(body: Any, headers: dict[str, str] = HEADERS, status: int = 200) -> Response:
    """Return an answer in JSON. The default headers belong to a write."""
    return Response(msgspec.json.encode(body), status, headers, JSON)


def shown(body: Any) -> Response:
    """Return the answer to a read: pages of other origins may read it."""
    return answer(body, COMMON_HEADERS)


def poll_headers(answer: PollAnswer) -> dict[str, str]:
    """Return the headers of the answer to a poll."""
    headers = {**HEADERS, "Oplog-Gap": "1"} if answer.gap else HEADERS
    if answer.held_by is not None:
        headers = {**headers, "Oplog-Held-By": str(answer.held_by)}
    if answer.reached is not None:
        headers = {**headers, "Oplog-Position": answer.reached}
    return headers


def topic_name(namespace: str, topic: str) -> TopicName:
    """Return the topic of these names. Raises TopicError."""
    return TopicName(check_name(namespace, "namespace"), check_name(topic, "topic"))


def name_of(request: Request) -> TopicName:
    """Return the topic in a request's path. Raises TopicError."""
    return topic_name(request.path_params["namespace"], request.path_params["topic"])


def refuse_reserved(name: TopicName) -> None:
    """Raise Problem 409 for a topic clients may not create, change or delete."""
    if name.namespace == SYSTEM:
        raise Problem(409, f"the namespace {SYSTEM} is reserved")


def require_known(name: TopicName) -> None:
    """Raise TopicNotFoundError for a missing built-in topic."""
    if name.namespace == SYSTEM and name != OPLOG and not is_group_log(name):
        raise no_topic(name)


def codec_for(request: Request, *, default: str = "") -> Codec:
    """Return the codec of a body. Raises Problem 415.

    ``default``: the media type of a request without Content-Type, empty for none.
    """
    given = media_type(request.headers.get("content-type", "")) or default
    if (codec := codec_of(given)) is not None:
        return codec
    if given == AVRO:
        raise Problem(415, f"this agent was installed without Avro; use {' or '.join(MEDIA_TYPES)}")
    raise not_understood(given, MEDIA_TYPES)


def require_json(request: Request, raw: Buffer) -> None:
    """Raise Problem 415 for a body of another type.

    An empty body needs no type, except from a page in a browser: pages of other origins may send
    any request that needs no preflight, and only the type makes this one need it.
    """
    given = media_type(request.headers.get("content-type", ""))
    if given != JSON and (raw.strip() or is_from_page(request.headers)):
        raise not_understood(given, (JSON,))


async def read_messages(
    request: Request, codec: Codec, bodies: BodyReader, publisher: PublishService
) -> tuple[int | None, list[Message]]:
    """Return the pointer of a publish or a store, and its messages.

    Without a pointer there is at least one message. Raises MessageError, InvalidMessagesError, and
    the errors of a body.
    """
    ttl = ttl_seconds(request.query_params.get("ttl"), "ttl")
    try:
        async with bodies.received(request, "messages") as raw:
            return await bodies.work(
                reading_publish(
                    codec,
                    raw,
                    lambda each: codec.message(each, ttl),
                    publisher.max_messages,
                    queue=publisher.queue.name,
                )
            )
    except InvalidMessagesError as error:
        publisher.refuse_invalid(error.count)
        raise


@contextmanager
def continuing(then: str = CONTINUES) -> Iterator[None]:
    """Raise Problem 503 if the store fails: the request may have been carried out.

    ``then``: the effect of a repeated request.
    """
    try:
        yield
    except DiskFullError:
        raise
    except StoreUnavailableError as error:
        raise Problem(503, f"not confirmed; {then}: {error}", STORE_AWAY) from None
