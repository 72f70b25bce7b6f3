"""A producer survives answers of other servers, invalid answers, and missing answers."""

import asyncio
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from oplogc import FlushError
from tests.kits.clients.producers import Producers
from tests.kits.contract.wire import wait_until
from tests.kits.servers.scripted import ScriptedServer, answer
from tests.kits.servers.server import Handler, Server

FAST = (0.01, 0.05)
OK = answer("200 OK", "%COUNT%")


@pytest.mark.parametrize(
    "status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"]
)
def test_a_redirect_is_told_and_not_followed(produce: Producers, status: str) -> None:
    with ScriptedServer([OK]) as elsewhere:
        redirect = answer(status, "", f"Location: {elsewhere.url}/ops?token=geheim")
        with ScriptedServer([redirect]) as server:
            producer = produce(server.url)
            producer.send("insert", "video", "a")
            with pytest.raises(FlushError) as failed:
                producer.close(None)
        assert f"redirects to {elsewhere.url}/ops: give that address" in str(failed.value)
        assert elsewhere.bodies == []
        assert "geheim" not in str(failed.value)


@pytest.mark.parametrize(
    "raw",
    [
        answer("200 OK", "<html>"),
        answer("200 OK", '{"ingested": NaN}'),
        answer("200 OK", "[" * 100_000),
        answer("200 OK", '{"ingested": 2}'),
        answer("200 OK", " " * 2_000_000),
        answer("202 Accepted", '{"ingested": 1}'),
        b"HTTP/1.1 204 No Content\r\n\r\n",
        answer("200 OK", ""),
    ],
)
def test_a_stranger_that_says_yes_gets_nothing_counted(produce: Producers, raw: bytes) -> None:
    with ScriptedServer([raw]) as server:
        producer = produce(server.url)
        producer.send("insert", "video", "a")
        with pytest.raises(FlushError, match="is no agent"):
            producer.close(None)
        assert (producer.counters.delivered, producer.counters.buffered) == (0, 1)


_LINES = [float("inf"), 10**400, 0, "1", None]


@pytest.mark.parametrize(
    "body",
    [
        *(json.dumps({"errors": [{"line": line}]}) for line in _LINES),
        "[" * 100_000,
        '{"errors": 1}',
        '"detail"',
        "[1]",
    ],
    ids=lambda body: body[:40],
)
def test_no_answer_ends_the_sender(produce: Producers, body: str) -> None:
    with (
        ScriptedServer([answer("400 Bad Request", body), OK]) as server,
        produce(server.url, backoff=FAST) as producer,
    ):
        producer.send("insert", "video", "a")
        assert wait_until(lambda: producer.counters.delivered == 1)
        assert producer.counters.retried == 1


def test_no_error_ends_the_sender(produce: Producers, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected error, like an error of a resolver or a transport."""
    calls = 0

    def judge(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise UnicodeError("label empty or too long")
        monkeypatch.undo()
        from oplogc.producers.verdict import Delivered

        return Delivered()

    monkeypatch.setattr("oplogc.producers.sender.judge", judge)
    with ScriptedServer([OK]) as server, produce(server.url, backoff=FAST) as producer:
        producer.send("insert", "video", "a")
        producer.flush()
        assert calls == 2


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("HTTP_PROXY", "socks5://u:geheim@127.0.0.1:1", "socksio"),
        ("HTTP_PROXY", "gopher://u:geheim@127.0.0.1:1", "the address of a proxy is not usable"),
        ("HTTP_PROXY", "http://u:geheim@127.0.0.1:port", "the address of a proxy is not usable"),
        ("SSL_CERT_FILE", "/nowhere", "No such file"),
    ],
)
def test_an_environment_without_a_way_to_the_agent_does_not_end_the_sender(
    produce: Producers, monkeypatch: pytest.MonkeyPatch, name: str, value: str, reason: str
) -> None:
    with ScriptedServer([OK]) as server:
        monkeypatch.setenv(name, value)
        producer = produce(server.url, backoff=FAST)
        producer.send("insert", "video", "a")
        assert wait_until(lambda: producer.counters.retried > 2)
        with pytest.raises(FlushError, match=reason) as raised:
            producer.flush(0)
        assert name in str(raised.value)
        assert "geheim" not in repr(raised.value)
        monkeypatch.delenv(name)
        producer.close()
        assert producer.counters.delivered == 1


def _drip(head: bytes, drop: bytes, connections: list[int]) -> Handler:
    """Return a server whose answer never ends and comes in small pieces."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        while True:
            await writer.drain()
            await asyncio.sleep(0.01)
            writer.write(drop)

    return handle


@pytest.mark.parametrize(
    ("head", "drop"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", b"a"),
        (b"HTTP/1.1 200 OK\r\n", b"A: b\r\n"),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 100000\r\n\r\n", b" "),
        (b"HTTP/1.1 401 No\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (b"", b""),
    ],
)
def test_an_answer_that_drips_for_ever_is_given_up_in_time(
    produce: Producers, head: bytes, drop: bytes
) -> None:
    connections: list[int] = []
    with Server(_drip(head, drop, connections)) as server:
        producer = produce(server.url, timeout=0.1, backoff=FAST)
        producer.send("insert", "video", "a")
        assert wait_until(lambda: len(connections) >= 3)
        with pytest.raises(FlushError, match=r"no answer within 0\.1 s"):
            producer.close(0.1)


def _in_seconds(seconds: int) -> str:
    return str(seconds)


def _as_date(seconds: int) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


def test_the_same_batch_comes_again_after_every_answer_that_passes(produce: Producers) -> None:
    passing = [answer(f"{status} Later") for status in (408, 425, 429, 500, 502, 503, 504)]
    with (
        ScriptedServer([*passing, None, OK]) as server,
        produce(server.url, backoff=(0.001, 0.01)) as producer,
    ):
        producer.send("insert", "video", "a")
        producer.flush()
        assert server.bodies == [b'{"event":"insert","type":"video","id":"a"}'] * 9


@pytest.mark.parametrize("form", [_in_seconds, _as_date])
def test_it_comes_again_not_before_retry_after(
    produce: Producers, form: Callable[[int], str]
) -> None:
    began = time.time()
    later = answer("429 Many", "", f"Retry-After: {form(2)}")
    with ScriptedServer([later, OK]) as server, produce(server.url, backoff=FAST) as producer:
        producer.send("insert", "video", "a")
        producer.flush()
    assert time.time() - began >= (2 if form is _in_seconds else 1)  # a date has whole seconds


def test_each_answer_that_names_lines_is_told_once(
    produce: Producers, caplog: pytest.LogCaptureFixture
) -> None:
    errors = [{"line": line, "field": "id", "reason": "no"} for line in (1, 3, 4)]
    bad = answer("400 Bad Request", json.dumps({"detail": "3 of 5", "errors": errors}))
    with ScriptedServer([None]) as server, produce(server.url, backoff=FAST) as producer:
        producer.send("insert", "video", "first")
        assert wait_until(lambda: producer.counters.retried > 0)  # it is a batch of its own
        for number in range(5):
            producer.send("insert", "video", str(number))
        caplog.clear()
        server.answer_with(OK, bad, OK)
        producer.flush()
        assert (producer.counters.delivered, producer.counters.rejected) == (3, 3)
        assert [
            json.loads(line)["id"] for body in server.accepted for line in body.splitlines()
        ] == ["first", "1", "4"]
    assert [
        record.getMessage()
        for record in caplog.records
        if record.name == "oplogc" and record.levelname == "WARNING"
    ] == [
        "the agent rejects 3 of 5 operations; the first is "
        """b'{"event":"insert","type":"video","id":"0"}': id: no"""
    ]
