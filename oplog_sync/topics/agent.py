"""Reads a topic through agents, one task per batch.

The driver plans by the entries that an agent lists, without their messages. The task polls.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

import msgspec
from pyspark.sql.datasource import InputPartition

from oplog_sync.arrow import milliseconds
from oplog_sync.errors import MessagesGoneError, SyncError, UnreachableError
from oplog_sync.topics.place import SeenEntry, TopicHead, TopicMessage, seen_entry
from oplog_sync.topics.position import (
    GAP_ADVICE,
    OLDEST_ID,
    Position,
    TopicOptions,
    begin_in,
    offset_before,
)
from oplogd.model.event_id import Mark
from oplogd.model.isolation import Reading
from oplogd.model.message import Content
from oplogd.model.message_id import parse_message_id
from oplogd.model.names import TopicName
from oplogd.model.operation import parse_timestamp
from oplogd.model.pointer import Decision, by_decisions

# Entries of one request, the most an agent lists. Messages of a poll: it answers with fewer.
_PAGE = 1_000
_MOST_MESSAGES = 100_000

_T = TypeVar("_T")
_NO_MARK = Mark(0, 0)
_ID = b"id: "
_DECISIONS = frozenset(each.value for each in Decision)


class AgentAnswer(Protocol):
    """The answer of an agent: a success."""

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def body(self) -> bytes: ...


class AgentStream(Protocol):
    """The open answer of an agent: a stream of events."""

    def getheader(self, name: str) -> str | None: ...

    def readline(self) -> bytes: ...


class AgentClient(Protocol):
    """Asks one of several agents on a store. Can be pickled.

    Raises UnreachableError if none answers now, and AgentRefusedError if one refuses the request.
    """

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> AgentAnswer:
        """``body``: bytes, or sent as JSON."""

    @property
    def answered(self) -> str:
        """The address of the agent that gave the last answer."""

    def close(self) -> None: ...


class StreamingClient(AgentClient, Protocol):
    """Follows streams, too."""

    def stream(self, path: str, headers: Mapping[str, str]) -> AbstractContextManager[AgentStream]:
        """Open a stream. An error of the connection in the block is UnreachableError."""


class Retrying(Protocol):
    """Calls until agents answer, or for so long that it raises UnreachableError."""

    def __call__(self, call: Callable[[], _T], /) -> _T: ...


class _Polled(Content, frozen=True, kw_only=True):
    id: str


_decode_polled = msgspec.json.Decoder(list[_Polled]).decode


@dataclass
class TopicPart(InputPartition):
    """The messages after ``start`` up to ``end``. ``may_lack``: a gap is no error."""

    start: Position
    end: Position
    may_lack: bool


class AgentTopic:
    """See ``TopicPlace``."""

    def __init__(self, agents: StreamingClient, options: TopicOptions, retry: Retrying) -> None:
        """``retry``: for the requests of tasks. The driver asks once."""
        self._agents = agents
        self._options = options
        self._retry = retry
        self._path = path_of(options.name)

    def head(self) -> TopicHead:
        answer = self._newest()
        found = msgspec.json.decode(answer.body)
        return TopicHead(_mark(found[-1]), _store(answer)) if found else self._front()

    def front(self) -> Mark:
        return self._front().mark

    def _front(self) -> TopicHead:
        """Only a stream tells it: its first id, before the oldest message."""
        path = f"{self._path}/stream?last_event_id=0&checkpoint=1&name=oplog-sync"
        with self._agents.stream(path, {"Accept": "text/event-stream"}) as stream:
            while line := stream.readline():
                if line.startswith(_ID):
                    id_ = parse_message_id(line[len(_ID) :].strip().decode())
                    return TopicHead(Mark(0, id_.ms, id_.sequence), stream.getheader("Oplog-Store"))
        raise UnreachableError("an agent ended its stream; it is stopping")

    def locate(self, ms: int, sequence: int) -> Mark:
        """Search among the entries: some thirty requests."""
        first, last = self._get("entries?after=0&limit=1"), self._get("entries?limit=1")
        if not first or not last:
            return _NO_MARK
        low, high = _mark(first[0]), _mark(last[-1])
        if (low.ms, low.sequence) > (ms, sequence):
            return _NO_MARK
        if (high.ms, high.sequence) <= (ms, sequence):
            return high
        while high.offset - low.offset > 1:
            middle = (low.offset + high.offset) // 2
            found = self._get(f"entries?after={middle - 1}&limit=1")
            mark = _mark(found[0]) if found else high
            if (mark.ms, mark.sequence) <= (ms, sequence):
                low = mark
            else:
                high = mark if mark.offset <= middle else high._replace(offset=middle)
        return low

    def offset_at(self, position: Position) -> int:
        """Use the offset in the position if this entry is still the same."""
        id_ = position.message_id
        if id_ is None:
            return 0
        offset = position.offset
        found = self._get(f"entries?after={offset - 1}&limit=1") if offset > 0 else []
        mark = _mark(found[0]) if found else _NO_MARK
        if mark.offset != offset or (mark.ms, mark.sequence) != id_[:2]:
            mark = self.locate(id_.ms, id_.sequence)
        return offset_before(id_, mark)

    def first_open_ms(self) -> int | None:
        query = f"pointers?limit={_PAGE}"
        while True:
            answer = self._agents.ask("GET", f"{self._path}/{query}")
            for each in msgspec.json.decode(answer.body):  # the oldest first
                if each["published"]:
                    return milliseconds(parse_timestamp(each["begun_at"]))
            headers = {name.lower(): value for name, value in answer.headers.items()}
            if (after := headers.get("oplog-next")) is None:
                return None
            query = f"pointers?limit={_PAGE}&after={quote(after)}"

    def walk(self, after: int, upto: int) -> Iterator[Sequence[SeenEntry]]:
        while after < upto and (found := self._get(f"entries?after={after}&limit={_PAGE}")):
            seen = [self._seen(each) for each in found if each["offset"] <= upto]
            yield seen
            after = found[-1]["offset"]

    def plan(self, start: Position, end: Position) -> Sequence[InputPartition]:
        if end.message_id is None:
            return []
        may_lack = start.message_id is None or not self._options.fails_on_gap
        return [TopicPart(start, end, may_lack)]

    def read(self, part: InputPartition) -> Iterator[list[TopicMessage]]:
        """Poll up to the end. An empty answer counts once the agent has shown its newest entry.

        The memory of an agent never ends before an entry that it has shown. So it also has the
        decisions by which the driver planned.
        """
        assert isinstance(part, TopicPart)
        # The agent that has shown its newest entry since the last message.
        shown: str | None = None
        position = part.start
        while True:
            answer = self._retry(partial(self._poll, position.id))
            begin = begin_in(_store(answer), position, part.end, self._options)
            if begin is None:
                return
            if begin != position:
                position = begin
                continue
            messages = _decode_polled(answer.body)
            headers = {name.lower() for name in answer.headers}
            if "oplog-gap" in headers and not part.may_lack:
                raise MessagesGoneError(
                    f"position {position.id} has left the topic {self._options.name}; {GAP_ADVICE}"
                )
            rows = [TopicMessage(each.id, each) for each in messages if each.id <= part.end.id]
            if rows:
                yield rows
                position, shown = Position(rows[-1].id, 0, 0), None
            if len(rows) < len(messages) or position.id == part.end.id:
                return
            if rows:
                continue
            if shown == self._agents.answered:
                if "oplog-held-by" in headers:
                    self._retry(partial(self._require_decided, position.id, part.end.id))
                return
            self._retry(self._newest)
            shown = self._agents.answered

    def close(self) -> None:
        self._agents.close()

    def _poll(self, position: str) -> AgentAnswer:
        request = {
            "startFrom": None if position == OLDEST_ID else position,
            "inclusive": False,
            "limit": _MOST_MESSAGES,
            "isolation": self._options.isolation.value,
        }
        return self._agents.ask("POST", f"{self._path}/poll", request)

    def _require_decided(self, start: str, end: str) -> None:
        """Raise SyncError if a message up to ``end`` waits for a decision: clocks have stepped."""
        first, last = (self.offset_at(Position(id_, 0, 0)) for id_ in (start, end))
        if any(entry.is_held for page in self.walk(first, last) for entry in page):
            raise SyncError(
                f"topic {self._options.name}: a message before {end} waits for the decision about "
                "its pointer; read it again"
            )

    def _newest(self) -> AgentAnswer:
        return self._agents.ask("GET", f"{self._path}/entries?limit=1")

    def _get(self, query: str) -> list[dict[str, Any]]:
        body = self._agents.ask("GET", f"{self._path}/{query}").body
        found: list[dict[str, Any]] = msgspec.json.decode(body)
        return found

    def _seen(self, entry: Mapping[str, Any]) -> SeenEntry:
        pointer = entry.get("pointer")
        verdict = Reading.HOLD
        if pointer is not None and entry["state"] in _DECISIONS:
            verdict = by_decisions({0: Decision(entry["state"])})(0)
        records = entry.get("records", 0)
        return seen_entry(_mark(entry), entry["kind"], self._options.isolation, verdict, records)


def _store(answer: AgentAnswer) -> str | None:
    """Return the identity of the agent's store, None if it does not tell it."""
    return {name.lower(): value for name, value in answer.headers.items()}.get("oplog-store")


def path_of(name: TopicName) -> str:
    return f"/v1/namespaces/{name.namespace}/topics/{name.topic}"


def _mark(entry: Mapping[str, Any]) -> Mark:
    id_ = entry["id"]
    return Mark(entry["offset"], int(id_[:16], 16), int(id_[16:], 16))
