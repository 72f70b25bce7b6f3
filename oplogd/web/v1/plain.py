"""The short way of publish, poll, whole transactions and acknowledgements, for JSON."""

import re
from collections.abc import Callable, Mapping
from functools import partial

from oplogd.decode.faults import FaultyError
from oplogd.decode.media_types import JSON
from oplogd.decode.pieces import at_once
from oplogd.errors import OplogError
from oplogd.ingest.appends import Appends
from oplogd.ingest.ignored import IgnoredMembers
from oplogd.model.consumer import ShardKey
from oplogd.model.message import Message
from oplogd.model.names import SYSTEM, TopicName, is_name
from oplogd.topics.codec.codec import PollRequest, reading_publish
from oplogd.topics.codec.json_codec import JsonCodec
from oplogd.topics.consumers.rules import parse_acknowledgement
from oplogd.topics.consumers.service import NamedConsumers
from oplogd.topics.poller import Poller
from oplogd.topics.publish import PublishService
from oplogd.topics.transactions.answers import encoding_commit
from oplogd.topics.transactions.begin import Begin, parsing_begin
from oplogd.topics.transactions.service import TransactionService
from oplogd.web.access.sides import ReadAuthenticator, WriteAuthenticator
from oplogd.web.http.bodies import BodyReader
from oplogd.web.http.plain import Answer, PlainRequest, Work, answered_by, header_lines
from oplogd.web.http.plain import Begin as BeginPlain
from oplogd.web.http.problem import Problem
from oplogd.web.v1.consumers import MAX_BYTES, covers
from oplogd.web.v1.requests import HEADERS, begun_by, committing_whole, poll_headers, require_begin

_PATH = re.compile(rb"/v1/namespaces/([^/%]+)/topics/([^/%]+)/([a-z]+)")
_TYPE = JSON.encode()
_POSITION = re.compile(rb"/v1/consumers/([A-Za-z0-9._-]{1,100})/position")
_ACKNOWLEDGED = Answer(204, header_lines(HEADERS, None))
_PUBLISHED = Answer(200, header_lines(HEADERS, b""))

_codec = JsonCodec()

# Begins to answer a request about a topic.
BeginOfTopic = Callable[[TopicName, PlainRequest], Work | None]


def find_of_topic(path: bytes, actions: Mapping[bytes, BeginOfTopic]) -> BeginPlain | None:
    """Return the endpoint of a topic's path by the action at its end, None without one."""
    parts = _PATH.fullmatch(path)
    if parts is None or not path.isascii() or (begin := actions.get(parts[3])) is None:
        return None
    name = TopicName(parts[1].decode(), parts[2].decode())
    if name.namespace == SYSTEM or not is_name(name.namespace) or not is_name(name.topic):
        return None
    return partial(begin, name)


class PlainMessages:
    """Publishes and polls by the short way."""

    def __init__(
        self,
        publisher: PublishService,
        poller: Poller,
        bodies: BodyReader,
        readers: ReadAuthenticator,
        writers: WriteAuthenticator,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._publisher = publisher
        self._poller = poller
        self._bodies = bodies
        self._readers = readers
        self._writers = writers
        self._is_stopping = is_stopping

    def publish(self, name: TopicName, request: PlainRequest) -> Work | None:
        if (
            request.headers.get(b"content-type") != _TYPE
            or self._is_stopping()
            or not self._bodies.takes_at_once(len(request.body))
            or (caller := self._writers.plain_caller(request)) is None
            or name not in caller.right.write
        ):
            return None
        publisher = self._publisher
        reading = reading_publish(
            _codec,
            request.body,
            lambda each: _codec.message(each, None),
            publisher.max_messages,
            is_brief=True,
        )
        try:
            pointer, messages = at_once(reading)
        except (OplogError, FaultyError):
            return None
        return answered_by(self._published(name, messages)) if pointer is None else None

    async def _published(self, name: TopicName, messages: list[Message]) -> Answer:
        await self._publisher.publish(name, messages)
        return _PUBLISHED

    def poll(self, name: TopicName, request: PlainRequest) -> Work | None:
        if (
            request.headers.get(b"content-type") != _TYPE
            or not self._bodies.takes_at_once(len(request.body), is_poll=True)
            or (caller := self._readers.plain_caller(request)) is None
            or name not in caller.right.read
        ):
            return None
        try:
            asked = at_once(_codec.decoding_poll(request.body))
        except OplogError:
            return None
        return answered_by(self._polled(name, asked)) if asked.snapshot is None else None

    async def _polled(self, name: TopicName, asked: PollRequest) -> Answer:
        answer = await self._poller.poll(name, asked)
        content = _codec.encode(answer.messages)
        return Answer(200, header_lines(poll_headers(answer), content, JSON), content)


class PlainPositions:
    """Takes acknowledgements of named consumers by the short way."""

    def __init__(
        self, consumers: NamedConsumers, bodies: BodyReader, readers: ReadAuthenticator
    ) -> None:
        self._consumers = consumers
        self._bodies = bodies
        self._readers = readers

    def find(self, path: bytes) -> BeginPlain | None:
        """Return the endpoint for a path, None if it is of no acknowledgement."""
        parts = _POSITION.fullmatch(path)
        return None if parts is None else partial(self.begin, parts[1].decode())

    def begin(self, name: str, request: PlainRequest) -> Work | None:
        """Begin to answer. Leaves the request to the app if its term is not known here."""
        if (
            request.headers.get(b"content-type") != _TYPE
            or len(request.body) > MAX_BYTES
            or not self._bodies.takes_at_once(len(request.body), is_poll=True)
            or (caller := self._readers.plain_caller(request)) is None
        ):
            return None
        try:
            asked = parse_acknowledgement(request.body)
        except OplogError:
            return None
        key = ShardKey(name, asked.shard)
        settings = self._consumers.readers.settings_of(key, asked.term)
        if settings is None or not covers(caller, settings):
            return None
        return answered_by(self._acknowledged(key, asked.term, asked.id))

    async def _acknowledged(self, key: ShardKey, term: int, id_: str) -> Answer:
        await self._consumers.acknowledge(key, term, id_)
        return _ACKNOWLEDGED


class PlainTransactions:
    """Commits whole transactions by the short way."""

    def __init__(
        self,
        service: TransactionService,
        ignored: IgnoredMembers,
        bodies: BodyReader,
        writers: WriteAuthenticator,
        appends: Appends,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._service = service
        self._ignored = ignored
        self._bodies = bodies
        self._writers = writers
        self._appends = appends
        self._is_stopping = is_stopping

    def begin(self, request: PlainRequest) -> Work | None:
        bodies = self._bodies
        if (
            request.headers.get(b"content-type") != _TYPE
            or self._is_stopping()
            or not bodies.takes_at_once(len(request.body))
            or (caller := self._writers.plain_caller(request)) is None
        ):
            return None
        unknown: list[bytes] = []
        most, arrival = self._service.limits.records, bodies.arrival()
        reading = parsing_begin(request.body, arrival, most, unknown.append, is_brief=True)
        try:
            asked = at_once(reading)
        except (OplogError, FaultyError):
            return None
        if asked.writing is None or unknown:
            return None
        try:
            require_begin(caller, asked)
        except Problem:
            return None
        return answered_by(self._committed(begun_by(caller, asked)))

    async def _committed(self, asked: Begin) -> Answer:
        commit = await committing_whole(self._service, self._appends, asked)
        self._ignored.by_sender({})
        content = at_once(encoding_commit(commit, is_named=True))
        return Answer(200, header_lines(HEADERS, content, JSON), content)
