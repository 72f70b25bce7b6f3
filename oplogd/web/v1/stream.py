"""The stream of a topic."""

from functools import partial

from fastapi import FastAPI, Request, Response

from oplogd.decode.media_types import EVENT_STREAM
from oplogd.errors import TopicNotFoundError
from oplogd.model.names import OPLOG, TopicName
from oplogd.stream.consumer import StreamConsumer
from oplogd.topics.known import KnownTopics
from oplogd.topics.rights import Right, Rights
from oplogd.web.access.authentication import credentials
from oplogd.web.describe.document import READ_ERRORS, described
from oplogd.web.describe.parameters import ISOLATION, OF_STREAM, OF_TOPIC
from oplogd.web.oplog.stream import Streams
from oplogd.web.v1.requests import TOPIC, name_of, require_known
from oplogd.web.v1.stream_request import isolation_of, parse_topic_request

_EXAMPLE = """id: 0000018bcfe56800000000000000000000000000
event: message
data: {"payload":"one"}

"""


def add_topic_stream(
    app: FastAPI, rights: Rights[Request], known: KnownTopics, streams: Streams
) -> None:
    hub = streams.hub

    @app.get(f"{TOPIC}/stream")
    @described(
        "topics",
        *(*READ_ERRORS, 404, 406),
        answer={EVENT_STREAM: _EXAMPLE},
        asks={**OF_TOPIC, **OF_STREAM, **ISOLATION},
    )
    async def follow_topic(request: Request) -> Response:
        """Follow the stream of a topic.

        Requires `Accept: text/event-stream`. The stream starts with the next message, unless
        Last-Event-ID, last_event_id or since gives a position. The position `0` starts with the
        oldest message. If messages after the position are gone, the stream sends `reset` and starts
        with the oldest message. The stream of a deleted topic ends. The stream of `system/oplog` is
        that of `/ops`. If the agent is stopping, the stream ends at once.
        """
        name = name_of(request)
        streams.require_accepted(request, "messages")
        with hub.refusing(credentials(request)):
            rights.require(request, Right.READ, *name)
        if name == OPLOG:
            with hub.refusing("bad_request"):
                isolation_of(request.query_params)
            return await streams.operations(request)
        require_known(name)
        return await messages(request, name)

    async def messages(request: Request, name: TopicName) -> Response:
        with hub.refusing("bad_request"):
            asked = parse_topic_request(request.headers, request.query_params)
        topic = await known.look_up(name)

        connect_to = partial(
            hub.connect_topic,
            position=asked.position,
            checkpoints=asked.checkpoints,
            name=asked.name,
            isolation=asked.isolation,
        )

        async def connect(address: str) -> StreamConsumer:
            try:
                return await connect_to(topic, address=address)
            except TopicNotFoundError:  # deleted since it was looked up
                again = await known.find(name, other_than=topic)
                return await connect_to(again, address=address)

        return await streams.answer(request, connect)
