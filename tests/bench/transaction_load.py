"""Transactions for ``bench_transactions``: ``python -m tests.bench.transaction_load KIND ...``.

Each connection runs one transaction after another. Prints one line of JSON: how often a transaction
took so many ms, from its begin to the answer to its commit.
"""

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import uvloop

from tests.bench.topic_load import (
    PAYLOAD_BYTES,
    WARM_UP_SECONDS,
    Caller,
    counted,
    http_answer,
    http_request,
    run_callers,
)


class Connection:
    """Makes the requests of one connection. ``took``: durations in ms."""

    def __init__(self, kind: str, topics: int, records: int, seconds: float) -> None:
        self._begins_at = time.monotonic() + WARM_UP_SECONDS
        self._ends_at = self._begins_at + seconds
        self._records = records
        self._answer = b""
        self.took: list[float] = []
        if kind == "redis":
            self._prepared = redis_transaction(topics, records)
            self._steps = self._redis
        else:
            self._prepared = records_body(topics, records)
            self._steps = self._whole if kind == "whole" else self._agent

    def requests(self) -> Iterator[bytes]:
        while (began := time.monotonic()) < self._ends_at:
            yield from self._steps()
            ended = time.monotonic()
            if self._begins_at < ended < self._ends_at:
                self.took.append(1000 * (ended - began))

    def answered(self, _: float, body: bytes) -> None:
        self._answer = body

    def whole(self, received: bytes) -> bytes | None:
        if self._steps != self._redis:
            return http_answer(received)
        # OK, QUEUED for each command, then the list of their answers, two lines each.
        return None if received.count(b"\n") < 3 * self._records + 2 else received

    def _agent(self) -> Iterator[bytes]:
        yield http_request("/v1/txns", b"{}")
        path = f"/v1/txns/{json.loads(self._answer)['txn']}"
        yield http_request(f"{path}/records", self._prepared)
        yield http_request(f"{path}/commit", b'{"records":%d}' % self._records)

    def _whole(self) -> Iterator[bytes]:
        yield http_request("/v1/txns", self._prepared)

    def _redis(self) -> Iterator[bytes]:
        yield self._prepared


def records_body(topics: int, records: int) -> bytes:
    made = [
        {"topic": f"bench/t{lsn % topics}", "lsn": lsn, "payload": "x" * PAYLOAD_BYTES}
        for lsn in range(records)
    ]
    return json.dumps({"records": made}).encode()


def redis_transaction(topics: int, records: int) -> bytes:
    commands = [[b"MULTI"]]
    for lsn in range(records):
        commands.append([b"XADD", b"t%d" % (lsn % topics), b"*", b"payload", b"x" * PAYLOAD_BYTES])
    commands.append([b"EXEC"])
    return b"".join(
        b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(each), each) for each in parts)
        for parts in commands
    )


async def run(
    kind: str, port: int, connections: int, topics: int, records: int, seconds: float
) -> dict[str, Any]:
    made = [Connection(kind, topics, records, seconds) for _ in range(connections)]
    await run_callers(port, [Caller(each.requests(), each.whole, each.answered) for each in made])
    return {"latencies": counted(ms for each in made for ms in each.took)}


def main(kind: str, *arguments: str) -> None:
    port, connections, topics, records = map(int, arguments[:4])
    print(
        json.dumps(uvloop.run(run(kind, port, connections, topics, records, float(arguments[4]))))
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
