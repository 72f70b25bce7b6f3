"""User and password of an address are used and never shown."""

import base64
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from oplogc import AsyncProducer, Consumer, FlushError, Producer, RefusedError
from oplogc.follow.stream import origin
from oplogc.topics import NotAllowed
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clients.producers import Producers
from tests.kits.clients.topics_of import TopicsOf
from tests.kits.processes import forked
from tests.kits.servers.request import Request
from tests.kits.servers.scripted import End, Reply, ScriptedServer, answer

SECRET = "geh%2Feim-%C3%A9"
PASSWORD = "geh/eim-é"


def _with_password(url: str) -> str:
    return url.replace("://", f"://somebody:{SECRET}@")


def _shows_nothing(text: str) -> bool:
    return not any(
        part in text for part in ("geh", "eim", "somebody", base64.b64encode(b":geh")[:4].decode())
    )


def test_a_password_in_the_address_opens_the_agent_and_is_not_logged(
    tmp_path: Path, produce: Producers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with Agent(tmp_path, "--password", PASSWORD, "--ingest-password", PASSWORD) as agent:
        with produce(_with_password(agent.url)) as producer:
            producer.send("insert", "video", "a")
        with Consumer(_with_password(agent.url), start="0") as consumer:
            for event in consumer:
                if event.event == "live":
                    consumer.stop()
    assert "HTTP Request: POST" in caplog.text  # httpx tells each request at INFO
    assert _shows_nothing(caplog.text)


def test_a_token_in_the_address_is_sent_and_not_logged(
    produce: Producers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    stored = answer("200 OK", "%COUNT%")
    live = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nid: 5\nevent: live\n\n"
    moved = answer("302 Found", "", "Location: /ops?token=geheim")
    with ScriptedServer([stored, moved, live]) as server:
        with produce(f"{server.url}/?token=geheim") as producer:
            producer.send("insert", "video", "a")
        with Consumer(f"{server.url}/?token=geheim", types=["video"]) as consumer:
            assert next(iter(consumer)).event_id == "5"
        targets = [request.split(" ")[1] for request in server.heads]
    assert targets == [
        "/ops?token=geheim",
        "/ops?token=geheim&checkpoint=1&types=video",
        "/ops?token=geheim",
    ]
    assert caplog.text.count("HTTP Request: ") == 3
    assert _shows_nothing(caplog.text)


def test_a_wrong_password_is_refused_without_being_shown(
    tmp_path: Path, produce: Producers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with Agent(tmp_path, "--password", "right", "--ingest-password", "right") as agent:
        producer = produce(_with_password(agent.url))
        producer.send("insert", "video", "a")
        with pytest.raises(FlushError) as failed:
            producer.close()
        with (
            Consumer(_with_password(agent.url)) as consumer,
            pytest.raises(RefusedError) as refused,
        ):
            next(iter(consumer))
        with Consumer(
            _with_password(agent.url), password="right", start="0"
        ) as consumer:  # the argument comes first
            assert next(iter(consumer)).event == "reset"
    assert _shows_nothing(f"{failed.value!r} {refused.value!r} {caplog.text}")


@pytest.mark.parametrize("given", ["", "geheim"])
def test_a_refusal_says_which_password_is_missing_or_wrong(
    tmp_path: Path, produce: Producers, topics_of: TopicsOf, given: str
) -> None:
    """Each refusal names the option, and holds the agent's sentence."""
    option = "password"
    kind = "wrong password: look at" if given else "the agent needs a password: give"
    with Agent(tmp_path, "--password", "right", "--ingest-password", "other") as agent:
        errors: list[tuple[str, Exception]] = []
        with Consumer(agent.url, password=given) as consumer:
            errors.append((option, raised(RefusedError, lambda: next(iter(consumer)))))
        with topics_of(agent.url, password=given, ingest_password=given) as topics:
            with topics.stream("t") as following:
                errors.append((option, raised(NotAllowed, lambda: next(iter(following)))))
            errors.append((option, raised(NotAllowed, lambda: topics.poll("t"))))
            errors.append((f"ingest_{option}", raised(NotAllowed, lambda: topics.create("t"))))
        producer = produce(agent.url, password=given)
        producer.send("insert", "video", "a")
        errors.append((option, raised(FlushError, producer.close)))
    for name, error in errors:
        assert f"{kind} {name}; the agent says: " in str(error)
        assert "needs the password: HTTP Basic" in str(error)
        assert "(HTTP 401)" in str(error)
        assert _shows_nothing(str(error))


def raised(kind: type[Exception], call: Callable[[], object]) -> Exception:
    """Return the error that a call raises."""
    with pytest.raises(kind) as failed:
        call()
    return failed.value


@pytest.mark.parametrize(
    "url",
    [
        "http://somebody:geheim@host:port/",
        "http://somebody:geheim@",
        "http://somebody:geh/eim@host",
        "http://geh[eim@host",
        "ftp://somebody:geheim@host",
        "somebody:geheim@host",
        "http://somebody:geheim@foo..bar",
        "http://geheim@:80",
        "http://somebody:geheim\u2100@host",
        "http://ge@heim:1@host:1:2",
    ],
)
def test_an_error_about_an_address_does_not_show_its_password(url: str) -> None:
    for make in (Consumer, Producer, AsyncProducer):
        with pytest.raises(ValueError, match="address") as raised:
            make(url)
        assert _shows_nothing(str(raised.value)), raised.value
        assert raised.value.__cause__ is None
    with pytest.raises(ValueError, match="udp") as raised:
        Producer("udp://somebody:geheim@")
    assert _shows_nothing(str(raised.value))
    for make in (Consumer, Producer, AsyncProducer):
        with pytest.raises(ValueError, match="is no address of a proxy") as raised:
            make("http://host", proxy=url.replace("http:", "gopher:"))
        assert _shows_nothing(str(raised.value)), raised.value


def test_oplog_tail_does_not_show_it(tmp_path: Path) -> None:
    with Agent(tmp_path, "--password", "right") as agent:
        for arguments, environ in (
            ([_with_password(agent.url)], {}),
            ([], {"OPLOG_URL": _with_password(agent.url)}),
            (["--help"], {"OPLOG_URL": _with_password(agent.url)}),
            (["http://somebody:geheim@host:port"], {}),
            (["http://host", "--proxy", "gopher://somebody:geheim@host"], {}),
        ):
            command = [sys.executable, "-m", "oplogc.tail", *arguments]
            done = forked.run(
                command,
                capture_output=True,
                text=True,
                timeout=DEADLINE,
                env={**os.environ, **environ},
            )
            assert done.stdout + done.stderr
            assert _shows_nothing(done.stdout + done.stderr), done.stdout + done.stderr
            assert "Traceback" not in done.stderr


class Redirecting(ScriptedServer):
    """Redirects requests to ``target``."""

    def __init__(self, status: int, target: str) -> None:
        super().__init__(self._choose)
        self.status = status
        self.target = target

    def _choose(self, request: Request) -> Reply:
        if request.path == "/stream":
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
            return [head + b"id: 5\nevent: live\n\n", End.HOLD]
        return answer(f"{self.status} Go", "", f"Location: {self.target}", "Connection: close")

    @property
    def seen(self) -> list[str | None]:
        """Return ``Authorization`` of each request."""
        return [request.headers.get("authorization") for request in self.requests]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_takes_the_password_to_the_same_origin_only(status: int) -> None:
    with Redirecting(status, "/stream") as same, Redirecting(status, "") as other:
        with Consumer(same.url, password="p") as consumer:
            assert next(iter(consumer)).event_id == "5"
        assert same.seen == ["Basic OnA="] * 2
        other.target = f"{same.url}/stream"  # another port
        with Consumer(other.url, password="p") as consumer:
            assert next(iter(consumer)).event_id == "5"
        assert (other.seen, same.seen[2:]) == (["Basic OnA="], [None])


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("http://host:80/else", True),
        ("https://host", False),  # there httpx takes the password along
        ("http://host:81", False),
        ("http://other", False),
    ],
)
def test_an_origin_is_scheme_host_and_port(url: str, same: bool) -> None:
    assert (origin(httpx.URL(url)) == origin(httpx.URL("http://host"))) is same
