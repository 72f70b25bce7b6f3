"""The stream of a topic."""

from functools import partial

from fastapi import FastAPI, Request, Response
from starlette.datastructures import Headers, QueryParams

from oplogd.decode.media_types import EVENT_STREAM
from oplogd.errors import TopicNotFoundError
from oplogd.model.names import OPLOG, TopicName
from oplogd.store.topics import Topic
from oplogd.stream.consumer import StreamConsumer
from oplogd.topics.known import KnownTopics
from oplogd.web.access.caller import Caller
from oplogd.web.describe.document import ERRORS, described
from oplogd.web.describe.parameters import (
    ISOLATION,
    OF_SHARD,
    OF_STREAM,
    OF_TOPIC,
    SHARD_TEXT,
)
from oplogd.web.http.headers import SHARD
from oplogd.web.http.plain import PlainRequest, Work
from oplogd.web.oplog.stream import Asked, Streams
from oplogd.web.v1.requests import TOPIC, name_of, require_known
from oplogd.web.v1.stream_request import TopicStreamRequest, isolation_of, parse_topic_request

_EXAMPLE = """id: 0000018bcfe56800000000000000000000000000
event: message
data: {"payload":"one"}

"""


class TopicStreams:
    """Answers requests with streams of topics."""

    def __init__(self, known: KnownTopics, streams: Streams) -> None:
        self._known = known
        self._streams = streams

    async def answer(self, request: Request) -> Response:
        """Answer a request. Raises Problem and OplogError."""
        streams, name = self._streams, name_of(request)
        streams.require_accepted(request, "messages")
        caller = await streams.reader_of(request, name)
        if name == OPLOG:
            with streams.hub.refusing("bad_request"):
                isolation_of(request.query_params)
            return await streams.operations(request, caller)
        require_known(name)
        with streams.hub.refusing("bad_request"):
            asked = parse_topic_request(request.headers, request.query_params)
        topic = await self._known.look_up(name)
        connect = partial(self._connect, caller, topic, asked)
        return await streams.answer(request, caller, connect, asked.shard)

    def begin(self, name: TopicName, request: PlainRequest) -> Work | None:
        """Begin to answer by the short way."""

        def parse(caller: Caller, headers: Headers, query: QueryParams) -> Asked:
            asked = parse_topic_request(headers, query)

            async def connect(address: str) -> StreamConsumer:
                topic = await self._known.look_up(name)
                return await self._connect(caller, topic, asked, address)

            return Asked(connect, asked.shard)

        return self._streams.begin_plain(request, name, parse)

    async def _connect(
        self, caller: Caller, topic: Topic, asked: TopicStreamRequest, address: str
    ) -> StreamConsumer:
        connect_to = partial(
            self._streams.hub.connect_topic,
            position=asked.position,
            checkpoints=asked.checkpoints,
            address=address,
            name=caller.named(asked.name),
            isolation=asked.isolation,
            shard=asked.shard,
            pass_=caller.pass_,
        )
        try:
            return await connect_to(topic)
        except TopicNotFoundError:  # deleted since it was looked up
            return await connect_to(await self._known.find(topic.name, other_than=topic))


def add_topic_stream(app: FastAPI, topic_streams: TopicStreams) -> None:
    @app.get(f"{TOPIC}/stream")
    @described(
        "topics",
        *(*ERRORS, 404, 406, 409),
        answer={EVENT_STREAM: _EXAMPLE},
        headers={SHARD: SHARD_TEXT},
        asks={**OF_TOPIC, **OF_STREAM, **ISOLATION, **OF_SHARD},
    )
    async def follow_topic(request: Request) -> Response:
        """Follow the stream of a topic.

        Requires `Accept: text/event-stream`. The stream starts with the next message, unless
        Last-Event-ID, last_event_id or since gives a position. The position `0` starts with the
        oldest message. If messages after the position are gone, the stream sends `reset` and starts
        with the oldest message. The stream of a deleted topic ends. The stream of `system/oplog` is
        that of `/ops`. If the agent is stopping, the stream ends at once.
        """
        return await topic_streams.answer(request)
