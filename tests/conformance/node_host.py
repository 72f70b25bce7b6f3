"""One Node that plays many consumers and producers at once, each with a client of its own."""

import asyncio
import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.conformance.clients import DRIVERS, ENVIRONMENT, found
from tests.kits.agents.agent import DEADLINE


class Hosted:
    """A client in the host, with what it prints."""

    def __init__(self) -> None:
        self.stdout, self.stderr = asyncio.StreamReader(), asyncio.StreamReader()
        self.exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def end(self, code: int) -> None:
        if not self.exit.done():
            self.exit.set_result(code)
            self.stdout.feed_eof()
            self.stderr.feed_eof()


class NodeHost:
    """The process ends by itself once all clients have ended: none leaves anything behind."""

    def __init__(self) -> None:
        self._runs: list[Hosted] = []

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            found("node"), str(DRIVERS / "host.mjs"), env=ENVIRONMENT, limit=1 << 24,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        all_ended = all(run.exit.done() for run in self._runs)
        try:
            async with asyncio.timeout(DEADLINE if all_ended else 0):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
        code = await self._process.wait()
        await self._reader
        assert code == 0 or not all_ended, "a client that has ended keeps the process alive"

    def start(
        self, role: str, arguments: Sequence[str], folder: Path, password: str | None, given: bytes
    ) -> Hosted:
        assert self._process.stdin
        line = json.dumps(
            {
                "run": len(self._runs),
                "role": role,
                "args": arguments,
                "folder": str(folder),
                "password": password or None,
                "input": base64.b64encode(given).decode(),
            }
        )
        self._runs.append(Hosted())
        self._process.stdin.write(f"{line}\n".encode())
        return self._runs[-1]

    async def _read(self) -> None:
        assert self._process.stdout
        async for line in self._process.stdout:
            fact = json.loads(line)
            run = self._runs[fact["run"]]
            run.stdout.feed_data(fact.get("out", "").encode())
            run.stderr.feed_data(fact.get("err", "").encode())
            if "exit" in fact:
                run.end(fact["exit"])
        for run in self._runs:  # those that have not ended: the process has
            run.end(-1)
