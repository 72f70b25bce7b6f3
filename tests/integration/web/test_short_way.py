"""Requests that a connection answers itself get the answers that the app would give."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kits.agents.agent import Agent, write_lock
from tests.kits.models.properties import EXAMPLES
from tests.kits.web.connection import RawConnection, length
from tests.kits.web.pair import PASSWORDS, Pair

_TOPIC = b"/v1/namespaces/shop/topics/a"
_PLAIN = b"POST /ops HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
_ONE = b'{"event":"insert","type":"video","id":"x1"}'
_WHOLE = b'{"records":[{"topic":"shop/a","payload":"a"}]}'

_METHODS = st.sampled_from([b"POST"] * 6 + [b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"post"])
_PATHS = st.sampled_from(
    [b"/", b"/ops", b"/v1/txns", _TOPIC + b"/publish", _TOPIC + b"/poll"] * 6
    + [
        b"//", b"/ops/", b"/ops?", b"/ops?ttl=5", b"/%6fps", b"/ops%2F", b"/ops#a", b"*",
        b"http://localhost/ops", b"/OPS", b"/opt", _TOPIC + b"/publish?ttl=5",
        _TOPIC + b"%2Fb/publish", b"/" + _TOPIC + b"/poll", _TOPIC + b"/poll/",
        b"/v1/namespaces/shop/topics/missing/publish", b"/v1/namespaces/shop/topics/missing/poll",
        b"/v1/namespaces/system/topics/oplog/publish", b"/v1/namespaces/system/topics/oplog/poll",
        b"/v1/namespaces/./topics/../poll", b"/v1/namespaces/shop/topics/a b/poll",
        b"/v1/namespaces/shop/topics/" + b"n" * 250 + b"/publish",
    ]
)  # fmt: skip
_TYPES = st.sampled_from(
    [b"Content-Type: application/json"] * 8
    + [
        b"Content-Type: application/x-ndjson", b"content-type: Application/JSON",
        b"Content-Type: application/json; charset=utf-8", b"Content-Type: text/plain",
        b"Content-Type: application/vnd.avro", b"X-Nothing: 1",
    ]
)  # fmt: skip
_EACH_HEADER = (
        [
            b"Accept: */*", b"Accept: text/event-stream", b"User-Agent: test", b"X-Other: 1",
            b"Accept-Encoding: gzip", b"Connection: keep-alive", b"Connection: close",
            b"Connection: Upgrade, keep-alive", b"Upgrade: h2c", b"Host: evil.example",
            b"Origin: http://evil.example", b"Origin: http://localhost", b"Sec-Fetch-Site: none",
            b"Authorization: Basic OnNlY3JldA==", b"Authorization: basic  OnNlY3JldA==",
            b"Authorization: Basic Ondyb25n", b"Authorization: Basic !", b"Authorization: Bearer a",
            b"Cookie: oplog=1", b"Oplog-Lease: a:1", b"Content-Encoding: identity",
            b"Content-Encoding: gzip", b"Content-Encoding: br", b"Expect: 100-continue",
            b"X-Forwarded-For: 192.0.2.1", b"Content-Type: application/json", b"X-Request-Id: 1",
        ]
)  # fmt: skip
_HEADERS = st.lists(st.sampled_from(_EACH_HEADER), max_size=3)
_EACH_BODY = (
    [_ONE] * 4
    + [b'{"messages":["a"]}', b"{}"] * 3
    + [
        b"", b" ", b"[]", b"null", b"[" + _ONE + b"]", b"[" + b",".join([_ONE] * 6) + b"]",
        _ONE + b"\n" + _ONE, b"\n" + _ONE, _ONE[:-1], b"\xef\xbb\xbf" + _ONE, b"\xff",
        _ONE[:-1] + b',"more":1}', _ONE[:-1] + b',"timestamp":"2026-01-01T00:00:00Z"}',
        _ONE[:-1] + b',"timestamp":"yesterday"}', _ONE[:-1] + b',"parents":[""]}',
        _ONE.replace(b"insert", b"INSERT"), _ONE.replace(b"insert", b"upsert"),
        _ONE.replace(b"x1", b"x" * 1_500), _ONE.replace(b"x1", b"\\u0000"), b" " * 17_000 + _ONE,
        b'{"messages":[]}', b'{"messages":[{"payload":"a","key":"k"}]}', b'{"messages":[1]}',
        b'{"messages":[{"headers":[["a","b"]]}]}', b'{"messages":[{"headers":[["a\xff","b"]]}]}',
        b'{"messages":["a",1]}', b"1\n" * 3_000, b'{"messages":[' + b"1," * 3_000 + b"1]}",
        b"[" + b"[]," * 3_000 + b"[]]", b'{"messages":["a"],"transactionWritePointer":5}',
        b'{"messages":["a"],"more":1}',
        b'{"messages":["%s"]}' % (b"m" * 17_000), b'{"limit":0}', b'{"limit":1}',
        b'{"startFrom":0}', b'{"startFrom":"00"}', b'{"isolation":"read_committed"}',
        b'{"transaction":null}', b"{" * 2_000, _WHOLE, _WHOLE[:-1] + b',"topic":"shop/a"}',
        _WHOLE[:-1] + b',"once":{"key":"k","number":5}}', _WHOLE[:-1] + b',"group":"a b"}',
        _WHOLE[:-1] + b',"more":1}', _WHOLE.replace(b"shop/a", b"shop/missing"),
        _WHOLE.replace(b'"a"', b"1"), _WHOLE.replace(b'"a"', b'"%s"' % (b"w" * 17_000)),
        b'{"records":[]}', b'{"records":[{"topic":"system/oplog","payload":%s}]}' % _ONE,
        b'{"records":[{"topic":"system/oplog","payload":%s,"more":1}}]}' % _ONE[:-1],
    ]
)  # fmt: skip
_BODIES = st.sampled_from(_EACH_BODY)

# What follows in the same packet.
_BEHIND = st.sampled_from(
    [b""] * 4
    + [
        _PLAIN + length(_ONE) + _ONE, _PLAIN + b"X-Other: 1\r\n" + length(_ONE) + _ONE,
        b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n", b"rubbish\r\n\r\n", b"POST /o", b"\r\n",
        _PLAIN,
    ]
)  # fmt: skip


class ShortAgent(Agent):
    """An agent whose app fails for the requests that the short way answers."""

    program = (
        "-c",
        "from oplogd.web.oplog import ingest\n"
        "from oplogd.web.v1 import messages, stream, transactions\n"
        "ingest.Ingest.answer = messages.name_of = transactions.require_json = None\n"
        "stream.Streams.answer = None\n"
        "from oplogd.cli import main\n"
        "main()",
    )


@pytest.fixture(
    scope="module",
    params=[(), PASSWORDS, ("--max-queued-events", "5", "--max-body-size", "1KB")],
    ids=["open", "passwords", "small"],
)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    with Pair(tmp_path_factory.mktemp("pair"), request.param) as pair:
        yield pair


_RIGHT = b"Authorization: Basic OnNlY3JldA==\r\n"


def test_each_unusual_part_of_a_request_brings_the_answer_of_the_app(pair: Pair) -> None:
    bodies = {
        b"/ops": _ONE,
        _TOPIC + b"/publish": b'{"messages":["a"]}',
        _TOPIC + b"/poll": b"{}",
        b"/v1/txns": _WHOLE,
    }
    seen = set()
    for path, usual in bodies.items():
        head = _PLAIN.replace(b"/ops", path)
        for body in _EACH_BODY:
            seen.add(pair.ask(head + _RIGHT + length(body) + body).status)
        for header in _EACH_HEADER:
            right = b"" if header.startswith(b"Authorization") else _RIGHT
            seen.add(pair.ask(head + right + header + b"\r\n" + length(usual) + usual).status)
    assert {200, 204, 400, 415} <= seen
    short, long = pair.figures()
    assert short == long


@settings(max_examples=2 * EXAMPLES)
@given(_METHODS, _PATHS, _TYPES, _HEADERS, _BODIES, st.sampled_from([0, 0, 0, 1, 2]), _BEHIND)
def test_a_request_gets_the_answer_of_the_app_whatever_it_holds(
    pair: Pair,
    method: bytes,
    path: bytes,
    type_: bytes,
    headers: list[bytes],
    body: bytes,
    packets: int,
    behind: bytes,
) -> None:
    lines = b"".join(each + b"\r\n" for each in (b"Host: localhost", type_, *headers))
    raw = b"%s %s HTTP/1.1\r\n%s" % (method, path, lines) + length(body) + body
    end = len(raw) - len(body)
    parts = {0: [raw + behind], 1: [raw[:end], raw[end:]], 2: [raw[:-1], raw[-1:]]}[packets]
    pair.ask(*filter(None, parts))
    short, long = pair.figures()
    assert short == long


def test_the_app_is_not_asked_for_a_plain_request(tmp_path: Path) -> None:
    paths = {
        b"/": (_ONE, 204),
        b"/ops": (b"[" + _ONE + b"]", 200),
        _TOPIC + b"/publish": (b'{"messages":["a"]}', 200),
        _TOPIC + b"/poll": (b"{}", 200),
        b"/v1/txns": (_WHOLE, 200),
    }
    with ShortAgent(tmp_path) as agent:
        assert agent.request("PUT", "/v1/namespaces/shop/topics/a", {}).status == 200
        for path, (body, status) in paths.items():
            head = _PLAIN.replace(b"/ops", path)
            for more, expected in ((b"", status), (b"X-Other: 1\r\n", 500)):
                with RawConnection(agent) as connection:
                    reply = connection.send(head + more + length(body) + body).reply()
                    assert (path, more, reply.status) == (path, more, expected)


@pytest.mark.parametrize(
    "path", ["/", "/ops?types=video&last_event_id=0", "/v1/namespaces/shop/topics/a/stream"]
)
def test_the_app_is_not_asked_for_a_plain_stream(tmp_path: Path, path: str) -> None:
    head = b"GET %s HTTP/1.1\r\nAccept: text/event-stream\r\n" % path.encode()
    with ShortAgent(tmp_path) as agent:
        assert agent.request("PUT", "/v1/namespaces/shop/topics/a", {}).status == 200
        for more, expected in ((b"", 200), (b"X-Other: 1\r\n", 500)):
            with RawConnection(agent) as connection:
                reply = connection.send(head + b"Host: a\r\n" + more + b"\r\n").reply()
                assert (more, reply.status) == (more, expected)


def test_requests_that_the_store_does_not_take_get_the_answer_of_the_app(tmp_path: Path) -> None:
    with Pair(tmp_path, ()) as pair:
        for agent in ("Agent", "LongAgent"):
            for file in (tmp_path / agent).iterdir():
                file.rename(file.with_suffix(".gone" + file.suffix))
        for path, body in (
            (b"/ops", _ONE),
            (b"/ops", b"[" + _ONE + b"]"),
            (_TOPIC + b"/publish", b'{"messages":["a"]}'),
            (_TOPIC + b"/poll", b'{"startFrom":0}'),
            (b"/v1/txns", _WHOLE),
            (b"/v1/txns", _WHOLE[:-1] + b',"once":{"key":"k","number":5}}'),
        ):
            seen = pair.ask(_PLAIN.replace(b"/ops", path) + length(body) + body)
            assert (path, seen.status) in [(path, 503), (_TOPIC + b"/poll", 200)]
        short, long = pair.figures()
        assert short == long


def test_a_full_queue_refuses_what_waits_behind_it(tmp_path: Path) -> None:
    with Agent(tmp_path, "--max-queued-events", "2") as agent:
        with ExitStack() as stack:
            waiting = [stack.enter_context(RawConnection(agent)) for _ in range(2)]
            with write_lock(tmp_path):
                for connection in waiting:
                    connection.send(_PLAIN + length(_ONE) + _ONE)
                agent.wait_status(queue_size=2)
                with RawConnection(agent) as third:
                    refused = third.send(_PLAIN + length(_ONE) + _ONE).reply()
                    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
            assert [connection.reply().status for connection in waiting] == [204, 204]
        status = agent.status()
        assert (status["events_received"], status["events_ingested"]) == (3, 2)
        assert status["events_discarded"] == 1
