"""Load for ``bench_topics`` from processes of its own: ``python -m tests.bench.topic_load WHAT``.

``publish`` sends requests over connections that stay open, each after the answer to the one
before. ``follow`` and ``poll`` read stamped messages until a number of them came. ``listen`` opens
streams and keeps them until its input ends. Each prints one line of JSON.
"""

import asyncio
import itertools
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

import uvloop

from oplogd.server import raise_file_limit

HOST = "127.0.0.1"
WARM_UP_SECONDS = 0.5
PAYLOAD_BYTES = 100
_STAMP = re.compile(rb'"payload":"(\d+)')
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CONNECTS_AT_ONCE = 100
_SENDERS = 10


def http_request(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def topic_path(topic: int) -> str:
    return f"/v1/namespaces/bench/topics/t{topic}"


def topic_request(topic: int, messages: int) -> bytes:
    body = json.dumps({"messages": ["x" * PAYLOAD_BYTES] * messages}).encode()
    return http_request(f"{topic_path(topic)}/publish", body)


def poll_request(topic: int, messages: int) -> bytes:
    """Return a poll of the oldest messages of a topic."""
    return http_request(f"{topic_path(topic)}/poll", b'{"limit": %d}' % messages)


def pointer_request(topic: int, messages: int) -> bytes:
    """Return a request as ``topic_request`` under a pointer. Each topic has one."""
    body = {"transactionWritePointer": topic, "messages": ["x" * PAYLOAD_BYTES] * messages}
    return http_request(f"{topic_path(topic)}/publish", json.dumps(body).encode())


def oplog_request(number: int, operations: int) -> bytes:
    """Return a request to /ops of operations as large as the messages."""
    made = [
        {"event": "update", "type": "video", "id": f"x{number * operations + at:06x}",
         "parents": ["user/1"]}
        for at in range(operations)
    ]  # fmt: skip
    return http_request("/ops", json.dumps(made if operations > 1 else made[0]).encode())


def xadd_request(topic: int, messages: int) -> bytes:
    """Return XADD commands, sent in one go."""
    parts = [b"XADD", b"t%d" % topic, b"*", b"payload", b"x" * PAYLOAD_BYTES]
    command = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)
    return command * messages


REQUESTS: dict[str, Callable[[int, int], bytes]] = {
    "topics": topic_request,
    "pointers": pointer_request,
    "oplog": oplog_request,
    "redis": xadd_request,
}


def http_answer(received: bytes) -> bytes | None:
    """Return the body of a whole answer, None before it is whole. Raises if it is an error."""
    head, end, body = received.partition(b"\r\n\r\n")
    if not end:
        return None
    length = _LENGTH.search(head)
    if length is not None and len(body) < int(length[1]):
        return None
    if not head.startswith(b"HTTP/1.1 2"):
        raise AssertionError(received[:1_000])
    return body


def redis_answer(received: bytes, commands: int) -> bytes | None:
    """As ``http_answer``: each XADD is answered by two lines."""
    if received.startswith(b"-"):
        raise AssertionError(received[:1_000])
    return b"" if received.count(b"\n") == 2 * commands else None


class Caller(asyncio.Protocol):
    """Sends the next request when the last one is answered, until there is none."""

    def __init__(
        self,
        requests: Iterator[bytes],
        whole: Callable[[bytes], bytes | None],
        answered: Callable[[float, bytes], None],
    ) -> None:
        self.ended = asyncio.get_running_loop().create_future()
        self._requests = requests
        self._whole = whole
        self._answered = answered
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has another base
        self._send()

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            body = self._whole(self._received)
            if body is not None:
                self._received = b""
                self._answered(time.monotonic() - self._began, body)
                self._send()
        except Exception as error:
            self._end(error)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error or ConnectionError("the server closed the connection"))

    def _send(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._end(None)
            return
        self._began = time.monotonic()
        self._transport.write(request)

    def _end(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(error) if error else self.ended.set_result(None)
            self._transport.close()


async def run_callers(port: int, callers: Sequence[Caller]) -> None:
    loop = asyncio.get_running_loop()
    for caller in callers:
        await loop.create_connection(lambda caller=caller: caller, HOST, port)  # type: ignore[misc]
    await asyncio.gather(*(caller.ended for caller in callers))


async def publish(
    kind: str, port: int, connections: int, topics: int, messages: int, seconds: float
) -> dict[str, Any]:
    """Count the answers of ``seconds``, after the warm-up."""
    started = time.monotonic() + WARM_UP_SECONDS
    ends = started + seconds
    latencies: list[float] = []
    prepared = [REQUESTS[kind](topic, messages) for topic in range(topics)]

    def requests(first: int) -> Iterator[bytes]:
        for number in itertools.count(first):
            if time.monotonic() > ends:
                return
            yield prepared[number % topics]

    def answered(latency: float, _: bytes) -> None:
        if started < time.monotonic() < ends:
            latencies.append(1000 * latency)

    def whole(received: bytes) -> bytes | None:
        return redis_answer(received, messages) if kind == "redis" else http_answer(received)

    callers = [Caller(requests(number), whole, answered) for number in range(connections)]
    await run_callers(port, callers)
    return {"latencies": counted(latencies)}


def counted(values: Iterable[float]) -> dict[float, int]:
    """Return how often each value occurs, rounded to a tenth."""
    return Counter(round(value, 1) for value in values)


def ages(received: bytes) -> list[float]:
    """Return the ages in ms of stamped messages."""
    now = time.monotonic_ns()
    return [(now - int(stamp)) / 1e6 for stamp in _STAMP.findall(received)]


async def poll(port: int, pollers: int, count: int) -> dict[str, Any]:
    """Poll the end of a topic, each time after the last id, until each poller has ``count``."""
    latencies: list[float] = []
    all_ages: list[float] = []
    callers = []
    for _ in range(pollers):
        state = {"last": "null", "count": 0}

        def requests(state: dict[str, Any] = state) -> Iterator[bytes]:
            while state["count"] < count:
                body = f'{{"startFrom":{state["last"]},"inclusive":false}}'
                yield http_request(f"{topic_path(0)}/poll", body.encode())

        def answered(latency: float, body: bytes, state: dict[str, Any] = state) -> None:
            latencies.append(1000 * latency)
            if found := ages(body):
                all_ages.extend(found)
                state["count"] += len(found)
                state["last"] = json.dumps(json.loads(body)[-1]["id"])

        callers.append(Caller(requests(), http_answer, answered))
    print(flush=True)
    await run_callers(port, callers)
    return {"latencies": counted(latencies), "ages": counted(all_ages)}


class Follower(asyncio.Protocol):
    """Follows a topic: from what comes next."""

    def __init__(self, path: str, read: Callable[[bytes], None]) -> None:
        self.opened = asyncio.get_running_loop().create_future()
        self._path = path
        self._read = read
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(
            f"GET {self._path} HTTP/1.1\r\nHost: {HOST}\r\n"
            "Accept: text/event-stream\r\n\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        if not self.opened.done():
            if data.startswith(b"HTTP/1.1 200"):
                self.opened.set_result(None)
            else:
                self.opened.set_exception(AssertionError(data[:1_000]))
            return
        data = self._rest + data
        end = data.rfind(b"\n\n") + 2
        if end > 1:
            self._read(data[:end])
            data = data[end:]
        self._rest = data

    def connection_lost(self, error: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(error or ConnectionError("closed"))


async def open_streams(
    port: int, paths: Sequence[str], read: Callable[[bytes], None]
) -> list[Follower]:
    loop = asyncio.get_running_loop()
    followers: list[Follower] = []
    for first in range(0, len(paths), _CONNECTS_AT_ONCE):
        made = []
        for path in paths[first : first + _CONNECTS_AT_ONCE]:
            follower = Follower(path, read)
            made.append(follower)
            await loop.create_connection(lambda follower=follower: follower, HOST, port)  # type: ignore[misc]
        await asyncio.gather(*(follower.opened for follower in made))
        followers += made
    return followers


async def follow(port: int, consumers: int, count: int) -> dict[str, Any]:
    """Follow one topic until ``count`` messages came to each consumer."""
    all_ages: list[float] = []
    done = asyncio.Event()

    def read(data: bytes) -> None:
        all_ages.extend(ages(data))
        if len(all_ages) >= count * consumers:
            done.set()

    await open_streams(port, [f"{topic_path(0)}/stream"] * consumers, read)
    print(flush=True)
    await done.wait()
    return {"ages": counted(all_ages)}


async def listen(port: int, paths: Sequence[str]) -> dict[str, Any]:
    """Keep a stream of each path open until the input ends."""
    raise_file_limit()
    followers = await open_streams(port, paths, lambda _: None)
    print(flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for follower in followers:
        follower.transport.close()
    return {"streams": len(followers)}


async def stamped(port: int, rate: int, count: int) -> dict[str, Any]:
    """Publish ``count`` single messages to one topic at an even rate, with the time of sending."""
    started = time.monotonic()

    async def send(numbers: Iterable[int]) -> None:
        reader, writer = await asyncio.open_connection(HOST, port)
        for number in numbers:
            await asyncio.sleep(max(0, started + number / rate - time.monotonic()))
            body = b'{"messages":["%d"]}' % time.monotonic_ns()
            writer.write(http_request(f"{topic_path(0)}/publish", body))
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
        writer.close()

    await asyncio.gather(*(send(range(first, count, _SENDERS)) for first in range(_SENDERS)))
    return {"seconds": time.monotonic() - started}


def main(what: str, *arguments: str) -> None:
    numbers = arguments[1:] if what == "publish" else arguments
    ints = [int(each) for each in numbers if each.isdecimal()]
    match what:
        case "publish":
            *counts, seconds = numbers
            port, connections, topics, messages = map(int, counts)
            work = publish(arguments[0], port, connections, topics, messages, float(seconds))
        case "poll":
            work = poll(*ints)
        case "follow":
            work = follow(*ints)
        case "stamped":
            work = stamped(*ints)
        case "listen":
            port, topics, streams = ints
            query = "" if arguments[-1].isdecimal() else arguments[-1]
            paths = [f"{topic_path(number % topics)}/stream{query}" for number in range(streams)]
            work = listen(port, paths)
        case _:
            raise SystemExit(__doc__)
    print(json.dumps(uvloop.run(work)))


if __name__ == "__main__":
    main(*sys.argv[1:])
