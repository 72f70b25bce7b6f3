"""The stream of a topic."""

from fastapi import FastAPI, Request, Response

from oplogd.errors import TopicNotFoundError
from oplogd.model.names import OPLOG, TopicName
from oplogd.store.topics import Topic
from oplogd.stream.consumer import Consumer
from oplogd.topics.known import KnownTopics
from oplogd.topics.rights import Right, Rights
from oplogd.web.access.authentication import credentials
from oplogd.web.describe import topics as describe
from oplogd.web.oplog.stream import Streams
from oplogd.web.v1.requests import name_of, problems, require_known
from oplogd.web.v1.stream_request import isolation_of, parse_topic_request
from oplogd.web.v1.topics import TOPIC


def add_topic_stream(
    app: FastAPI, rights: Rights[Request], known: KnownTopics, streams: Streams
) -> None:
    hub = streams.hub

    @app.get(f"{TOPIC}/stream", **describe.STREAM)
    async def stream(request: Request) -> Response:
        name = name_of(request)
        streams.require_accepted(request, "messages")
        with hub.refusing(credentials(request)):
            rights.require(request, Right.READ, *name)
        if name == OPLOG:
            with hub.refusing("bad_request"):
                isolation_of(request.query_params)
            return await streams.operations(request)
        with problems():
            require_known(name)
            return await messages(request, name)

    async def messages(request: Request, name: TopicName) -> Response:
        with hub.refusing("bad_request"):
            asked = parse_topic_request(request.headers, request.query_params)
        topic = await known.look_up(name)

        async def connect(address: str) -> Consumer:
            async def connect_to(generation: Topic) -> Consumer:
                return await hub.connect_topic(
                    generation,
                    asked.position,
                    checkpoints=asked.checkpoints,
                    address=address,
                    name=asked.name,
                    isolation=asked.isolation,
                )

            try:
                return await connect_to(topic)
            except TopicNotFoundError:  # deleted since it was looked up
                return await connect_to(await known.find(name, other_than=topic))

        return await streams.answer(request, connect)
