"""Rows as publish requests and batches of operations."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pytest

from oplog_sync.errors import AgentRefusedError, OptionError, SyncError
from oplog_sync.topics import write
from oplog_sync.topics.write import PublishedRows, TopicWriter, write_operations
from oplogd.model.names import TopicName
from tests.unit.sync.schemas import schema

NAME = TopicName("shop", "orders")
FULL = "payload string, key string, headers array"


_T = TypeVar("_T")


def once(call: Callable[[], _T]) -> _T:
    return call()


class Sent(NamedTuple):
    """See ``AgentAnswer``."""

    headers: Mapping[str, str] = {}
    body: bytes = b""


class Agents:
    """See ``AgentClient``. Takes at most ``most`` rows in a request."""

    answered = "the agent"

    def __init__(self, most: int = 100_000) -> None:
        self.most = most
        self.sent: list[tuple[str, list[Any]]] = []

    def close(self) -> None: ...

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Sent:
        assert method == "POST"
        assert headers is not None
        is_json = headers["Content-Type"] == "application/json"
        rows = json.loads(body)["messages"] if is_json else list(map(json.loads, body.split(b"\n")))
        if len(rows) > self.most:
            raise AgentRefusedError("agent a: it answered 413", 413)
        self.sent.append((path, rows))
        return Sent()

    @property
    def rows(self) -> list[Any]:
        return [row for _, rows in self.sent for row in rows]


def publish(agents: Agents, *rows: dict[str, Any], columns: str = FULL) -> PublishedRows:
    kinds: Any = {"payload": pa.binary() if "payload binary" in columns else pa.string()}
    if "headers map" in columns:
        kinds["headers"] = pa.map_(pa.string(), pa.string())
    table = pa.Table.from_pylist(list(rows))
    for name, kind in kinds.items():
        if name in table.column_names:
            at = table.column_names.index(name)
            table = table.set_column(at, name, pa.array([row[name] for row in rows], kind))
    return TopicWriter(agents, NAME, schema(columns), once).write(iter(table.to_batches(2)))


def test_rows_become_messages_in_their_order() -> None:
    agents = Agents()
    headers = [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]
    done = publish(
        agents,
        {"payload": "x", "key": "k", "headers": headers},
        {"payload": None, "key": None, "headers": None},
        {"payload": "€", "key": None, "headers": []},
    )
    assert done == PublishedRows(3)
    assert agents.sent == [
        (
            "/v1/namespaces/shop/topics/orders/publish",
            [
                {"payload": "x", "key": "k", "headers": [["a", "1"], ["a", "2"]]},
                {"payload": None},
                {"payload": "€"},
            ],
        )
    ]


def test_bytes_are_published_as_text_where_they_are_text() -> None:
    agents = Agents()
    publish(agents, {"payload": b"text"}, {"payload": b"\xff"}, columns="payload binary")
    assert agents.rows == [{"payload": "text"}, {"payload": "/w==", "encoding": "base64"}]


def test_headers_may_be_a_map() -> None:
    agents = Agents()
    publish(
        agents,
        {"payload": "x", "headers": [("a", "1")]},
        columns="payload string, headers map",
    )
    assert agents.rows == [{"payload": "x", "headers": [["a", "1"]]}]


def test_requests_are_bounded_in_rows_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "MAX_ROWS", 3)
    monkeypatch.setattr(write, "MAX_BYTES", 2_000)
    agents = Agents()
    rows = [{"payload": "x"}] * 4 + [{"payload": "x" * 1_500}] * 2 + [{"payload": "x"}] * 2
    assert publish(agents, *rows) == PublishedRows(8)
    assert [len(rows) for _, rows in agents.sent] == [3, 2, 3]


def test_an_agent_with_smaller_limits_gets_smaller_requests() -> None:
    agents = Agents(most=3)
    rows = [{"payload": str(number)} for number in range(10)]
    assert publish(agents, *rows) == PublishedRows(10)
    assert [row["payload"] for row in agents.rows] == list(map(str, range(10)))
    with pytest.raises(SyncError, match="agent a: it answered 413"):
        publish(Agents(most=0), {"payload": "x"})


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"key": "k" * 1025}, "column key, row 2 of its task: is longer than 1,024 bytes"),
        ({"payload": "x" * 1_048_577}, "column payload, row 2 of its task: has 1,048,580 bytes"),
        (
            {"headers": [{"key": None, "value": "1"}]},
            r"column headers\[0\], row 2 of its task: name",
        ),
        ({"headers": [None]}, r"column headers\[0\], row 2 of its task: must be \[name, value\]"),
    ],
)
def test_an_invalid_row_names_its_column_and_sends_nothing(
    row: dict[str, Any], sentence: str
) -> None:
    agents = Agents()
    full = {"payload": "x", "key": "k", "headers": [{"key": "a", "value": "1"}]}
    with pytest.raises(SyncError, match=sentence):
        publish(agents, full, full | row)
    assert agents.sent == []


def test_too_many_bytes_are_refused_before_they_are_encoded() -> None:
    rows = {"payload": b"\xff" * 1_048_577}
    with pytest.raises(SyncError, match="column payload, row 1 of its task: has more than"):
        publish(Agents(), rows, columns="payload binary")


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ("key string", "column payload is missing"),
        ("payload string, topic string", "column topic is unknown; a message has payload, key,"),
        ("payload int", "column payload is of type int; it must be string or binary"),
        ("payload string, key binary", "column key is of type binary; it must be string"),
        ("payload string, headers string", "column headers is of type string; it must be array"),
    ],
)
def test_other_columns_are_refused_before_the_write(columns: str, sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        TopicWriter(Agents(), NAME, schema(columns), once)


def test_operations_are_sent_as_lines() -> None:
    agents = Agents()
    time = datetime(2024, 2, 29, 1, 2, 3, 4_567, UTC)
    rows: list[dict[str, Any]] = [
        {"event": "insert", "type": "video", "id": "1", "timestamp": time, "parents": ["a/1"]},
        {"event": "delete", "type": "video", "id": "2", "timestamp": None, "parents": None},
    ]
    assert write_operations(agents, rows, once) == 2
    assert agents.sent == [
        (
            "/ops",
            [
                rows[0] | {"timestamp": "2024-02-29T01:02:03.004Z"},
                {"event": "delete", "type": "video", "id": "2"},
            ],
        )
    ]


def test_an_invalid_operation_names_its_column_and_sends_nothing() -> None:
    agents = Agents()
    rows = [{"event": "insert", "type": "video", "id": "1"}] * 2
    rows.append({"event": "upsert", "type": "video", "id": "1"})
    with pytest.raises(SyncError, match="column event, row 3 of its task: must be insert, update"):
        write_operations(agents, rows, once)
    assert agents.sent == []
