"""A server with pointers that answers some requests as a test says, and the others well."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.clients.chaos import Server, answer

OK = answer("200 OK")
# Milliseconds of all entries that it publishes. Their sequences count the entries.
MS = 1_790_000_000_000


class Asked(NamedTuple):
    """A request: the topic or the pointer in its address, its last part, and its body."""

    name: str
    verb: str
    body: dict[str, object]


def published(pointer: int, *sequences: int) -> bytes:
    """Return the answer to a publish."""
    places = [{"publishTimestamp": MS, "sequenceId": sequence} for sequence in sequences]
    return answer("200 OK", json.dumps({"transactionWritePointer": pointer, "messages": places}))


def key(sequence: int) -> str:
    return f"{MS:016x}{sequence:04x}"


class PointerServer(Server):
    """``planned``: answers to the first requests of each verb: publish, store, rollback, ...

    They are raw bytes, or None to hang up without one. ``repeat``: the last one is repeated.
    """

    def __init__(
        self, planned: Mapping[str, Sequence[bytes | None]] = {}, *, repeat: bool = False
    ) -> None:
        super().__init__(self._answer)
        self._planned = {verb: [*answers] for verb, answers in planned.items()}
        self._repeat = repeat
        self._sequence = 0
        self.held: set[str] = set()
        """Verbs that are not answered."""
        self.asked: list[Asked] = []
        self.targets: list[str] = []

    @property
    def calls(self) -> list[str]:
        """Return the topic and the verb of each request."""
        return [f"{each.name} {each.verb}" for each in self.asked]

    def payloads(self, verb: str) -> list[tuple[str, list[object]]]:
        """Return the topic and the messages of each request of a verb."""
        return [
            (each.name, list(each.body["messages"]))  # type: ignore[call-overload]
            for each in self.asked
            if each.verb == verb
        ]

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = head.lower().partition("content-length: ")[2].partition("\r\n")[0]
            body = await reader.readexactly(int(length or 0))
            target = head.split()[1]
            *_, name, verb = urlsplit(target).path.split("/")
            asked = Asked(name, verb, json.loads(body) if body else {})
            self.targets.append(target)
            self.asked.append(asked)
            if verb in self.held:
                await asyncio.Event().wait()
            planned = self._planned.get(verb)
            if not planned:
                given: bytes | None = self._good(asked)
            else:
                given = planned[0] if self._repeat and len(planned) == 1 else planned.pop(0)
            if given is None:
                return
            writer.write(given)
            await writer.drain()

    def _good(self, asked: Asked) -> bytes:
        if asked.verb in ("store", "rollback"):
            return OK
        if asked.verb != "publish":
            return answer("200 OK", "{}")
        count = max(len(asked.body["messages"]), 1)  # type: ignore[arg-type]
        first, self._sequence = self._sequence, self._sequence + count
        return published(
            int(str(asked.body["transactionWritePointer"])), *range(first, first + count)
        )
