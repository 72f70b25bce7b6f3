"""The endpoints of the short way for streams."""

from collections.abc import Mapping
from typing import Any

import pytest

from oplogd.clock import SYSTEM
from oplogd.errors import TopicNotFoundError
from oplogd.model.names import TopicName
from oplogd.stream.passes import Pass
from oplogd.stream.refused import RefusedConsumers
from oplogd.stream.ring.filters import Filter
from oplogd.web.access.caller import Caller
from oplogd.web.access.right_bodies import right_of
from oplogd.web.access.sides import ReadAuthenticator
from oplogd.web.http.plain import PlainRequest
from oplogd.web.oplog.stream import Streams
from oplogd.web.v1.stream import TopicStreams
from tests.kits.web.keepers import keeper_of

RIGHT, WRONG = b"Basic OnNlY3JldA==", b"Basic Ondyb25n"
NAME = TopicName("shop", "a")


def plain(
    query: bytes = b"",
    headers: Mapping[bytes, bytes] | None = None,
    address: str = "192.0.2.1",
) -> PlainRequest:
    given = {b"accept": b"text/event-stream"} | dict(headers or {})
    return PlainRequest(given, bytearray(), address, 5, query)


class FakeTopic:
    def __init__(self, log: int) -> None:
        self.name = NAME
        self.log = log


class Bench:
    """Stands for the hub, the known topics and the consumer. The first ``gone`` topics are gone."""

    def __init__(self, password: str | None = None, gone: int = 0) -> None:
        self.is_stopping = False
        self.refused = RefusedConsumers()
        self.gone = gone
        self.asked: list[str] = []
        self.connected: list[dict[str, Any]] = []
        self.ended = 0
        hub: Any = self
        self.readers = ReadAuthenticator(keeper_of(password), (), SYSTEM)
        self.streams = Streams(hub, self.readers, lambda: self.is_stopping, 10)
        self.topics = TopicStreams(hub, self.streams)

    async def connect(self, position: object, filter_: object, **given: Any) -> "Bench":
        self.connected.append({"position": position, "filter": filter_, **given})
        return self

    async def connect_topic(self, topic: FakeTopic, **given: Any) -> "Bench":
        if topic.log < self.gone:
            raise TopicNotFoundError("gone")
        self.connected.append({"log": topic.log, **given})
        return self

    def end(self) -> None:
        self.ended += 1

    async def look_up(self, _: TopicName) -> FakeTopic:
        self.asked.append("look up")
        return FakeTopic(0)

    async def find(self, _: TopicName, other_than: FakeTopic) -> FakeTopic:
        self.asked.append(f"find other than {other_than.log}")
        return FakeTopic(1)

    def leaves(self, request: PlainRequest) -> bool:
        """Return whether both kinds of streams leave a request, and check that none is counted."""
        works = (self.streams.begin(request), self.topics.begin(NAME, request))
        assert self.refused == RefusedConsumers()
        assert self.readers.refused == 0
        assert len({work is None for work in works}) == 1
        return works[0] is None


async def test_streams_begin_with_what_was_asked_at_the_address_of_the_client() -> None:
    bench = Bench()
    request = plain(b"checkpoint=1&name=n", {b"last-event-id": b"5"})
    work = bench.streams.begin(request)
    assert work is not None
    await work.done
    answer = work.answer()
    (asked,) = bench.connected
    assert (asked["address"], asked["name"], asked["checkpoints"]) == ("192.0.2.1:5", "n", True)
    assert asked["position"].ms == 5
    assert (answer.status, b"last-event-id: 5\r\n" in answer.lines) == (200, True)
    assert answer.stream is not None


@pytest.mark.parametrize(
    "request_",
    [
        plain(b"checkpoint=2"),
        plain(b"name=*"),
        plain(headers={b"last-event-id": b"x"}),
        plain(headers={b"accept": b"text/html"}),
        plain(headers={b"accept": b"text/event-stream;q=0"}),
        plain(address=""),
    ],
)
async def test_what_would_be_refused_is_left(request_: PlainRequest) -> None:
    assert Bench().leaves(request_)


async def test_streams_that_end_at_once_are_left() -> None:
    bench = Bench()
    bench.is_stopping = True
    assert bench.leaves(plain())


async def test_only_the_right_password_is_admitted() -> None:
    for given in ({}, {b"authorization": WRONG}, {b"authorization": b"Bearer a"}):
        assert Bench("secret").leaves(plain(headers=given))
    assert not Bench("secret").leaves(plain(headers={b"authorization": RIGHT}))


@pytest.mark.parametrize("is_valid", [True, False])
async def test_streams_have_the_right_and_the_pass_of_their_client(
    monkeypatch: pytest.MonkeyPatch, *, is_valid: bool
) -> None:
    right = right_of({"read": ["shop/a", "system/oplog"], "types": ["video"]})
    caller = Caller("sub:ada", right, "credential", 100.0, 60.0)
    monkeypatch.setattr(ReadAuthenticator, "plain_caller", lambda *_: caller)
    monkeypatch.setattr(ReadAuthenticator, "is_valid", lambda *_: is_valid)
    bench = Bench()
    for work in (bench.streams.begin(plain()), bench.topics.begin(NAME, plain())):
        assert work is not None
        await work.done
    operations, topic = bench.connected
    for asked in (operations, topic):
        assert (asked["pass_"], asked["name"]) == (Pass("credential", 100.0, 60.0), "ada")
    assert operations["filter"] == Filter(types=frozenset({"video"}))
    assert bench.ended == (0 if is_valid else 2), "a credential that went meanwhile"


async def test_the_stream_of_a_topic_that_may_not_be_read_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caller = Caller("user:ada", right_of({"read": ["shop/b"], "write": ["*"], "manage": ["*"]}))
    monkeypatch.setattr(ReadAuthenticator, "plain_caller", lambda *_: caller)
    assert Bench().leaves(plain())


@pytest.mark.parametrize(
    ("gone", "asked"), [(0, ["look up"]), (1, ["look up", "find other than 0"])]
)
async def test_a_topic_is_looked_up_and_once_more_if_it_has_gone(
    gone: int, asked: list[str]
) -> None:
    bench = Bench(gone=gone)
    work = bench.topics.begin(NAME, plain())
    assert work is not None
    await work.done
    assert (bench.asked, [each["log"] for each in bench.connected]) == (asked, [gone])


async def test_a_topic_that_does_not_come_back_is_an_error_of_the_work() -> None:
    work = Bench(gone=2).topics.begin(NAME, plain())
    assert work is not None
    with pytest.raises(TopicNotFoundError):
        await work.done
