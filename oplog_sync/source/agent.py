"""Read an agent's event stream as rows, with the standard library only: it runs in workers."""

import base64
import http.client
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple
from urllib.parse import unquote, urlsplit

from oplog_sync.backend import StoreRow
from oplog_sync.errors import SyncError
from oplogd.model.event_id import EventId, Millis, parse_position
from oplogd.store import decode_stored

# Longest silence of an agent. It sends a heartbeat at least every 25 s.
SILENCE_SECONDS = 60.0

_CHUNK = 10_000

# "reset": discard everything read before; the states that follow are complete.
ChunkKind = Literal["operations", "states", "reset"]


class _Block(NamedTuple):
    id: str
    event: str
    data: str


class AgentStream:
    """Reads the stream of one agent. No message shows the credentials in ``url``.

    ``password``: the agent's --password, instead of the one in ``url``.
    """

    def __init__(self, url: str, password: str | None) -> None:
        self._url = url
        self._password = password
        self._shown = re.sub(r"//.*@", "//", url, flags=re.DOTALL).partition("?")[0]

    def position(self) -> str:
        """Return the id of the log's newest entry. Raises SyncError."""
        with self._stream(None) as blocks:
            for block in blocks:
                if not block.event:
                    return block.id
        raise SyncError(f"agent {self._shown}: it ended the stream before it sent its position")

    def read(self, start: str, end: str) -> Iterator[tuple[ChunkKind, list[StoreRow]]]:
        """Yield the rows after ``start`` up to ``end`` in chunks. A "reset" has no rows.

        Raises SyncError.
        """
        target = parse_position(end)
        kind: ChunkKind = "operations"
        rows: list[StoreRow] = []
        with self._stream(start) as blocks:
            for block in blocks:
                position = parse_position(block.id)
                if block.event == "reset":
                    yield "reset", []
                    continue
                if block.event in ("insert", "update", "delete"):
                    found: ChunkKind = "states" if isinstance(position, Millis) else "operations"
                    if rows and (found != kind or len(rows) >= _CHUNK):
                        yield kind, rows
                        rows = []
                    kind = found
                    if not is_past(position, target):
                        rows.append(_row(block, position))
                    if kind == "states":
                        continue
                # An operation, `live` or a checkpoint: the agent has sent everything up to this id.
                if block.id == end or isinstance(target, Millis) or is_past(position, target):
                    break
                if block.event == "live" and isinstance(position, Millis):
                    break  # the log is empty: the states are complete
            else:
                raise SyncError(
                    f"agent {self._shown}: it ended the stream before {end}; read the batch again"
                )
        if rows:
            yield kind, rows

    @contextmanager
    def _stream(self, last_event_id: str | None) -> Iterator[Iterator[_Block]]:
        try:
            url = urlsplit(self._url)
            host, port = url.hostname, url.port
        except ValueError:
            host = None
        if host is None or url.scheme not in ("http", "https"):
            fault = "is not the http:// or https:// address of an agent"
            raise SyncError(f"option agent: {self._shown!r} {fault}")
        headers = {"Accept": "text/event-stream"}
        if last_event_id is not None:
            headers["Last-Event-ID"] = last_event_id
        user, password = unquote(url.username or ""), self._password or unquote(url.password or "")
        if user or password:
            credentials = base64.b64encode(f"{user}:{password}".encode())
            headers["Authorization"] = f"Basic {credentials.decode()}"
        is_https = url.scheme == "https"
        connect = http.client.HTTPSConnection if is_https else http.client.HTTPConnection
        connection = connect(host, port, timeout=SILENCE_SECONDS)
        path = url.path.rstrip("/") + "/ops?checkpoint=1&name=oplog-sync"
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            if response.status != 200:
                answer = f"{response.status} {response.reason}"
                raise SyncError(f"agent {self._shown}: it answered {answer}")
            yield _blocks(response)
        except (OSError, http.client.HTTPException) as error:
            raise SyncError(f"agent {self._shown}: it does not answer: {error}") from error
        finally:
            connection.close()


def _blocks(response: http.client.HTTPResponse) -> Iterator[_Block]:
    fields = {"id": "", "event": "", "data": ""}
    while line := response.readline():
        text = line.rstrip(b"\n").decode()
        if not text:
            if fields["id"]:
                yield _Block(**fields)
            fields = {"id": "", "event": "", "data": ""}
        elif not text.startswith(":"):
            name, _, value = text.partition(":")
            fields[name] = value.removeprefix(" ")


def is_past(position: EventId | Millis, target: EventId | Millis) -> bool:
    """Return whether both are event ids and ``position`` has the larger offset."""
    if isinstance(position, EventId) and isinstance(target, EventId):
        return position.offset > target.offset
    return False


def _row(block: _Block, position: EventId | Millis) -> StoreRow:
    data = decode_stored(block.data)
    offset = position.offset if isinstance(position, EventId) else 0
    return StoreRow(f"{data.type}/{data.id}", block.event, offset, position.ms, block.data)
