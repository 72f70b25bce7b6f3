"""The examples in Go and PHP keep the same promises."""

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clients.examples import FAST, Example, shown, videos
from tests.kits.clients.restart import agent_on
from tests.kits.servers.ports import free_port
from tests.kits.servers.scripted import ScriptedServer, answer
from tests.kits.servers.server import Server


def test_from_producer_to_consumer(tmp_path: Path, example: Example) -> None:
    with Agent(tmp_path, "--password", "geheim", "--ingest-password", "geheim") as agent:
        assert example.produce(agent.url, videos(0, 2500)).returncode == 0
        assert agent.status()["events_ingested"] == 2500
        assert (
            example.produce(f"udp://127.0.0.1:{agent.udp_port}", videos(2500, 20)).returncode == 0
        )
        agent.wait_status(events_ingested=2520)
        following = example.consume(agent.url, start="0", types="video")
        lines = following.take(2522)
        assert lines[0] == "reset"
        assert lines[-1] == "live"
        assert sorted(lines[1:-1]) == sorted(shown(0, 2520))
        following.kill()


def test_a_restart_and_a_kill_lose_nothing(tmp_path: Path, example: Example) -> None:
    port = free_port()
    url, state = f"http://127.0.0.1:{port}", str(tmp_path / "state")
    with agent_on(port, tmp_path) as agent:
        agent.post(videos(0, 1))
        following = example.consume(url, start="0", state=state)
        assert following.take(3) == ["reset", *shown(0, 1), "live"]
        agent.stop()
    with Agent(tmp_path) as elsewhere:  # these are there before the consumer can come back
        elsewhere.post(videos(1, 5))
    with agent_on(port, tmp_path) as agent:
        assert following.take(5) == shown(1, 5)
        following.kill()
        agent.post(videos(6, 3))
        following = example.consume(url, start="0", state=state)
        lines = following.take(1)
        while lines[-1] != shown(8, 1)[0]:
            lines += following.take(1)
        following.kill()
        assert "reset" not in lines[1:]
        assert [line for line in lines if line != "live"][-3:] == shown(6, 3)


def test_a_consumer_with_a_count_ends_and_goes_on_behind_its_last_operation(
    tmp_path: Path, example: Example
) -> None:
    with Agent(tmp_path, "--password", "geheim") as agent:
        following = example.consume(agent.url, start="0", state=str(tmp_path / "state"), count="2")
        assert following.take(2) == ["reset", "live"]
        agent.post(videos(0, 5))
        assert following.take(2) == shown(0, 2)
        assert following.rest() == (0, "")
        following = example.consume(agent.url, state=str(tmp_path / "state"), count="3")
        assert following.take(3) == shown(2, 3)
        assert following.rest() == (0, "")


def test_a_wrong_password_is_told(tmp_path: Path, example: Example) -> None:
    with Agent(tmp_path, "--password", "another", "--ingest-password", "another") as agent:
        done = example.produce(agent.url, videos(0, 1))
        assert done.returncode != 0
        assert "401" in done.stderr
        command = [*example.consumer, f"{example.dash}url={agent.url}"]
        refused = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
        assert refused.returncode == 1
        assert "401" in refused.stderr


@pytest.mark.parametrize(
    "flags",
    [
        ["--nonsense=1"],
        ["--timeout=0"],
        ["--timeout=NaN"],
        ["--backoff=3,1"],
        ["--backoff=1"],
        ["extra"],
        ["--url=http://me:geheim@host:bad"],
        ["--url=ftp://me:geheim@host"],
    ],
    ids=str,
)
def test_a_mistake_in_the_command_line_is_one_sentence(example: Example, flags: list[str]) -> None:
    for program in (example.producer, example.consumer):
        done = example.run([*program, *flags])
        assert (done.returncode, done.stdout) == (2, "")
        assert len(done.stderr.splitlines()) == 1
        assert "geheim" not in done.stderr


def stream(*blocks: str) -> bytes:
    """Return an answer with a stream of these blocks and its end."""
    head = (
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
        "Connection: close\r\n\r\n"
    )
    return (head + "".join(blocks)).encode()


def block(number: int, event: str = "insert") -> str:
    data = {
        "timestamp": "2024-05-06T07:08:09.123Z",
        "parents": [],
        "type": "video",
        "id": f"{number}",
    }
    return f"id: {number:024x}\nevent: {event}\ndata: {json.dumps(data)}\n\n"


GONE = answer("410 Gone")


def test_a_consumer_needs_a_state_file_that_it_can_use(tmp_path: Path, example: Example) -> None:
    def locked(path: Path) -> object:
        path.write_text("5")
        file = path.with_name(f"{path.name}.lock").open("w")
        fcntl.flock(file, fcntl.LOCK_EX)
        return file

    prepare: dict[str, Callable[[Path], object]] = {
        "folder": Path.mkdir,
        "loop": lambda path: path.symlink_to(path),
        "empty": Path.touch,
        "text": lambda path: path.write_text("oops"),
        "none/state": lambda path: None,
        "text/state": lambda path: None,
        "locked": locked,
    }
    with ScriptedServer([GONE]) as server:
        for name, make in prepare.items():
            kept = make(tmp_path / name)
            done = example.consume_all(server.url, state=str(tmp_path / name), start="0")
            assert done.returncode == 1, name
            assert "state file" in done.stderr, name
            if hasattr(kept, "close"):
                kept.close()
        assert server.bodies == []  # it did not even ask
    assert (tmp_path / "empty").read_bytes() == b""
    assert (tmp_path / "text").read_bytes() == b"oops"


def test_a_consumer_waits_for_as_long_as_the_agent_asks(example: Example) -> None:
    busy = answer("503 Service Unavailable", '{"detail":"busy"}', "Retry-After: 1")
    with ScriptedServer([busy, stream(block(1)), GONE]) as server:
        began = time.monotonic()
        assert example.consume_all(server.url, **FAST).returncode == 1
        assert time.monotonic() - began >= 1
        assert len(server.bodies) == 3


def test_a_consumer_passes_over_unknown_events_and_refuses_other_documents(
    example: Example,
) -> None:
    with ScriptedServer([stream(block(1, "news"), block(2)), answer("200 OK", "<html>")]) as server:
        done = example.consume_all(server.url, **FAST)
        assert (done.returncode, done.stdout) == (1, "insert video/2 []\n")
        assert "news" in done.stderr
        assert "application/json" in done.stderr
        assert len(server.bodies) == 2


def test_an_event_is_printed_before_the_end_of_its_chunk_has_come(example: Example) -> None:
    printed = [threading.Event() for _ in range(3)]

    async def dribble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        for number, ends in enumerate(([b"\r\n"], [b"\r", b"\n"], [b"\r\n0\r\n\r\n"])):
            data = block(number).encode()
            writer.write(b"%x;x=y\r\n" % len(data) + data)
            assert await asyncio.to_thread(printed[number].wait, DEADLINE)
            for end in ends:
                writer.write(end)
                await writer.drain()

    with Server(dribble) as server:
        following = example.consume(server.url, count="3")
        for number, told in enumerate(printed):
            assert following.take(1) == [f"insert video/{number} []"]
            told.set()
        assert following.rest() == (0, "")


def test_credentials_in_an_address_are_used_and_never_shown(
    tmp_path: Path, example: Example
) -> None:
    with Agent(tmp_path, "--password", "tür:x", "--ingest-password", "tür:x") as agent:
        url = agent.url.replace("://", "://me:t%C3%BCr%3Ax@")
        assert example.produce(url, videos(0, 2)).returncode == 0
        done = example.consume_all(url, start="0", count="2")
        assert (done.returncode, len(done.stdout.splitlines())) == (0, 3)
        wrong = url.replace("%3Ax", "%3Ay")
        for failed in (example.produce(wrong, videos(0, 2)), example.consume_all(wrong)):
            assert failed.returncode == 1
            assert "HTTP 401" in failed.stderr
            assert not any(secret in failed.stderr for secret in ("tür", "t%C3", "%3Ay"))


def test_a_signal_ends_a_consumer_after_what_it_handled(tmp_path: Path, example: Example) -> None:
    state = tmp_path / "state"
    with Agent(tmp_path, "--password", "geheim") as agent:
        command = [*example.consumer, *example.flags(url=agent.url, start="0", state=str(state))]
        environ = {**os.environ, "OPLOG_PASSWORD": "geheim"}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as process:
            assert process.stdout
            assert [process.stdout.readline() for _ in range(2)] == ["reset\n", "live\n"]
            agent.post(videos(0, 1))
            assert process.stdout.readline().strip() == shown(0, 1)[0]
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE) == 0
        following = example.consume(agent.url, state=str(state), count="1")
        agent.post(videos(1, 1))
        assert following.take(1) == shown(1, 1)
        assert following.rest() == (0, "")
