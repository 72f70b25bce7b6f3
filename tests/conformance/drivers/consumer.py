"""A consumer on the public API of oplogc, with ``for``; ``--async``: with ``async for``."""

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import time
from typing import Any

from oplogc import Consumer, Event, Operation, OplogError


def shown(event: Event) -> str:
    fields: dict[str, Any] = {"id": event.event_id, "event": event.event}
    if isinstance(event, Operation):
        fields |= {"type": event.type, "object": event.id, "parents": event.parents}
        fields["timestamp"] = event.timestamp.isoformat().replace("+00:00", "Z")
    return json.dumps(fields)


def names(text: str) -> list[str]:
    return text.split(",")


def pair(text: str) -> tuple[float, float]:
    first, last = map(float, text.split(","))
    return first, last


class Handler:
    def __init__(self, consumer: Consumer, count: int, delay: float) -> None:
        self.consumer = consumer
        self._delay = delay
        self.delay = 0.0
        self.left = count

    def __call__(self, event: Event) -> None:
        print(shown(event), flush=True)
        self.delay = self._delay
        self.consumer.ack(event)
        if isinstance(event, Operation):
            self.left -= 1
            if self.left == 0:
                self.consumer.stop()


def follow(consumer: Consumer, handle: Handler) -> None:
    with consumer:
        for event in consumer:
            time.sleep(handle.delay)
            handle(event)


async def follow_async(consumer: Consumer, handle: Handler) -> None:
    async with consumer:
        async for event in consumer:
            await asyncio.sleep(handle.delay)
            handle(event)


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--async", action="store_true", dest="in_asyncio")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--url", required=True)
    parser.add_argument("--start")
    parser.add_argument("--name")
    parser.add_argument("--shard")
    parser.add_argument("--state")
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--types", type=names, default=[])
    parser.add_argument("--parents", type=names, default=[])
    parser.add_argument("--timeout", type=float, default=10.0)
    parser.add_argument("--heartbeat-timeout", type=float, default=40.0)
    parser.add_argument("--backoff", type=pair, default=(1.0, 30.0))
    parser.add_argument("--handler-delay", type=float, default=0.0, help="from the second event on")
    given = parser.parse_args()
    logging.basicConfig(level=logging.DEBUG, format="%(name)s: %(message)s")
    try:
        consumer = Consumer(
            given.url,
            types=given.types,
            parents=given.parents,
            start=given.start,
            name=given.name,
            shard=given.shard,
            state_file=given.state,
            password=os.environ.get("OPLOG_PASSWORD"),
            timeout=given.timeout,
            heartbeat_timeout=given.heartbeat_timeout,
            backoff=given.backoff,
        )
        handle = Handler(consumer, given.count, given.handler_delay)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: consumer.stop())
        if given.in_asyncio:
            asyncio.run(follow_async(consumer, handle))
        else:
            follow(consumer, handle)
    except OplogError as error:
        sys.exit(str(error))
    except ValueError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
