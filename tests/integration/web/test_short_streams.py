"""Streams that a connection begins itself have the head, the refusals and the counts of the app's.

See ``test_short_way`` for requests with a body.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kits.agents.agent import Agent
from tests.kits.models.properties import EXAMPLES
from tests.kits.web.connection import RawConnection
from tests.kits.web.pair import PASSWORDS, Pair

_TOPIC = b"/v1/namespaces/shop/topics/a"
_STREAM = _TOPIC + b"/stream"
_LINES = b"Host: localhost\r\nAccept: text/event-stream\r\n"
_RIGHT = b"Authorization: Basic OnNlY3JldA==\r\n"

_METHODS = st.sampled_from([b"GET"] * 8 + [b"OPTIONS", b"PUT", b"get"])
_PATHS = st.sampled_from(
    [b"/", b"/ops", _STREAM] * 5
    + [
        b"//", b"/ops/", b"/%6fps", b"/ops%2F", b"http://localhost/ops", b"/OPS", b"*",
        _TOPIC + b"/poll", b"/" + _STREAM, _STREAM + b"/", _TOPIC + b"%2Fb/stream",
        b"/v1/namespaces/shop/topics/missing/stream", b"/v1/namespaces/./topics/../stream",
        b"/v1/namespaces/system/topics/oplog/stream", b"/v1/namespaces/system/topics/x/stream",
        b"/v1/namespaces/shop/topics/" + b"n" * 250 + b"/stream",
    ]
)  # fmt: skip
_EACH_QUERY = [
    b"", b"?", b"?types=video", b"?types=video,album&parents=user/ada", b"?types=", b"?type=video",
    b"?types=%76ideo", b"?types=a%2Cb", b"?types=a+b", b"?types=" + b"a," * 300, b"?parents=%ff",
    b"?parents=\xc3\xa4", b"?last_event_id=0", b"?last_event_id=x", b"?lastEventId=5", b"?since=5",
    b"?last_event_id=" + b"0" * 24, b"?last_event_id=" + b"0" * 40, b"?since=yesterday",
    b"?since=2026-01-01T00:00:00+01:00", b"?checkpoint=1", b"?checkpoint=2", b"?name=a", b"?name=*",
    b"?isolation=read_committed", b"?isolation=", b"?token=abc", b"?token=", b"?types=a#b", b"#a",
    b"?types=a?b", b"?a b", b"?types=a&types=b", b"?;", b"?=&&=",
]  # fmt: skip
_QUERIES = st.sampled_from(_EACH_QUERY)
_EACH_HEADER = [
    b"Accept: */*", b"Accept: text/html", b"Accept: text/event-stream;q=0", b"X-Other: 1",
    b"Accept: Text/Event-Stream, text/html", b"Last-Event-ID: 0", b"Last-Event-ID: 5",
    b"Last-Event-ID:", b"Last-Event-ID: x", b"Last-Event-ID: \xff", b"last-event-id: " + b"0" * 24,
    b"Last-Event-ID: " + b"0" * 40, b"Connection: close", b"Connection: keep-alive",
    b"Connection: Upgrade", b"Upgrade: websocket", b"Cookie: oplog=1", b"Cookie: a=b",
    b"Authorization: Basic Ondyb25n", b"Authorization: Bearer a", b"Content-Length: 0",
    b"Content-Length: 2\r\n\r\n{}", b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"Origin: http://evil.example", b"Sec-Fetch-Site: cross-site", b"Host: evil.example",
    b"X-Forwarded-For: 192.0.2.1", b"Expect: 100-continue", b"Cache-Control: no-cache",
]  # fmt: skip
_HEADERS = st.lists(
    st.sampled_from([each for each in _EACH_HEADER if b"\r\n" not in each]), max_size=3
)
_NEXT = b"GET /live HTTP/1.1\r\nHost: a\r\n\r\n"
# What follows in the same packet. After rubbish the agent waits for the client.
_BEHIND = st.sampled_from([b"", b"\r\n", _NEXT] * 9 + [b"rubbish"])


@pytest.fixture(
    scope="module",
    params=[(), PASSWORDS],
    ids=["open", "passwords"],
)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    with Pair(tmp_path_factory.mktemp("pair"), request.param) as pair:
        yield pair


def test_each_unusual_part_of_a_request_for_a_stream_brings_the_answer_of_the_app(
    pair: Pair,
) -> None:
    seen = set()
    for path in (b"/", b"/ops", _STREAM):
        for query in _EACH_QUERY:
            head = b"GET %s HTTP/1.1\r\n" % (path + query)
            seen.add(pair.open(head + _LINES + _RIGHT + b"\r\n").status)
        for header in _EACH_HEADER:
            end = b"" if b"\r\n\r\n" in header else b"\r\n\r\n"
            head = b"GET %s HTTP/1.1\r\nHost: localhost\r\n" % path
            right = b"" if header.startswith(b"Authorization") else _RIGHT
            accept = b"" if header.startswith(b"Accept") else b"Accept: text/event-stream\r\n"
            seen.add(pair.open(head + accept + right + header + end).status)
    assert {400, 406} <= seen
    short, long = pair.figures()
    assert short == long


@settings(max_examples=2 * EXAMPLES)
@given(_METHODS, _PATHS, _QUERIES, _HEADERS, st.booleans(), st.booleans(), _BEHIND)
def test_a_request_for_a_stream_gets_the_answer_of_the_app_whatever_it_holds(
    pair: Pair,
    method: bytes,
    path: bytes,
    query: bytes,
    headers: list[bytes],
    is_right: bool,
    is_split: bool,
    behind: bytes,
) -> None:
    lines = _LINES + _RIGHT * is_right + b"".join(each + b"\r\n" for each in headers)
    raw = b"%s %s HTTP/1.1\r\n%s\r\n" % (method, path + query, lines)
    parts = [raw[:20], raw[20:] + behind] if is_split else [raw + behind]
    pair.open(*parts)


def test_a_stream_that_the_store_does_not_begin_gets_the_answer_of_the_app(tmp_path: Path) -> None:
    with Pair(tmp_path, ()) as pair:
        for agent in ("Agent", "LongAgent"):
            for file in (tmp_path / agent).iterdir():
                file.rename(file.with_suffix(".gone" + file.suffix))
        for path in (b"/ops", b"/ops?last_event_id=0", _STREAM):
            seen = pair.open(b"GET %s HTTP/1.1\r\n%s\r\n" % (path, _LINES))
            assert (path, seen.status) == (path, 503)
        short, long = pair.figures()
        assert short == long
        assert short["consumers_refused"]["store"] == 2


@pytest.mark.parametrize(
    ("flag", "status"), [("--max-clients", 503), ("--max-clients-per-address", 429)]
)
def test_a_stream_beyond_a_limit_gets_the_answer_of_the_app(
    tmp_path: Path, flag: str, status: int
) -> None:
    with Pair(tmp_path, (flag, "1")) as pair:
        with ExitStack() as stack:
            for agent in pair.agents:
                stack.enter_context(agent.follow())
            for path in (b"/", b"/ops", _STREAM):
                seen = pair.open(b"GET %s HTTP/1.1\r\n%s\r\n" % (path, _LINES))
                assert (path, seen.status) == (path, status)
        short, long = pair.figures()
        assert short == long


def test_clients_that_go_before_their_stream_begins_leave_no_consumer(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        for _ in range(20):
            with RawConnection(agent) as connection:
                connection.send(b"GET /ops HTTP/1.1\r\n" + _LINES + b"\r\n")
        agent.wait_status(connections=20, clients=0)
        with agent.follow() as stream:
            assert stream.status == 200
            assert agent.status()["clients"] == 1
