"""The parts common to endpoints under /v1."""

from typing import cast

import httpx
from fastapi import Depends, FastAPI, Request

from oplogd.ingest.appends import Appends
from oplogd.model.names import TopicName
from oplogd.web.access.caller import ANY_WRITER, Caller
from oplogd.web.access.sides import ReadAuthenticator, WriteAuthenticator
from oplogd.web.http.bodies import BodyReader
from oplogd.web.v1.requests import TOPIC, Api


class _Writers:
    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def caller(self, request: Request) -> Caller:
        self.requests.append(request)
        return ANY_WRITER


async def test_a_request_is_authenticated_once_for_its_client_and_its_topic() -> None:
    writers = _Writers()
    api = Api(
        cast(ReadAuthenticator, None),
        cast(WriteAuthenticator, writers),
        cast(BodyReader, None),
        cast(Appends, None),
        lambda: False,
    )
    app = FastAPI()

    @app.put(TOPIC)
    async def endpoint(
        caller: Caller = Depends(api.writer),
        name: TopicName = Depends(api.manageable),
    ) -> str:
        assert caller == ANY_WRITER
        return str(name)

    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://agent") as client:
        answer = await client.put("/v1/namespaces/shop/topics/orders")
    assert (answer.status_code, answer.json()) == (200, "shop/orders")
    assert len(writers.requests) == 1
