"""The parts common to endpoints under /v1."""

from typing import cast

import httpx
import pytest
from fastapi import Depends, FastAPI, Request

from oplogd.ingest.appends import Appends
from oplogd.model.names import TopicName
from oplogd.web.access.caller import ANY_WRITER, Caller
from oplogd.web.access.right_bodies import right_of
from oplogd.web.access.rights import READ_ALL, Right
from oplogd.web.access.sides import ReadAuthenticator, WriteAuthenticator
from oplogd.web.http.bodies import BodyReader
from oplogd.web.http.problem import Problem
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


class _Client:
    def __init__(self, *members: str, right: Right | None = None) -> None:
        self.right = right or right_of({each: ["shop/orders"] for each in members})

    async def caller(self, _: Request) -> Caller:
        return Caller("user:ada", self.right)


@pytest.mark.parametrize(
    ("topic", "side", "members"),
    [
        ("readable", "reading", {"read"}),
        ("writable", "writing", {"write"}),
        ("manageable", "writing", {"manage"}),
        ("visible", "reading", {"read", "write", "manage"}),
        ("with_pointers", "reading", {"manage"}),
    ],
)
async def test_a_topic_needs_the_right_of_its_endpoint(
    topic: str, side: str, members: set[str]
) -> None:
    every = ("read", "write", "manage")
    for member in every:
        asked, other = _Client(member), _Client(*every) if member not in members else _Client()
        reader, writer = (asked, other) if side == "reading" else (other, asked)
        if member in members:
            assert await _asked(topic, reader, writer) == "shop/orders"
        else:
            with pytest.raises(Problem, match=r"is missing$"):
                await _asked(topic, reader, writer)


async def test_the_password_for_reading_shows_pointers() -> None:
    assert await _asked("with_pointers", _Client(right=READ_ALL), _Client()) == "shop/orders"


async def _asked(topic: str, reader: _Client, writer: _Client) -> object:
    """Return the answer of an endpoint that depends on this topic."""
    api = Api(
        cast(ReadAuthenticator, reader),
        cast(WriteAuthenticator, writer),
        cast(BodyReader, None),
        cast(Appends, None),
        lambda: False,
    )
    needed = getattr(api, topic)
    app = FastAPI()

    @app.get(TOPIC)
    async def endpoint(name: TopicName = Depends(needed)) -> str:
        return str(name)

    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://agent") as client:
        return (await client.get("/v1/namespaces/shop/topics/orders")).json()
