"""The batches of a streaming query as transactions, with an agent that answers as told."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest

from oplog_sync.errors import AgentRefusedError, OptionError, SyncError, UnreachableError
from oplog_sync.topics import batch as module
from oplog_sync.topics.batch import StagedRows, TopicStreamWriter, key_of
from oplogd.model.names import TopicName
from tests.unit.sync.schemas import schema
from tests.unit.sync.test_topic_writing import Sent, once

NAME = TopicName("shop", "orders")
QUERY = "11111111-2222-3333-4444-555555555555"
TOO_LARGE = "agent a: it answered 413: a transaction may have 5 records (--txn-max-records)"


class Agents:
    """See ``AgentClient``. Keeps transactions, and answers requests as ``script`` says first.

    ``script``: for each request whose path ends so, the errors of the next ones, or what happens
    before them.
    """

    answered = "the agent"

    def __init__(self, most: int = 100_000) -> None:
        self.most = most
        self.script: dict[str, list[Exception | Callable[[], None]]] = {}
        self.numbers: dict[str, int] = {}
        self.open: dict[str, tuple[dict[str, Any], dict[int, Any]]] = {}
        self.published: list[Any] = []
        self.aborted: list[str] = []
        self.requests: list[str] = []
        self.is_deleted = False

    def close(self) -> None: ...

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Sent:
        assert method == "POST"
        given = json.loads(body) if isinstance(body, bytes) else body
        verb = path.rpartition("/")[2]
        self.requests.append(verb)
        if self.script.get(verb):
            step = self.script[verb].pop(0)
            if isinstance(step, BaseException):
                raise step
            step()
        return Sent(body=json.dumps(self._answer(path, verb, given)).encode())

    def _answer(self, path: str, verb: str, given: dict[str, Any]) -> dict[str, Any]:
        if verb == "txns":
            key, number = given["once"]["key"], given["once"]["number"]
            if self.numbers.get(key) == number:
                return {"txn": "winner", "state": "committed"}
            id_ = str(len(self.requests))
            self.open[id_] = given, {}
            return {"txn": id_}
        id_ = path.split("/")[3]
        if verb == "abort":
            self.open.pop(id_, None)
            self.aborted.append(id_)
            return {}
        begun, records = self.open[id_]
        if verb == "records":
            if len(given["records"]) > self.most:
                raise AgentRefusedError("agent a: it answered 413: the body is too large", 413)
            records.update({each["lsn"]: each for each in given["records"]})
            return {}
        del self.open[id_]
        assert sorted(records) == list(range(given["records"]))
        self.numbers[begun["once"]["key"]] = begun["once"]["number"]
        self.published += [records[lsn]["payload"] for lsn in sorted(records)]
        return {"records": [None if self.is_deleted else str(lsn) for lsn in sorted(records)]}


def staged(*payloads: str, query: str = QUERY) -> StagedRows:
    lines = b"\n".join(b'"payload":%s}' % json.dumps(each).encode() for each in payloads)
    return StagedRows(query, len(payloads), lines)


def writer(agents: Agents) -> TopicStreamWriter:
    return TopicStreamWriter(agents, NAME, schema("payload string, key string"), once)


def refused(status: int, text: str) -> AgentRefusedError:
    return AgentRefusedError(f"agent a: it answered {status}: {text}", status)


def test_the_rows_of_all_tasks_are_one_transaction_in_the_order_of_the_partitions() -> None:
    agents = Agents()
    writer(agents).commit([staged("a", "b"), staged(), None, staged("c", 'd "x"\n')], 7)
    assert agents.published == ["a", "b", "c", 'd "x"\n']
    assert agents.numbers == {key_of(QUERY, NAME): 7}
    assert agents.requests == ["txns", "records", "commit"]


def test_a_batch_without_rows_asks_nothing() -> None:
    agents = Agents()
    writer(agents).commit([staged(), None], 0)
    writer(agents).commit([], 1)
    assert agents.requests == []


def test_a_batch_that_has_been_committed_is_not_sent_again() -> None:
    agents = Agents()
    for _ in range(2):
        writer(agents).commit([staged("a")], 3)
    assert agents.published == ["a"]
    assert agents.requests == ["txns", "records", "commit", "txns"]


def test_requests_have_a_bounded_size_and_are_halved_for_an_agent_that_takes_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agents = Agents(most=2)
    monkeypatch.setattr(module, "MAX_ROWS", 4)
    writer(agents).commit([staged(*"abcdefghi")], 0)
    assert agents.published == list("abcdefghi")
    assert agents.requests.count("records") == 3 + 3 + 1


@pytest.mark.parametrize(
    "error", [refused(409, "transaction 5 timed out"), refused(404, "there is no transaction 5")]
)
@pytest.mark.parametrize("verb", ["records", "commit"])
def test_a_batch_whose_transaction_has_ended_begins_again(verb: str, error: Exception) -> None:
    agents = Agents()
    agents.script[verb] = [error, error]
    writer(agents).commit([staged("a", "b")], 0)
    assert agents.published == ["a", "b"]
    assert len(agents.aborted) == 2
    agents.script[verb] = [error] * 5
    with pytest.raises(AgentRefusedError, match=str(error)):
        writer(agents).commit([staged("c")], 1)
    assert agents.open == {}


def test_a_batch_that_another_driver_commits_meanwhile_is_done() -> None:
    agents = Agents()
    agents.script["commit"] = [refused(409, "was aborted because another transaction has its")]
    agents.script["abort"] = [lambda: agents.numbers.update({key_of(QUERY, NAME): 0})]
    writer(agents).commit([staged("a")], 0)
    assert agents.requests == ["txns", "records", "commit", "abort", "txns"]
    assert agents.published == []


def test_a_number_that_is_over_names_the_batch_and_the_checkpoint() -> None:
    agents = Agents()
    agents.script["txns"] = [refused(409, "number 3 of the key k is over; the newest is 9")]
    with pytest.raises(SyncError) as caught:
        writer(agents).commit([staged("a")], 3)
    assert str(caught.value) == (
        "batch 3 of the query has been followed by a later one in the topic shop/orders: the"
        " checkpoint is an older copy, or another driver runs the query; begin with a new"
        " checkpoint (agent a: it answered 409: number 3 of the key k is over; the newest is 9)"
    )


def test_a_batch_beyond_the_limits_of_a_transaction_names_the_flags_that_let_it_through() -> None:
    agents = Agents()
    agents.script["records"] = [AgentRefusedError(TOO_LARGE, 413)]
    with pytest.raises(SyncError) as caught:
        writer(agents).commit([staged(*"abcdef")], 2)
    assert str(caught.value) == (
        f"batch 2 has 6 rows and 89 bytes, and is written in one transaction: {TOO_LARGE}; start"
        " the agents with --txn-max-records 100000, then this batch goes through;"
        " later ones have fewer rows with maxOperationsPerTrigger, maxOffsetsPerTrigger or"
        " maxFilesPerTrigger of its source"
    )
    assert agents.requests == ["txns", "records", "abort"]


@pytest.mark.parametrize(
    ("flag", "rows", "text", "flags"),
    [
        ("--txn-max-bytes", 1, "a", "--txn-max-bytes 64000000"),
        ("--txn-max-records", 100_001, "a", "--txn-max-records 100001"),
        ("--txn-max-bytes", 4, "a" * 10**7, "--txn-max-bytes 80000110"),
        (
            "--txn-max-records",
            4,
            "a" * 10**7,
            "--txn-max-records 100000 --txn-max-bytes 80000110",
        ),
    ],
)
def test_the_flags_of_a_message_are_the_ones_that_are_needed_and_not_below_their_defaults(
    flag: str, rows: int, text: str, flags: str
) -> None:
    agents = Agents()
    agents.script["records"] = [refused(413, f"a transaction may have less ({flag})")]
    with pytest.raises(SyncError) as caught:
        writer(agents).commit([staged(*[text] * rows)], 0)
    assert f"start the agents with {flags}, then" in str(caught.value)


def test_a_row_that_no_request_can_have_is_named() -> None:
    agents = Agents(most=0)
    with pytest.raises(
        SyncError, match=r"batch 4 has a row that is too large for a request: .*413"
    ):
        writer(agents).commit([staged("a")], 4)
    assert agents.open == {}


def test_a_topic_that_is_deleted_while_a_batch_is_written_is_named() -> None:
    agents = Agents()
    agents.is_deleted = True
    with pytest.raises(SyncError, match="the topic shop/orders was deleted while batch 5 was"):
        writer(agents).commit([staged("a")], 5)
    writer(agents).commit([staged("a")], 5)


def test_an_agent_of_the_version_before_is_named() -> None:
    agents = Agents()
    agents.script["txns"] = [refused(400, "once: is not a member of this request")]
    with pytest.raises(SyncError, match="the agents must be upgraded first"):
        writer(agents).commit([staged("a")], 0)


@pytest.mark.parametrize("error", [UnreachableError("no agent answers"), KeyboardInterrupt()])
def test_a_batch_that_fails_frees_its_records(error: Any) -> None:
    agents = Agents()
    agents.script["records"] = [error]
    with pytest.raises(type(error)):
        writer(agents).commit([staged("a")], 0)
    assert agents.open == {}
    agents.script["records"] = [error]
    agents.script["abort"] = [UnreachableError("no agent answers")]
    with pytest.raises(type(error)):
        writer(agents).commit([staged("a")], 0)


def test_the_key_tells_queries_and_topics_apart_and_is_short_enough() -> None:
    longest = TopicName("n" * 249, "t" * 249)
    assert len(key_of(QUERY, longest)) <= 249
    names = [NAME, TopicName("shop.a", "b"), TopicName("shop", "a.b")]
    assert len({key_of(query, name) for query in (QUERY, "other") for name in names}) == 6


def test_a_column_that_is_no_part_of_a_message_is_refused_at_the_start() -> None:
    with pytest.raises(OptionError, match="column value is unknown"):
        TopicStreamWriter(Agents(), NAME, schema("payload string, value string"), once)


def test_a_task_has_a_bounded_size_and_outside_of_a_query_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = pa.RecordBatch.from_pylist([{"payload": "a" * 100}] * 3)
    with pytest.raises(SyncError, match="Spark does not tell the id of the query"):
        writer(Agents()).write(iter([rows]))
    monkeypatch.setattr(module, "MAX_TASK_BYTES", 300)
    with pytest.raises(SyncError, match="let a batch have fewer rows"):
        writer(Agents()).write(iter([rows]))
