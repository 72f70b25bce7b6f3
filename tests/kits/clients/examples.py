"""The example programs in Go and PHP as processes."""

import json
import os
import subprocess
from typing import NamedTuple

from tests.kits.agents.agent import DEADLINE
from tests.kits.clients.following import Following

FAST = {"backoff": "0.01,0.02"}


class Example(NamedTuple):
    """Commands without flags. ``dash``: the beginning of a flag."""

    producer: list[str]
    consumer: list[str]
    dash: str

    def produce(
        self, url: str, operations: list[dict[str, object]] | bytes, **flags: str
    ) -> "subprocess.CompletedProcess[str]":
        """Run a producer. ``operations``: a list, or the raw input."""
        if not isinstance(operations, bytes):
            operations = b"".join(
                json.dumps(operation).encode() + b"\n" for operation in operations
            )
        return self.run([*self.producer, *self.flags(url=url, **flags)], operations)

    def consume(self, url: str, **flags: str) -> Following:
        command = [*self.consumer, *self.flags(url=url, **flags)]
        return Following(command, env={**os.environ, "OPLOG_PASSWORD": "geheim"})

    def consume_all(self, url: str, **flags: str) -> "subprocess.CompletedProcess[str]":
        """Run a consumer that ends by itself."""
        return self.run([*self.consumer, *self.flags(url=url, **flags)])

    def flags(self, **flags: str) -> list[str]:
        return [f"{self.dash}{name}={value}" for name, value in flags.items()]

    @staticmethod
    def run(command: list[str], lines: bytes = b"") -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            command,
            input=lines,
            capture_output=True,
            timeout=DEADLINE,
            env={**os.environ, "OPLOG_PASSWORD": "geheim"},
        )
        return subprocess.CompletedProcess(
            command, done.returncode, done.stdout.decode(), done.stderr.decode()
        )


def videos(first: int, count: int) -> list[dict[str, object]]:
    return [
        {"event": "insert", "type": "video", "id": f"ä/{n}", "parents": ["user/1", "user/2"]}
        for n in range(first, first + count)
    ]


def shown(first: int, count: int) -> list[str]:
    return [f"insert video/ä/{n} [user/1 user/2]" for n in range(first, first + count)]
