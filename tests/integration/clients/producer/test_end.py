"""The end of a producer: every loss is logged, and no caller waits forever."""

import asyncio
import math
import subprocess
import sys
import threading
from itertools import count
from pathlib import Path

import pytest

from oplogc import AsyncProducer, FlushError, Producer
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clients.producers import Producers
from tests.kits.contract.wire import wait_until
from tests.kits.processes import forked
from tests.kits.servers.ports import free_port
from tests.kits.servers.scripted import ScriptedServer, answer

FAST = (0.01, 0.05)
OK = answer("200 OK", "%COUNT%")
REFUSED = answer("401 Unauthorized", '{"detail":"needs the password"}')


def _send_until_closed(producer: Producer, name: int, sent: list[str]) -> None:
    def send() -> None:
        for number in count():
            producer.send("insert", "video", f"{name}-{number}")
            sent.append(f"video/{name}-{number}")

    with pytest.raises(ValueError, match="the producer is closed"):
        send()


def test_close_under_load_delivers_every_operation_whose_send_returned(
    tmp_path: Path, produce: Producers
) -> None:
    with Agent(tmp_path) as agent:
        producer = produce(agent.url, max_buffered=50, batch_size=10)
        sent: list[list[str]] = [[] for _ in range(4)]
        threads = [
            threading.Thread(target=_send_until_closed, args=(producer, name, mine))
            for name, mine in enumerate(sent)
        ]
        for thread in threads:
            thread.start()
        assert wait_until(lambda: min(len(mine) for mine in sent) > 50)
        producer.close()
        for thread in threads:
            thread.join(DEADLINE)
        wanted = {key for mine in sent for key in mine}
        assert set(agent.replicate()) == wanted
        counters = producer.counters
        assert (counters.sent, counters.delivered, counters.buffered) == (
            len(wanted),
            len(wanted),
            0,
        )


def test_a_blocked_send_is_woken_with_an_error_when_the_producer_is_closed(
    produce: Producers,
) -> None:
    with ScriptedServer([None]) as server:
        producer = produce(server.url, max_buffered=1, backoff=FAST)
        producer.send("insert", "video", "first")
        told: list[str] = []

        def send() -> None:
            try:
                producer.send("insert", "video", "blocked")
            except ValueError as error:
                told.append(str(error))

        blocked = [threading.Thread(target=send) for _ in range(3)]
        for thread in blocked:
            thread.start()
        assert wait_until(lambda: producer.counters.retried > 2)
        with pytest.raises(FlushError, match="1 operations are not delivered"):
            producer.close(0.05)
        for thread in blocked:
            thread.join(DEADLINE)
        assert told == ["the producer is closed"] * 3
        assert producer.counters.sent == 1


def test_a_second_close_returns_at_once(produce: Producers) -> None:
    with ScriptedServer([None]) as server:
        producer = produce(server.url, backoff=FAST)
        producer.send("insert", "video", "lost")
        with pytest.raises(FlushError):
            producer.close(0.05)
        producer.close(None)
        with pytest.raises(FlushError, match="1 operations are not delivered"):
            producer.flush(None)  # its operations can no longer be delivered
        with pytest.raises(ValueError, match="closed"):
            producer.send("insert", "video", "late")


def test_a_close_beside_another_one_returns_when_all_is_delivered(produce: Producers) -> None:
    with ScriptedServer([None]) as server:
        producer = produce(server.url, backoff=FAST)
        producer.send("insert", "video", "a")
        closing = [threading.Thread(target=producer.close) for _ in range(3)]
        for thread in closing:
            thread.start()
        assert wait_until(lambda: producer.counters.retried > 2)
        assert [thread.is_alive() for thread in closing] == [True] * 3
        server.answer_with(OK)
        for thread in closing:
            thread.join(DEADLINE)
        assert producer.counters.delivered == 1


def test_close_raises_at_once_when_the_agent_refuses(produce: Producers) -> None:
    with ScriptedServer([REFUSED]) as server:
        producer = produce(server.url)
        producer.send("insert", "video", "a")
        with pytest.raises(FlushError, match="needs the password") as raised:
            producer.close(None)
        assert raised.value.pending == 1


def test_a_flush_may_take_for_ever(produce: Producers) -> None:
    with ScriptedServer([None, OK]) as server, produce(server.url, backoff=FAST) as producer:
        producer.send("insert", "video", "a")
        producer.flush(math.inf)
        assert producer.counters.delivered == 1


async def test_tasks_that_send_while_the_producer_is_closed_lose_nothing() -> None:
    with ScriptedServer([OK]) as server:
        sent = 0

        async def send() -> None:
            nonlocal sent
            while True:
                await producer.send("insert", "video", "a")
                sent += 1
                await asyncio.sleep(0)

        async with (
            AsyncProducer(server.url, max_buffered=20, batch_size=5) as producer,
            asyncio.timeout(DEADLINE),
        ):
            tasks = [asyncio.create_task(send()) for _ in range(8)]
            while sent < 100:
                await asyncio.sleep(0)
            await producer.close()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            assert [repr(end) for end in ends] == ["ValueError('the producer is closed')"] * 8
        assert sum(body.count(b"\n") + 1 for body in server.accepted) == sent


def test_udp_says_closed_to_every_sender() -> None:
    for producer in (Producer("udp://127.0.0.1:9"), Producer("http://127.0.0.1:9")):
        producer.close()
        producer.close()
        with pytest.raises(ValueError, match="the producer is closed"):
            producer.send("insert", "video", "a")


_FORGOTTEN = """
import sys, logging
logging.basicConfig()
from oplogc import Producer
producer = Producer(sys.argv[1], backoff=(0.01, 0.05), batch_size=100)
for number in range(3000):
    producer.send("insert", "video", str(number))
"""


def _forget(url: str, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, *options, "-c", _FORGOTTEN, url]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)


def test_a_producer_that_nobody_closed_is_flushed_at_the_end_of_the_program(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        # A name, not an address: at the end of an interpreter no thread can be started to look it
        # up.
        done = _forget(
            agent.url.replace("127.0.0.1", "localhost"), "-W", "default::ResourceWarning"
        )
        assert agent.status()["events_ingested"] == 3000
    assert done.returncode == 0
    assert "ResourceWarning: a producer was not closed" in done.stderr
    assert "Traceback" not in done.stderr


def test_operations_lost_at_the_end_of_the_program_are_told() -> None:
    code = f"from oplogc.process import at_exit\nat_exit.EXIT_SECONDS = 0.2\n{_FORGOTTEN}"
    command = [sys.executable, "-c", code, f"http://127.0.0.1:{free_port()}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
    assert "3000 operations are lost at the end of the program: close the producer" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_child_of_a_fork_does_not_flush_its_parents_buffer(tmp_path: Path) -> None:
    code = (
        f"{_FORGOTTEN}\nimport os\n"
        "if os.fork():\n    os.wait()\n    producer.close()\nelse:\n    sys.exit()"
    )
    with Agent(tmp_path) as agent:
        command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, agent.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
        assert (done.stderr, done.returncode) == ("", 0)
        assert agent.status()["events_ingested"] == 3000


def test_the_child_of_a_fork_goes_on_with_a_producer_that_was_used_before(tmp_path: Path) -> None:
    child = "producer.send('insert', 'video', 'child')\n    sys.exit()"  # without `close`
    code = (
        f"{_FORGOTTEN}\nimport os\nproducer.flush()\n"
        f"if os.fork():\n    os.wait()\n    producer.close()\nelse:\n    {child}"
    )
    with Agent(tmp_path) as agent:
        command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, agent.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
        assert (done.stderr, done.returncode) == ("", 0)
        assert agent.status()["events_ingested"] == 3001
        assert "video/child" in agent.replicate()


_FORK_AMONG_SENDERS = """
import os, sys, threading, time, warnings
from oplogc import Producer
warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork among threads
producer = Producer(sys.argv[1])
def send():
    for number in range(60_000):
        producer.send("insert", "video", "x")
threads = [threading.Thread(target=send) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(40):
    if os.fork() == 0:
        producer.send("insert", "video", "child")
        os._exit(0)
    assert os.wait()[1] == 0
for thread in threads:
    thread.join()
"""


def test_the_child_of_a_fork_never_waits_for_a_lock_of_its_parent() -> None:
    command = [sys.executable, "-c", _FORK_AMONG_SENDERS, "udp://127.0.0.1:9"]
    done = forked.run(command, capture_output=True, text=True, timeout=DEADLINE)
    assert (done.stderr, done.returncode) == ("", 0)


_SIGNALS = """
import signal, sys
from oplogc import Producer
producer = Producer(sys.argv[1])
handled = 0
def handle(*_):
    global handled
    handled += 1
    producer.send("insert", "video", "from the handler")
signal.signal(signal.SIGALRM, handle)
sent = 0
signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
while handled < 2000:
    producer.send("insert", "video", "from the program")
    sent += 1
signal.setitimer(signal.ITIMER_REAL, 0)
assert producer.counters.sent == sent + handled
"""


def test_a_signal_handler_may_send_over_udp() -> None:
    command = [sys.executable, "-c", _SIGNALS, "udp://127.0.0.1:9"]
    done = forked.run(command, capture_output=True, text=True, timeout=DEADLINE)
    assert (done.stderr, done.returncode) == ("", 0)


async def test_an_async_producer_is_opened_once(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        async with AsyncProducer(agent.url) as producer:
            with pytest.raises(ValueError, match="open already"):
                await producer.__aenter__()
            await producer.send("insert", "video", "a")
        with pytest.raises(ValueError, match="make another"):
            await producer.__aenter__()
        assert agent.status()["events_ingested"] == 1


def test_a_producer_that_nobody_holds_any_more_warns_and_still_delivers(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        producers = [Producer(agent.url)]
        for number in range(3):
            producers[0].send("insert", "video", str(number))
        with pytest.warns(
            ResourceWarning, match="was not closed: . operations are buffered for http"
        ):
            producers.clear()
        agent.wait_status(events_ingested=3)
        assert wait_until(
            lambda: all(thread.name != "oplogc-producer" for thread in threading.enumerate())
        )


def test_an_async_producer_that_nobody_closed_says_what_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        producer = AsyncProducer(f"http://127.0.0.1:{free_port()}")
        await producer.__aenter__()
        for number in range(3):
            await producer.send("insert", "video", str(number))
        while not producer.counters.retried:
            await asyncio.sleep(0)

    with pytest.warns(ResourceWarning, match="3 operations are lost"):
        asyncio.run(main())
    assert "3 operations are lost at the end of the event loop: close the producer" in caplog.text
