"""Sends the lines of its input with the public API of oplogc; ``--async``: ``AsyncProducer``."""

import argparse
import asyncio
import json
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from oplogc import AsyncProducer, OplogError, Producer

_POLL = 0.05
# Room of a producer whose senders must wait.
FULL = 10


class Input:
    """Numbered lines of stdin, until its end or SIGTERM. ``bad``: number of invalid lines."""

    def __init__(self) -> None:
        self.ended = False
        self.bad = 0
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, *_: object) -> None:
        self.ended = True

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        number, partial = 0, b""
        while not self.ended:
            if not select.select([0], [], [], _POLL)[0]:
                continue
            raw = os.read(0, 65536)
            *lines, partial = (partial + raw).split(b"\n")
            if not raw:
                self.ended = True
                lines = [partial] if partial else []
            for line in lines:
                number += 1
                yield number, line

    def tell(self, number: int, error: Exception) -> None:
        self.bad += 1
        print(f"line {number}: {error}", file=sys.stderr)


def arguments(line: bytes) -> dict[str, Any]:
    """Arguments of ``send``. Raises ValueError."""
    given = json.loads(line)
    if not isinstance(given, dict):
        raise ValueError("no JSON object")
    fields = {"event": "", "type": "", "id": "", **given}
    if isinstance(time := fields.get("timestamp"), str):
        fields["timestamp"] = datetime.fromisoformat(time)
    return fields


def send_all(producer: Producer, given: Input) -> None:
    with producer:
        for number, line in given:
            try:
                producer.send(**arguments(line))
            except (ValueError, TypeError) as error:
                given.tell(number, error)


async def send_all_async(producer: AsyncProducer, given: Input) -> None:
    async with producer:
        for number, line in given:
            try:
                await producer.send(**arguments(line))
            except (ValueError, TypeError) as error:
                given.tell(number, error)


def send_from_many(producer: Producer, senders: int) -> None:
    """Send from several threads and close meanwhile. Print the ids that ``send`` took."""
    taken: list[list[str]] = [[] for _ in range(senders)]

    def work(mine: int) -> None:
        try:
            for number in range(1_000_000):
                producer.send("insert", "video", f"{mine}-{number}")
                taken[mine].append(f"{mine}-{number}")
        except (ValueError, OplogError):
            return

    threads = [threading.Thread(target=work, args=(mine,)) for mine in range(senders)]
    for thread in threads:
        thread.start()
    while producer.counters.delivered == 0:
        time.sleep(0.001)
    producer.close()
    for thread in threads:
        thread.join()
    producer.close()
    print(json.dumps({"taken": [id_ for mine in taken for id_ in mine]}), flush=True)


async def send_from_many_async(producer: AsyncProducer, senders: int) -> None:
    taken: list[list[str]] = [[] for _ in range(senders)]

    async def work(mine: int) -> None:
        try:
            for number in range(1_000_000):
                await producer.send("insert", "video", f"{mine}-{number}")
                taken[mine].append(f"{mine}-{number}")
                await asyncio.sleep(0)
        except (ValueError, OplogError):
            return

    async with producer:
        tasks = [asyncio.create_task(work(mine)) for mine in range(senders)]
        while producer.counters.delivered == 0:
            await asyncio.sleep(0.001)
        await producer.close()
        await asyncio.gather(*tasks)
    print(json.dumps({"taken": [id_ for mine in taken for id_ in mine]}), flush=True)


def close_while_full(producer: Producer, senders: int, timeout: float) -> None:
    """Close while senders wait for room. Print how many of them end with an error."""
    woken: list[int] = []

    def work(mine: int) -> None:
        try:
            while True:
                producer.send("insert", "video", "x")
        except (ValueError, OplogError):
            woken.append(mine)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in range(senders)]
    for thread in threads:
        thread.start()
    while producer.counters.buffered < FULL:
        time.sleep(0.001)
    try:
        producer.close(timeout)
    finally:
        for thread in threads:
            thread.join()
        producer.close(None)
        print(json.dumps({"woken": len(woken)}), flush=True)


async def close_while_full_async(producer: AsyncProducer, senders: int, timeout: float) -> None:
    woken: list[int] = []

    async def work(mine: int) -> None:
        try:
            while True:
                await producer.send("insert", "video", "x")
        except (ValueError, OplogError):
            woken.append(mine)

    async with producer:
        tasks = [asyncio.create_task(work(mine)) for mine in range(senders)]
        while producer.counters.buffered < FULL:
            await asyncio.sleep(0.001)
        try:
            await producer.close(timeout)
        finally:
            await asyncio.gather(*tasks)
            await producer.close(None)
            print(json.dumps({"woken": len(woken)}), flush=True)


def pair(text: str) -> tuple[float, float]:
    first, last = map(float, text.split(","))
    return first, last


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--async", action="store_true", dest="in_asyncio")
    parser.add_argument("--url", required=True)
    parser.add_argument("--timeout", type=float, default=30.0)
    parser.add_argument("--backoff", type=pair, default=(1.0, 30.0))
    parser.add_argument("--senders", type=int, default=0)
    parser.add_argument("--close-timeout", type=float, help="close while the senders wait for room")
    flags = parser.parse_args()
    logging.basicConfig(level=logging.DEBUG, format="%(name)s: %(message)s")
    given = Input()
    make = AsyncProducer if flags.in_asyncio else Producer
    try:
        producer = make(
            flags.url,
            password=os.environ.get("OPLOG_PASSWORD"),
            timeout=flags.timeout,
            backoff=flags.backoff,
            max_buffered=FULL if flags.close_timeout else 10_000,
            overflow="block",
        )
        if isinstance(producer, AsyncProducer) and flags.close_timeout:
            asyncio.run(close_while_full_async(producer, flags.senders, flags.close_timeout))
        elif isinstance(producer, AsyncProducer):
            many = (
                send_from_many_async(producer, flags.senders)
                if flags.senders
                else send_all_async(producer, given)
            )
            asyncio.run(many)
        elif flags.close_timeout:
            close_while_full(producer, flags.senders, flags.close_timeout)
        elif flags.senders:
            send_from_many(producer, flags.senders)
        else:
            send_all(producer, given)
    except (OplogError, OSError) as error:
        sys.exit(str(error))
    except ValueError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    counters = producer.counters
    sys.exit(1 if given.bad or counters.rejected or counters.dropped else 0)


if __name__ == "__main__":
    main()
