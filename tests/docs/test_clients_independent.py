"""Clients that were not written for this agent: httpx-sse and the command ``curl``."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from httpx_sse import EventSource, ServerSentEvent, connect_sse

from tests.kits.agents.agent import DEADLINE, Agent

Told = tuple[str, str]


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    flags = (
        "--heartbeat",
        "200ms",
        "--max-connection-age",
        f"{DEADLINE:g}s",
    )  # no test waits for ever
    with Agent(tmp_path_factory.mktemp("agent"), *flags) as agent:
        yield agent


def store(agent: Agent, type_: str, *operations: Told) -> None:
    assert (
        agent.post([{"event": event, "type": type_, "id": id_} for event, id_ in operations]) == 200
    )


@contextlib.contextmanager
def source(
    agent: Agent, type_: str, last_event_id: str | None = None, **query: str
) -> Iterator[EventSource]:
    headers = {"Last-Event-ID": last_event_id} if last_event_id else {}
    parameters = {"types": type_, **query}
    with (
        httpx.Client(timeout=DEADLINE) as client,
        connect_sse(
            client, "GET", agent.url + "/ops", headers=headers, params=parameters
        ) as events,
    ):
        events.response.raise_for_status()
        yield events


def told(event: ServerSentEvent) -> Told:
    return event.event, event.json()["id"] if event.data else ""


def until_live(events: Iterator[ServerSentEvent]) -> list[ServerSentEvent]:
    seen = [next(events)]
    while seen[-1].event != "live":
        seen.append(next(events))
    return seen


def test_httpx_sse_follows_and_resumes(agent: Agent) -> None:
    with source(agent, "follows") as live:
        store(agent, "follows", ("insert", "a\u2028b"), ("update", "b"), ("delete", "c"))
        events = live.iter_sse()
        first, second, third = (next(events) for _ in range(3))
    assert [told(event) for event in (first, second, third)] == [
        ("insert", "a\u2028b"),
        ("update", "b"),
        ("delete", "c"),
    ]
    assert list(first.json()) == ["timestamp", "parents", "type", "id"]
    with source(agent, "follows", first.id) as resumed:
        events = resumed.iter_sse()
        assert [vars(next(events)), vars(next(events))] == [vars(second), vars(third)]
        store(agent, "follows", ("insert", "d"))
        assert told(next(events)) == ("insert", "d")


def test_httpx_sse_replicates_and_goes_on_at_the_id_of_live(agent: Agent) -> None:
    store(agent, "replicates", ("insert", "a"), ("insert", "b"), ("update", "a"), ("delete", "b"))
    with source(agent, "replicates", "0") as replicated:
        seen = until_live(replicated.iter_sse())
    assert [told(event) for event in seen] == [("reset", ""), ("insert", "a"), ("live", "")]
    store(agent, "replicates", ("insert", "c"))
    with source(agent, "replicates", seen[-1].id) as resumed:
        assert told(next(resumed.iter_sse())) == ("insert", "c")


def test_httpx_sse_learns_its_position_from_checkpoints(agent: Agent) -> None:
    with source(agent, "others") as others, source(agent, "quiet", checkpoint="1") as quiet:
        store(agent, "others", ("insert", "a"))
        reached = next(others.iter_sse()).id
        positions = (event for event in quiet.iter_sse() if not event.data)
        assert next(event for event in positions if event.id == reached).event == "message"
    store(agent, "quiet", ("insert", "missed"))
    with source(agent, "quiet", reached) as resumed:
        assert told(next(resumed.iter_sse())) == ("insert", "missed")


class Curl:
    """``curl`` on a stream, started as a person would; established once the headers are read."""

    def __init__(self, agent: Agent, *options: str, query: str = "") -> None:
        command = [
            "curl",
            "-sSiN",
            "--max-time",
            str(int(DEADLINE)),
            "-H",
            "Accept: text/event-stream",
            *options,
        ]
        self._process = subprocess.Popen(
            [*command, agent.url + "/ops" + query], stdout=subprocess.PIPE
        )
        assert self._process.stdout
        self._lines = self._process.stdout
        self.head = b"".join(iter(self._lines.readline, b"\r\n"))

    def block(self) -> bytes:
        block = b""
        while not block.endswith(b"\n\n"):
            line = self._lines.readline()
            assert line, "curl has ended"
            if line != b":\n":
                block += line
        return block

    def blocks(self, count: int) -> list[Told]:
        return [self.told(self.block()) for _ in range(count)]

    @staticmethod
    def told(block: bytes) -> Told:
        event, data = (line.partition(b":")[2].strip() for line in block.split(b"\n")[1:3])
        return event.decode(), json.loads(data)["id"] if data else ""

    def __enter__(self) -> "Curl":
        assert self.head.startswith(b"HTTP/1.1 200 OK\r\n")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._lines.close()


def curl_send(agent: Agent, body: str, *options: str) -> str:
    command = [
        "curl",
        "-sS",
        "--max-time",
        str(int(DEADLINE)),
        "-w",
        "%{http_code}",
        "--data-binary",
        body,
        *options,
    ]
    return subprocess.run([*command, agent.url], capture_output=True, text=True, check=True).stdout


JSON = ("-H", "Content-Type: application/json")
NDJSON = ("-H", "Content-Type: application/x-ndjson")


def test_curl_sends_follows_and_resumes(agent: Agent) -> None:
    with Curl(agent, query="?types=curl") as curl:
        assert curl_send(agent, '{"event":"insert","type":"curl","id":"a"}', *JSON) == "204"
        first = curl.block()
        assert curl.told(first) == ("insert", "a")
        lines = "".join(f'{{"event":"update","type":"curl","id":"{id_}"}}\n' for id_ in "bc")
        assert curl_send(agent, lines, *NDJSON) == '{"ingested":2}200'
        assert curl.blocks(2) == [("update", "b"), ("update", "c")]
    id_ = first.decode().split("\n")[0].removeprefix("id: ")
    with Curl(agent, "-H", f"Last-Event-ID: {id_}", query="?types=curl") as curl:
        assert curl.blocks(2) == [("update", "b"), ("update", "c")]
    with Curl(agent, query=f"?types=curl&last_event_id={id_}") as curl:
        assert curl.blocks(2) == [("update", "b"), ("update", "c")]


def test_curl_replicates(agent: Agent) -> None:
    store(agent, "copied", ("insert", "a"), ("insert", "b"), ("delete", "a"))
    with Curl(agent, query="?types=copied&last_event_id=0") as curl:
        assert curl.blocks(3) == [("reset", ""), ("insert", "b"), ("live", "")]
        store(agent, "copied", ("insert", "c"))
        assert curl.blocks(1) == [("insert", "c")]


def test_curl_is_told_what_is_missing(agent: Agent) -> None:
    assert curl_send(agent, "{}").endswith("415")
    answer = subprocess.run(
        ["curl", "-sS", agent.url + "/ops"], capture_output=True, text=True, check=True
    ).stdout
    assert "curl -N -H 'Accept: text/event-stream'" in json.loads(answer)["detail"]


def test_curl_that_asks_for_compression_gets_the_stream_as_it_is(agent: Agent) -> None:
    with Curl(agent, "--compressed", query="?types=plain") as curl:
        assert b"content-encoding" not in curl.head.lower()
        store(agent, "plain", ("insert", "a"))
        assert curl.blocks(1) == [("insert", "a")]


def test_curl_posts_a_compressed_file(agent: Agent, tmp_path: Path) -> None:
    file = tmp_path / "operations.ndjson"
    file.write_text('{"event":"insert","type":"packed","id":"a"}\n' * 3)
    subprocess.run(["gzip", file], check=True)
    options = (*NDJSON, "-H", "Content-Encoding: gzip")
    assert curl_send(agent, f"@{file}.gz", *options) == '{"ingested":3}200'
