"""The sink that posts messages to a URL."""

import base64
import json
import logging
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from oplog_pipe.errors import SinkError, TargetError
from oplog_pipe.model.options import TlsOptions
from oplog_pipe.sinks.http import HttpSink, HttpSinkOptions
from tests.integration.relay.tls_files import certificate
from tests.kits.pipe.messages import message, version
from tests.kits.pipe.targets import SECRET, has_no_secret
from tests.kits.servers.ports import free_port
from tests.kits.servers.scripted import Reply, ScriptedServer, answer

MESSAGES = [message(0), message(1, "b", "delete"), message(2, "c")]
OK = answer(200)
LARGE = answer(413)


class Receiver(ScriptedServer):
    """Gives these answers, then 200."""

    def __init__(self, *answers: Reply, tls: ssl.SSLContext | None = None) -> None:
        super().__init__([*answers, OK], tls)

    @property
    def hook(self) -> str:
        return f"{self.url}/hook"


@contextmanager
def opened(url: str, clock: list[float] | None = None, **options: Any) -> Iterator[HttpSink]:
    now = clock or [0.0]
    made = HttpSink(HttpSinkOptions(url, **options), clock=lambda: now[0])
    made.open()
    try:
        yield made
    finally:
        made.close()


def offsets(body: bytes) -> list[int]:
    return [each["offset"] for each in json.loads(body)]


def test_a_batch_is_one_array_with_all_of_each_message() -> None:
    with Receiver() as receiver, opened(receiver.hook) as sink:
        sink.write(MESSAGES)
        (request,) = receiver.requests
        assert request.target == "/hook"
        assert request.headers["content-type"] == "application/json"
        found = json.loads(request.body)
        assert len(found) == 3
        assert found[1] == {
            "offset": 1,
            "version": f"{version(1):019d}",
            "source": "oplog",
            "op": "delete",
            "timestamp": "2014-11-06T11:04:39.042Z",
            "namespace": "video",
            "id": "b",
            "data": {"n": 1},
        }


def test_ndjson_has_one_line_per_message() -> None:
    with Receiver() as receiver, opened(receiver.hook, format="ndjson") as sink:
        sink.write(MESSAGES)
        (request,) = receiver.requests
        assert request.headers["content-type"] == "application/x-ndjson"
        lines = request.body.decode().splitlines()
        assert [json.loads(line)["offset"] for line in lines] == [0, 1, 2]
        assert request.body.endswith(b"}\n")


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_each_status_of_2xx_acknowledges(status: int) -> None:
    with Receiver(answer(status)) as receiver, opened(receiver.hook) as sink:
        sink.write(MESSAGES)
        assert len(receiver.requests) == 1


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, None])
def test_a_failure_that_passes_is_transient(status: int | None) -> None:
    with Receiver(answer(status) if status else None) as receiver, opened(receiver.hook) as sink:
        with pytest.raises(SinkError) as caught:
            sink.write(MESSAGES)
        assert caught.value.transient
        sink.write(MESSAGES)
        assert [offsets(each) for each in receiver.bodies] == [[0, 1, 2]] * 2


@pytest.mark.parametrize("status", [400, 415, 422])
def test_a_refusal_is_permanent_and_names_a_single_message(status: int) -> None:
    # The answer may quote a message.
    detail = json.dumps({"detail": f"{SECRET} is no name"}).encode()
    answers = [answer(status, detail)] * 2
    with Receiver(*answers) as receiver, opened(receiver.hook) as sink:
        with pytest.raises(SinkError, match=rf"\(HTTP {status}\)") as caught:
            sink.write(MESSAGES)
        assert (caught.value.transient, caught.value.index) == (False, None)
        assert has_no_secret(caught.value)
        with pytest.raises(SinkError) as caught:
            sink.write(MESSAGES[:1])
        assert (caught.value.transient, caught.value.index) == (False, 0)


@pytest.mark.parametrize("status", [401, 403, 404, 405, 407, 410])
def test_a_refusal_of_all_requests_blames_no_message(status: int) -> None:
    with Receiver(answer(status)) as receiver, opened(receiver.hook) as sink:
        with pytest.raises(TargetError) as caught:
            sink.write(MESSAGES[:1])
        assert (caught.value.transient, caught.value.index) == (False, None)


def test_a_receiver_that_is_away_is_a_transient_failure() -> None:
    with opened(f"http://127.0.0.1:{free_port()}/") as sink:
        with pytest.raises(SinkError) as caught:
            sink.write(MESSAGES)
        assert caught.value.transient


def test_nothing_is_sent_before_the_time_of_retry_after() -> None:
    clock = [100.0]
    busy = answer(503, "", "Retry-After: 7")
    with Receiver(busy) as receiver, opened(receiver.hook, clock) as sink:
        for now in (100.0, 100.1, 106.9):
            clock[0] = now
            with pytest.raises(SinkError) as caught:
                sink.write(MESSAGES)
            assert caught.value.transient
        assert len(receiver.requests) == 1
        clock[0] = 107.0
        sink.write(MESSAGES)
        assert len(receiver.requests) == 2


def test_a_batch_that_is_too_large_is_halved_in_its_order() -> None:
    with (
        Receiver(LARGE, OK, LARGE) as receiver,
        opened(receiver.hook) as sink,
    ):
        sink.write([message(each) for each in range(5)])
        sent = [offsets(each) for each in receiver.bodies]
        assert sent == [[0, 1, 2, 3, 4], [0, 1], [2, 3, 4], [2], [3, 4]]


def test_a_single_message_that_is_too_large_is_named() -> None:
    with (
        Receiver(LARGE, OK, LARGE, LARGE) as receiver,
        opened(receiver.hook) as sink,
        pytest.raises(SinkError) as caught,
    ):
        sink.write([message(each) for each in range(4)])
    assert (caught.value.transient, caught.value.index) == (False, 2)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_refused(status: int) -> None:
    with Receiver() as other:
        moved = answer(
            status, "", f"Location: http://u:{SECRET}@127.0.0.1:{other.port}/{SECRET}?k={SECRET}"
        )
        with Receiver(moved) as receiver, opened(receiver.hook) as sink:
            with pytest.raises(SinkError, match="redirects to http://127") as caught:
                sink.write(MESSAGES)
            assert not caught.value.transient
            assert has_no_secret(caught.value)
        assert not other.requests


def test_copies_are_announced_only_on_request() -> None:
    with Receiver() as receiver:
        with opened(receiver.hook) as sink:
            sink.begin_copy(version(3), "oplog")
            sink.end_copy(version(3), "oplog")
            sink.abandon_copy(version(3), "oplog")
        assert not receiver.requests
        with opened(receiver.hook, copies=True) as sink:
            sink.begin_copy(version(3), "oplog")
            sink.end_copy(version(3), "oplog")
            sink.abandon_copy(version(3), "oplog")
        notices = [json.loads(each) for each in receiver.bodies]
        generation = f"{version(3):019d}"
        assert notices == [
            [{"op": "begin_copy", "source": "oplog", "generation": generation}],
            [{"op": "end_copy", "source": "oplog", "generation": generation}],
            [{"op": "abandon_copy", "source": "oplog", "generation": generation}],
        ]


def test_user_password_and_headers_are_sent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    headers = {"X-Token": "t", "Content-Type": "application/vnd.x+json"}
    with Receiver() as receiver:
        with opened(receiver.hook, user="ann", password="pass", headers=headers) as sink:
            sink.write(MESSAGES)
        url = f"http://bob:{SECRET}@127.0.0.1:{receiver.port}/hook?token={SECRET}"
        with opened(url) as sink:
            sink.write(MESSAGES)
        first, second = receiver.requests
    assert first.headers["authorization"] == _basic("ann:pass")
    assert first.headers["x-token"] == "t"
    assert first.headers["content-type"] == "application/vnd.x+json"
    assert second.headers["authorization"] == _basic(f"bob:{SECRET}")
    assert second.target == f"/hook?token={SECRET}"
    assert SECRET not in caplog.text


def test_failures_show_no_part_of_the_address_that_may_be_secret() -> None:
    with Receiver(answer(500), answer(404), None) as receiver:
        url = f"http://bob:{SECRET}@127.0.0.1:{receiver.port}/{SECRET}?token={SECRET}"
        with opened(url) as sink:
            for _ in range(3):
                with pytest.raises(SinkError) as caught:
                    sink.write(MESSAGES)
                assert has_no_secret(caught.value)


@pytest.mark.parametrize(
    "url", ["", "ftp://host/x", "http://", f"http://a:{SECRET}@[/", "//host", f"x:{SECRET}@h"]
)
def test_an_address_that_is_none_is_refused_without_secrets(url: str) -> None:
    with pytest.raises(ValueError, match="url: is no address") as caught:
        HttpSink(HttpSinkOptions(url))
    assert has_no_secret(caught.value)


def test_a_message_that_is_no_json_is_named_and_nothing_is_sent() -> None:
    bad = message(1)
    bad.data = {"a": object()}
    with Receiver() as receiver, opened(receiver.hook) as sink:
        with pytest.raises(SinkError) as caught:
            sink.write([message(0), bad])
        assert (caught.value.transient, caught.value.index) == (False, 1)
        assert not receiver.requests


def test_tls_trusts_the_given_authority_and_shows_the_certificate(tmp_path: Path) -> None:
    server, client = certificate(tmp_path, "server"), certificate(tmp_path, "client")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate, server.key)
    context.load_verify_locations(client.certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    files = TlsOptions(str(server.certificate), str(client.certificate), str(client.key))
    with Receiver(tls=context) as receiver:
        with opened(receiver.hook, tls=files) as sink:
            sink.write(MESSAGES)
        assert len(receiver.requests) == 1
        with (
            opened(receiver.hook, tls=TlsOptions(str(client.certificate))) as stranger,
            pytest.raises(SinkError, match="certificate") as caught,
        ):
            stranger.write(MESSAGES)
        assert caught.value.transient
        assert len(receiver.requests) == 1


def _basic(account: str) -> str:
    return "Basic " + base64.b64encode(account.encode()).decode()
