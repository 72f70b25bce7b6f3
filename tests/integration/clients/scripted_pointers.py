"""A scripted server with pointers."""

import json
from collections.abc import Mapping

from tests.kits.servers.request import Request
from tests.kits.servers.scripted import ModelServer, Replies, answer

OK = answer("200 OK")
# Milliseconds of all entries that it publishes. Their sequences count the entries.
MS = 1_790_000_000_000


def published(pointer: int, *sequences: int) -> bytes:
    """Return the answer to a publish."""
    places = [{"publishTimestamp": MS, "sequenceId": sequence} for sequence in sequences]
    return answer("200 OK", json.dumps({"transactionWritePointer": pointer, "messages": places}))


def key(sequence: int) -> str:
    return f"{MS:016x}{sequence:04x}"


class PointerServer(ModelServer):
    """Verbs are publish, store, rollback, ..."""

    def __init__(self, planned: Mapping[str, Replies] = {}, *, repeat: bool = False) -> None:
        super().__init__(planned, repeat=repeat)
        self._sequence = 0

    @property
    def calls(self) -> list[str]:
        """Return the topic or the pointer, and the verb, of each request."""
        return [f"{_name(each)} {each.verb}" for each in self.requests]

    def payloads(self, verb: str) -> list[tuple[str, list[object]]]:
        """Return the topic and the messages of each request of a verb."""
        return [
            (_name(each), list(each.json["messages"]))
            for each in self.requests
            if each.verb == verb
        ]

    def answer_well(self, request: Request) -> bytes:
        if request.verb in ("store", "rollback"):
            return OK
        if request.verb != "publish":
            return answer("200 OK", "{}")
        body = request.json
        count = max(len(body["messages"]), 1)
        first, self._sequence = self._sequence, self._sequence + count
        return published(int(body["transactionWritePointer"]), *range(first, first + count))


def _name(request: Request) -> str:
    return request.path.split("/")[-2]
