"""Reads of a topic through agents that lag behind, change and go away."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import pytest

from oplog_sync.errors import MessagesGoneError, SyncError, UnreachableError
from oplog_sync.topics.agent import AgentTopic, TopicPart
from oplog_sync.topics.place import TopicHead
from oplog_sync.topics.position import OLDEST, Position, TopicOptions
from oplogd.model.event_id import Mark
from oplogd.model.message_id import MessageId, end_id
from oplogd.model.names import TopicName

START_MS = 1_700_000_000_000
STORE, OTHER = 32 * "a", 32 * "b"

_T = TypeVar("_T")


class Sent(NamedTuple):
    """See ``AgentAnswer``."""

    headers: Mapping[str, str]
    body: bytes


class Stream:
    """See ``AgentStream``: its lines, then its end."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines = [*lines]

    def getheader(self, name: str) -> str | None:
        return {"Oplog-Store": STORE}.get(name)

    def readline(self) -> bytes:
        return self._lines.pop(0) if self._lines else b""


class Agents:
    """See ``AgentClient``. Answers polls one after another, and lists ``entries``.

    An answer to a poll: the offsets of its messages, or headers without a message. ``moves``: the
    other agent answers from the poll with this number on. ``stores``: of the answers to polls, the
    last one of all others.
    """

    def __init__(
        self,
        *polls: Any,
        moves: int = 0,
        entries: Sequence[Any] = (),
        stores: Sequence[str] = (STORE,),
    ) -> None:
        self._polls = [*polls]
        self._moves = moves
        self._entries = entries
        self._stores = [*stores]
        self.answered = "agent 1"
        self.asked: list[str] = []

    def close(self) -> None: ...

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Sent:
        what = path.rpartition("/")[2]
        self.asked.append(what)
        if method == "GET":
            query = dict(each.split("=") for each in what.partition("?")[2].split("&"))
            limit, after = int(query["limit"]), int(query.get("after", -1))
            past = [each for each in self._entries if each["offset"] > after]
            return Sent({}, json.dumps(past[:limit] if after >= 0 else past[-limit:]).encode())
        if self.asked.count("poll") == self._moves:
            self.answered = "agent 2"
        given = self._polls.pop(0)
        if isinstance(given, Exception):
            raise given
        named = {"Oplog-Store": self._stores.pop(0) if self._stores[1:] else self._stores[0]}
        if isinstance(given, dict):
            return Sent(given | named, b"[]")
        rows = [{"id": id_of(each), "payload": ""} for each in given]
        return Sent(named, json.dumps(rows).encode())

    @contextmanager
    def stream(self, path: str, headers: Mapping[str, str]) -> Iterator[Stream]:
        self.asked.append(path.rpartition("/")[2])
        yield Stream(self._polls.pop(0))


def id_of(offset: int) -> str:
    return str(MessageId(START_MS + offset, 0))


def once(call: Callable[[], _T]) -> _T:
    return call()


def topic(agents: Agents, retry: Any = once, **options: Any) -> AgentTopic:
    made = TopicOptions(name=TopicName("shop", "orders"), **options)
    return AgentTopic(agents, made, retry)


def read(
    agents: Agents, end: int, retry: Any = once, in_store: str = STORE, **options: Any
) -> list[str]:
    """Return the ids of the messages up to an entry of a store."""
    made = topic(agents, retry, **options)
    last = Position.at(Mark(end, START_MS + end))._replace(store=in_store)
    (part,) = made.plan(Position(id_of(0), 0, 0, STORE), last)
    return [message.id for messages in made.read(part) for message in messages]


def ids(*offsets: int) -> list[str]:
    return [id_of(each) for each in offsets]


def test_a_batch_ends_behind_its_last_entry() -> None:
    agents = Agents([1, 2], [3, 4])
    assert read(agents, 3) == ids(1, 2, 3)
    assert agents.asked == ["poll", "poll"]


def test_an_empty_answer_counts_once_the_agent_has_shown_its_newest_entry() -> None:
    agents = Agents([1], [], [])
    assert read(agents, 3) == ids(1)
    assert agents.asked == ["poll", "poll", "entries?limit=1", "poll"]
    assert read(Agents([1], [], [2, 3], [], []), 3) == ids(1, 2, 3), "its memory was behind"


def test_an_empty_answer_of_another_agent_does_not_count() -> None:
    agents = Agents([1], [], [], [2, 3, 4], moves=3)
    assert read(agents, 3) == ids(1, 2, 3)


def test_a_task_goes_on_behind_its_last_message_when_agents_come_back() -> None:
    tried: list[Exception] = []

    def again(call: Callable[[], _T]) -> _T:
        while True:
            try:
                return call()
            except UnreachableError as error:
                tried.append(error)

    away = UnreachableError("away")
    assert read(Agents([1], away, away, [2, 3, 4]), 3, again) == ids(1, 2, 3)
    assert tried == [away, away]


def test_a_gap_fails_the_read_unless_it_may_lack_messages() -> None:
    gap = {"Oplog-Gap": "1"}
    with pytest.raises(SyncError, match=r"has left the topic shop/orders; .* onGap to oldest"):
        read(Agents(gap), 3)
    assert read(Agents(gap, gap), 3, fails_on_gap=False) == []
    made = topic(Agents(gap, gap))
    (part,) = made.plan(OLDEST, Position.at(Mark(3, START_MS)))
    assert part == TopicPart(OLDEST, Position.at(Mark(3, START_MS)), may_lack=True)
    assert list(made.read(part)) == []


def test_another_store_fails_the_read_or_it_begins_with_the_oldest_message() -> None:
    answers = [[2, 3], [-5, -4, 1, 2]]
    for planned_in in (OTHER, STORE):
        with pytest.raises(MessagesGoneError, match="topic shop/orders has another store"):
            read(Agents(*answers, stores=[OTHER]), 1, in_store=planned_in)
    agents = Agents(*answers, stores=[OTHER])
    assert read(agents, 1, in_store=OTHER, fails_on_gap=False) == ids(-5, -4, 1)
    # Planned in the store before: the next batch begins in the other one.
    assert read(Agents(*answers, stores=[OTHER]), 3, fails_on_gap=False) == []
    assert read(Agents([1], [2], stores=[STORE, OTHER]), 3, fails_on_gap=False) == ids(1)


def test_only_a_stream_shows_the_front_of_a_topic_without_entries() -> None:
    front = str(end_id(START_MS, 7)).encode()
    agents = Agents([b":\n", b"id: " + front + b"\n", b"\n"], [])
    assert topic(agents).head() == TopicHead(Mark(0, START_MS, 7), STORE)
    assert agents.asked[0] == "entries?limit=1"
    assert "last_event_id=0&checkpoint=1" in agents.asked[1]
    with pytest.raises(UnreachableError, match="ended its stream"):
        topic(agents).front()


def entry(offset: int, ms: int, **members: str) -> dict[str, Any]:
    return {"offset": offset, "id": id_of(ms)[:20], "kind": "message"} | members


@pytest.mark.parametrize("state", ["committed", "open"])
def test_a_hold_behind_the_batch_ends_it_and_one_within_fails_it(state: str) -> None:
    under = {"kind": "direct", "pointer": "5"}
    entries = [
        entry(1, 1),
        entry(2, 2, state=state, **under),
        entry(3, 3, state="aborted", **under),
        entry(4, 4, state="open", **under),
    ]
    held = {"Oplog-Held-By": "5"}
    agents = Agents([1], held, held, entries=entries)
    if state == "committed":
        assert read(agents, 3) == ids(1)
    else:
        with pytest.raises(SyncError, match="waits for the decision about its pointer; read it"):
            read(agents, 3)


def test_an_entry_is_found_by_its_time_in_few_requests() -> None:
    # The first hundred have left.
    agents = Agents(entries=[entry(offset, 2 * offset) for offset in range(101, 1_001)])
    made = topic(agents)
    for offset in (101, 500, 777, 1_000):
        for ms in (2 * offset, 2 * offset + 1):
            assert made.locate(START_MS + ms, 0) == Mark(offset, START_MS + 2 * offset)
    assert made.locate(START_MS + 5_000, 0).offset == 1_000
    assert made.locate(START_MS + 201, 65_535).offset == 0
    assert len(agents.asked) <= 10 * 12
    agents.asked.clear()
    assert made.offset_at(Position.at(Mark(500, START_MS + 1_000))) == 500
    assert len(agents.asked) == 1
    assert made.offset_at(Position.at(Mark(300, START_MS + 1_000))) == 500, "another entry is there"


class Pointers(Agents):
    """Lists open pointers, two on a page."""

    def __init__(self, *published: bool) -> None:
        super().__init__()
        self._published = published

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Sent:
        self.asked.append(path.rpartition("/")[2])
        first = int(path.partition("&after=p%20")[2] or 0)
        page = [
            {"published": each, "begun_at": f"2020-01-01T00:00:00.00{number}Z"}
            for number, each in enumerate(self._published)
        ][first : first + 2]
        more = {"Oplog-Next": f"p {first + 2}"} if first + 2 < len(self._published) else {}
        return Sent(more, json.dumps(page).encode())


@pytest.mark.parametrize(
    ("published", "ms", "pages"),
    [([], None, 1), ([False] * 5, None, 3), ([False, False, False, True, True], 3, 2)],
)
def test_the_first_published_pointer_may_be_on_a_later_page(
    published: list[bool], ms: int | None, pages: int
) -> None:
    agents = Pointers(*published)
    options = TopicOptions(name=TopicName("shop", "orders"))
    found = AgentTopic(agents, options, lambda call: call()).first_open_ms()
    assert found == (None if ms is None else 1_577_836_800_000 + ms)
    assert len(agents.asked) == pages
