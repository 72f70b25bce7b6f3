"""A server with transactions that answers some requests as a test says, and the others well."""

import asyncio
import json
from collections.abc import Sequence

from tests.clients.chaos import Server, answer

TXN = "4611686018427387905"
BEGUN = answer("201 Created", json.dumps({"txn": TXN, "expires_at": "2026-01-31T12:00:00.000Z"}))
SHOWN = answer("200 OK", json.dumps({"txn": TXN, "state": "open"}))
Answers = Sequence[bytes | None]


def id_of(lsn: int) -> str:
    return f"{lsn + 1:040x}"


def refused(status: str, detail: str) -> bytes:
    return answer(status, json.dumps({"detail": detail}))


class TransactionServer(Server):
    """``begin``, ``records``, ``commit``, ``abort``: answers to the first requests of this kind.

    They are raw bytes, or None to hang up without one. ``repeat``: the last of them is repeated.

    ``calls`` and ``bodies`` are the last parts of the addresses and the bodies, in order.
    """

    def __init__(
        self,
        begin: Answers = (),
        records: Answers = (),
        commit: Answers = (),
        abort: Answers = (),
        repeat: bool = False,
    ) -> None:
        super().__init__(self._answer)
        self._planned = {
            "txns": [*begin],
            "records": [*records],
            "commit": [*commit],
            "abort": [*abort],
        }
        self._repeat = repeat
        self._held: set[str] = set()
        self._released = asyncio.Event()
        self.heads: list[str] = []
        self.calls: list[str] = []
        self.bodies: list[bytes] = []

    @property
    def lsns(self) -> list[list[int]]:
        """Return the lsns of each request with records."""
        return [
            [record["lsn"] for record in json.loads(body)["records"]]
            for call, body in zip(self.calls, self.bodies, strict=True)
            if call == "records"
        ]

    def hold(self, *calls: str) -> None:
        """Answer these calls after ``release``."""
        self._held.update(calls)

    def release(self) -> None:
        self._held.clear()
        self._loop.call_soon_threadsafe(self._released.set)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = head.lower().partition("content-length: ")[2].partition("\r\n")[0]
            body = await reader.readexactly(int(length or 0))
            call = head.split()[1].partition("?")[0].rpartition("/")[2]
            self.heads.append(head)
            self.bodies.append(body)
            self.calls.append(call)
            if call in self._held:
                await self._released.wait()
            planned = self._planned[call]
            if not planned:
                given: bytes | None = self._good(call, body)
            elif self._repeat and len(planned) == 1:
                given = planned[0]
            else:
                given = planned.pop(0)
            if given is None:
                return
            writer.write(given)
            await writer.drain()

    @staticmethod
    def _good(call: str, body: bytes) -> bytes:
        if call == "txns":
            return BEGUN
        if call != "commit":
            return SHOWN
        ids = [id_of(lsn) for lsn in range(json.loads(body)["records"])]
        return answer("200 OK", json.dumps({"begin": "0b", "commit": "0c", "records": ids}))
