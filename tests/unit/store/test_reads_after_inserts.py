"""Reads of MongoDB after an insert: a fail-over hides nothing of what the insert saw or wrote."""

from collections.abc import Mapping
from typing import Any, Self, cast

import pytest
from bson.timestamp import Timestamp
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import BulkWriteError

from oplogd.store.mongo.link.inserts import AskTime, insert_until_taken
from oplogd.store.mongo.link.layout import Document
from oplogd.store.mongo.link.link import Link

TAKEN = {"writeErrors": [{"index": 1, "code": 11000}], "writeConcernErrors": []}


class StubSession:
    """``advanced``: the times from which a read of this session must begin."""

    def __init__(self) -> None:
        self.operation_time: Timestamp | None = None
        self.cluster_time: Mapping[str, Any] | None = None
        self.advanced: list[object] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    def answer(self, seconds: int) -> None:
        self.operation_time = Timestamp(seconds, 1)
        self.cluster_time = {"clusterTime": Timestamp(seconds, 9)}

    def advance_operation_time(self, time: Timestamp) -> None:
        self.advanced.append(time)

    def advance_cluster_time(self, time: Mapping[str, Any]) -> None:
        self.advanced.append(time)


class StubCollection:
    """The server answers each insert at ``seconds``."""

    def __init__(self, seconds: int, error: BulkWriteError | None = None) -> None:
        self._seconds = seconds
        self._error = error

    async def insert_many(self, _: object, *, ordered: bool, session: StubSession) -> None:
        assert ordered
        session.answer(self._seconds)
        if self._error is not None:
            raise self._error


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> Link:
    link = Link("mongodb://localhost")
    monkeypatch.setattr(link, "session", lambda: cast("AsyncClientSession", StubSession()))
    return link


async def insert(link: Link, seconds: int, error: BulkWriteError | None = None) -> int:
    """Return the number of documents that landed."""
    collection = cast("AsyncCollection[Document]", StubCollection(seconds, error))
    documents: list[Document] = [{"_id": 1}, {"_id": 2}]
    landing = await insert_until_taken(link, collection, documents, AskTime(0.0), 60.0, 60.0)
    return landing.number


async def next_read(link: Link) -> list[object]:
    async with link.reading() as session:
        return cast("StubSession", session).advanced


def from_time(seconds: int) -> list[object]:
    return [{"clusterTime": Timestamp(seconds, 9)}, Timestamp(seconds, 1)]


async def test_a_read_after_an_insert_begins_at_the_time_of_the_insert(link: Link) -> None:
    assert await next_read(link) == []
    assert await insert(link, 100) == 2
    assert await next_read(link) == from_time(100)


async def test_a_read_after_a_part_of_an_insert_begins_at_its_time(link: Link) -> None:
    assert await insert(link, 100, BulkWriteError(TAKEN)) == 1
    assert await next_read(link) == from_time(100)


async def test_an_answer_that_comes_late_takes_nothing_back(link: Link) -> None:
    await insert(link, 100)
    await insert(link, 99)
    assert await next_read(link) == from_time(100)


async def test_a_read_begins_where_the_read_before_ended(link: Link) -> None:
    async with link.reading() as session:
        cast("StubSession", session).answer(100)
    assert await next_read(link) == from_time(100)
