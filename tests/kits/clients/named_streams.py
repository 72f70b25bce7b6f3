"""A server with the stream of a named consumer, which keeps the acknowledgements."""

from collections.abc import Sequence

from tests.kits.servers.request import Request
from tests.kits.servers.scripted import End, Reply, ScriptedServer, answer

ACKNOWLEDGED = b"HTTP/1.1 204 No Content\r\n\r\n"


def stale(term: int) -> bytes:
    """Return the refusal of a term that is over."""
    detail = f"shard 3 of the consumer search has term {term}, not 7: another reader has taken it"
    return answer("412 Precondition Failed", f'{{"detail":"{detail}"}}')


def head(*headers: str) -> bytes:
    lines = [
        "HTTP/1.1 200 OK",
        "Content-Type: text/event-stream",
        "Connection: close",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


HEAD = head("OPLOG-Term: 7", "Oplog-Shard: 3/8")


class NamedStreams(ScriptedServer):
    """Answers each GET with the next of ``streams``, and holds the last one open.

    A stream is what follows ``HEAD``, or a whole answer. ``acks``: answers to the acknowledgements,
    the last one for all others.
    """

    def __init__(self, *streams: bytes, acks: Sequence[Reply] = (ACKNOWLEDGED,)) -> None:
        super().__init__(self._answer)
        self._streams = list(streams)
        self.acks = list(acks)

    @property
    def gets(self) -> list[Request]:
        return [each for each in self.requests if each.method == "GET"]

    @property
    def acknowledged(self) -> list[str]:
        """Return the id in each acknowledgement."""
        return [each.json["id"] for each in self.requests if each.method == "POST"]

    def _answer(self, request: Request) -> Reply:
        if request.method == "POST":
            assert request.path == "/v1/consumers/search/position"
            return self.acks.pop(0) if len(self.acks) > 1 else self.acks[0]
        assert request.path == "/v1/consumers/search/stream"
        stream = self._streams.pop(0)
        if stream.startswith(b"HTTP/"):
            return stream
        return [HEAD, stream, *([] if self._streams else [End.HOLD])]
