"""Transactions of the Python client against an agent."""

import contextlib
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from oplogc.topics import (
    AlreadyCommittedError,
    AsyncTopics,
    BadRequestError,
    Message,
    NotAllowed,
    ReceivedMessage,
    RefusedError,
    TopicAlreadyExists,
    TopicNotFound,
    Topics,
    TransactionError,
)
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clients.restart import agent_on
from tests.kits.clients.topics_of import TopicsOf
from tests.kits.proxies.chaos import ChaosProxy
from tests.kits.servers.ports import free_port

FAST = (0.01, 0.05)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with Agent(tmp_path_factory.mktemp("agent")) as agent:
        yield agent


def texts(topics: Topics, topic: str, isolation: str = "read_committed") -> list[str | None]:
    return [each.text for each in topics.poll(topic, isolation=isolation).messages]  # type: ignore[arg-type]


def events(topics: Topics, group: str) -> list[tuple[str, str]]:
    """Return the kinds and ids in a group's commit log."""
    found = [each.text or "" for each in topics.poll(f"system/_txn.{group}").messages]
    return [(record["event"], record["txn"]) for record in map(json.loads, found)]


def test_a_transaction_under_the_term_of_a_lease(
    agent: Agent, topics_of: TopicsOf, request: pytest.FixtureRequest
) -> None:
    lease = "threads" if "threads" in request.node.name else "asyncio"

    def term(**members: object) -> int:
        asked = {"holder": "a", "ttl_ms": 60_000, **members}
        return int(agent.request("POST", f"/v1/leases/{lease}", asked).json["term"])

    with topics_of(agent.url) as topics:
        topics.create(f"leases/{lease}")
        with topics.transaction(lease=(lease, term())) as txn:
            txn.write(f"leases/{lease}", "kept")
        assert topics.get_transaction(txn.id).lease == f"{lease}; term=1"
        with contextlib.ExitStack() as stack:
            txn = stack.enter_context(topics.transaction(lease=(lease, 1)))
            txn.write(f"leases/{lease}", "lost")
            assert term(refresh=True) == 2
            with pytest.raises(TransactionError, match=r"term 1 of the lease .* is over"):
                stack.close()
        assert topics.get_transaction(txn.id).state == "aborted"
        assert texts(topics, f"leases/{lease}") == ["kept"]
        with (
            pytest.raises(RefusedError, match="nothing was stored") as refused,
            topics.transaction(lease=(lease, 1)),
        ):
            pass
        assert refused.value.status == 412
        for wrong in (("a b", 1), ("", 1), ("..", 1), (lease, 0), (lease, True), (lease, 10**18)):
            with pytest.raises(ValueError, match=r"is not a (lease|term)"):
                topics.transaction(lease=wrong)


def test_records_and_operations_commit_together_under_the_ids_of_the_futures(
    agent: Agent, topics_of: TopicsOf, request: pytest.FixtureRequest
) -> None:
    group = "threads" if "threads" in request.node.name else "asyncio"
    with topics_of(agent.url) as topics:
        first, second = f"{group}/a", f"{group}/b"
        topics.create(first)
        topics.create(second)
        with topics.transaction(group=group) as txn:
            futures = [
                txn.write(first, "one"),
                txn.write(second, Message(b"\xff", "k", [("n", "v")], 3600)),
                txn.write("system/oplog", {"event": "insert", "type": "t", "id": group}),
                txn.write(first, "two"),
            ]
            assert [*texts(topics, first), *texts(topics, second)] == []
            assert topics.get_transaction(txn.id).state == "open"
        one, other, operation, two = [future.result(DEADLINE) for future in futures]
        assert [each.id for each in topics.poll(first, isolation="read_committed").messages] == [
            one,
            two,
        ]
        assert topics.poll(second, isolation="read_committed").messages == (
            ReceivedMessage(str(other), b"\xff", "k", (("n", "v"),)),
        )
        (found,) = topics.poll("system/oplog", operation, limit=1).messages
        assert found.id == operation
        told = json.loads(found.text or "")
        assert [told[name] for name in ("id", "txn", "lsn", "of")] == [group, txn.id, 2, 1]
        committed = txn.commit()
        assert committed.records == (one, other, operation, two)
        status = topics.get_transaction(txn.id)
        assert (status.state, status.records, status.group) == ("committed", 4, group)
        assert (status.begin, status.commit) == committed[:2]
        assert set(status.topics) == {first, second, "system/oplog"}
        assert events(topics, group) == [("begin", txn.id), ("commit", txn.id)]
        log = topics.poll(f"system/_txn.{group}").messages
        assert tuple(each.id for each in log) == committed[:2]


def test_an_aborted_transaction_is_seen_by_uncommitted_readers_only(agent: Agent) -> None:
    with Topics(agent.url) as topics:
        topics.create("aborted/t")
        with topics.transaction(group="aborted") as txn:
            future = txn.write("aborted/t", "a")
            while not texts(topics, "aborted/t", "read_uncommitted"):
                pass
            txn.abort()
        assert isinstance(future.exception(DEADLINE), TransactionError)
        assert texts(topics, "aborted/t") == []
        assert texts(topics, "aborted/t", "read_uncommitted") == ["a"]
        assert events(topics, "aborted") == [("begin", txn.id), ("abort", txn.id)]
        status = topics.abort_transaction(txn.id)
        assert (status.state, status.reason) == ("aborted", "aborted by the client")
        assert [each.id for each in topics.list_transactions(group="aborted")] == [txn.id]
        assert topics.list_transactions(group="aborted", state="committed") == ()


def test_the_agents_sentences_reach_the_caller(agent: Agent, topics_of: TopicsOf) -> None:
    with topics_of(agent.url) as topics:
        with suppress(TopicAlreadyExists):
            topics.create("said/t")
            topics.create("said/u")
        with pytest.raises(TopicNotFound), topics.transaction(topic="said/none"):
            raise AssertionError
        for topic, message, sentence in (
            ("said/none", "a", "there is no topic said/none"),
            ("said/u", "a", "another topic"),
            ("system/oplog", '{"event":"insert"}', r"records\[1\]"),
        ):
            only = "said/t" if topic == "said/u" else None
            with topics.transaction(topic=only) as txn:
                txn.write("said/t", "a")
                future = txn.write(topic, message)
                with pytest.raises(TransactionError, match=sentence) as failed:
                    txn.commit()
                assert str(future.exception(DEADLINE)) == str(failed.value)
            assert topics.get_transaction(txn.id).state == "aborted"
        with pytest.raises(RefusedError, match="there is no transaction 1"):
            topics.get_transaction("1")
        with topics.transaction() as txn:
            pass
        with pytest.raises(RefusedError, match="has committed") as refused:
            topics.abort_transaction(txn.id)
        assert refused.value.status == 409


def test_a_transaction_that_timed_out_says_so(agent: Agent) -> None:
    with Topics(agent.url) as topics:
        topics.create("late/t")
        with topics.transaction(timeout=0.001) as txn:
            while topics.get_transaction(txn.id).state == "open":
                pass
            with pytest.raises(TransactionError, match=r"timed out|not committed"):
                txn.commit()
        assert topics.get_transaction(txn.id).reason == "timed out"


def test_the_right_to_write_is_needed(tmp_path: Path) -> None:
    flags = ("--password", "geheim-read", "--ingest-password", "geheim-write")
    with Agent(tmp_path, *flags) as agent:
        with Topics(agent.url, password="geheim-read", ingest_password="geheim-write") as topics:
            topics.create("t")
            with topics.transaction() as txn:
                future = txn.write("t", "a")
            assert future.result(DEADLINE)
            assert topics.get_transaction(txn.id).state == "committed"
        with Topics(agent.url, password="geheim-read") as topics:
            assert topics.get_transaction(txn.id).records == 1
            with pytest.raises(NotAllowed), topics.transaction():
                raise AssertionError
            with pytest.raises(NotAllowed):
                topics.abort_transaction(txn.id)


def test_each_record_is_stored_once_over_cuts_and_a_restart(tmp_path: Path) -> None:
    port = free_port()
    with ChaosProxy(port, seed=3, most_bytes=12_000) as proxy:
        with agent_on(port, tmp_path), Topics(proxy.url, backoff=FAST, batch_size=4) as topics:
            topics.create("t")
            with topics.transaction() as txn:
                futures = [txn.write("t", str(number)) for number in range(100)]
                futures += [
                    txn.write("system/oplog", {"event": "insert", "type": "t", "id": str(number)})
                    for number in range(20)
                ]
        assert proxy.cuts >= 1
        ids = [future.result(DEADLINE) for future in futures]
        with agent_on(port, tmp_path) as agent, Topics(agent.url) as topics:
            stored = topics.poll("t", isolation="read_committed").messages
            assert [each.text for each in stored] == [str(number) for number in range(100)]
            assert [each.id for each in stored] == ids[:100]
            operations = topics.poll("system/oplog").messages
            assert [each.id for each in operations] == ids[100:]


def test_a_transaction_goes_on_after_a_restart_of_the_agent(tmp_path: Path) -> None:
    port = free_port()
    with Topics(f"http://127.0.0.1:{port}", backoff=FAST) as topics:
        with agent_on(port, tmp_path) as agent:
            topics.create("t")
            txn = topics.transaction()
            txn.__enter__()
            first = txn.write("t", "a")
            while not texts(topics, "t", "read_uncommitted"):
                pass
            agent.kill()
        second = txn.write("t", "b")
        with agent_on(port, tmp_path):
            txn.commit()
            found = topics.poll("t", isolation="read_committed").messages
            assert [each.id for each in found] == [first.result(0), second.result(0)]


async def test_a_committed_reader_gets_the_records_of_a_commit_together(agent: Agent) -> None:
    async with AsyncTopics(agent.url) as topics:
        await topics.create("read/t")
        async with (
            topics.stream("read/t", start="0") as committed,
            topics.stream("read/t", start="0", isolation="read_uncommitted") as uncommitted,
        ):
            async with topics.transaction() as late:
                await late.write("read/t", "a")
                assert (await anext(uncommitted)).text == "a"  # type: ignore[union-attr]
                await topics.publish("read/t", "plain")
                assert (await anext(committed)).text == "plain"  # type: ignore[union-attr]
                await late.write("read/t", "b")
            got = [(await anext(committed)).text for _ in range(2)]  # type: ignore[union-attr]
            assert got == ["a", "b"]
            got = [(await anext(uncommitted)).text for _ in range(2)]  # type: ignore[union-attr]
            assert got == ["plain", "b"]
            assert committed.position == late._committed.records[1]  # type: ignore[union-attr]
        with pytest.raises(ValueError, match="'dirty' is not an isolation"):
            topics.stream("read/t", isolation="dirty")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="'dirty' is not an isolation"):
            await topics.poll("read/t", isolation="dirty")  # type: ignore[arg-type]


async def test_ten_thousand_records_of_two_topics_commit_at_once(agent: Agent) -> None:
    async with AsyncTopics(agent.url) as topics:
        for name in "ab":
            await topics.create(f"many/{name}")
        async with topics.transaction() as txn:
            futures = [await txn.write(f"many/{'ab'[n % 2]}", str(n)) for n in range(10_000)]
        ids = [await future for future in futures]
        for remainder, name in enumerate("ab"):
            async with topics.stream(
                f"many/{name}", start="0", isolation="read_committed"
            ) as consumer:
                got = [await anext(consumer) for _ in range(5000)]
            assert [each.event_id for each in got] == ids[remainder::2]


def test_several_agents_of_one_store_continue_each_others_transactions(tmp_path: Path) -> None:
    """Ask one agent at two addresses. Only agents on MongoDB share a store."""
    with Agent(tmp_path) as agent:
        dead = f"http://127.0.0.1:{free_port()}"
        with Topics([dead, agent.url, dead]) as topics:
            topics.create("t")
            topics.publish("t", "plain").result(DEADLINE)
            with topics.transaction() as txn:
                txn.write("t", "a")
            assert texts(topics, "t") == ["plain", "a"]
            with topics.stream("t", start="0", isolation="read_committed") as consumer:
                assert [each.text for each in _take(consumer, 2)] == ["plain", "a"]
            with pytest.raises(BadRequestError):
                topics.poll("t", "0" * 39)


def _take(consumer: object, count: int) -> list[ReceivedMessage]:
    iterator = iter(consumer)  # type: ignore[call-overload]
    return [next(iterator) for _ in range(count)]


def test_a_number_of_a_key_is_committed_once(
    agent: Agent, topics_of: TopicsOf, request: pytest.FixtureRequest
) -> None:
    key = "threads" if "threads" in request.node.name else "asyncio"
    with topics_of(agent.url) as topics:
        topics.create(f"once/{key}")
        slow = topics.transaction(once=(key, 1)).__enter__()
        late = slow.write(f"once/{key}", "slow")
        with topics.transaction(once=(key, 1)) as fast:
            fast.write(f"once/{key}", "fast")
            fast.write(f"once/{key}", "more")
        with pytest.raises(AlreadyCommittedError) as caught:
            slow.commit()
        assert caught.value.txn == fast.id
        with pytest.raises(AlreadyCommittedError):
            late.result(DEADLINE)
        has_run = False
        with pytest.raises(AlreadyCommittedError) as caught, topics.transaction(once=(key, 1)):
            has_run = True
        assert not has_run
        assert str(caught.value) == f"transaction {fast.id} has committed this number already"
        with topics.transaction(once=(key, 3)):
            pass
        with pytest.raises(RefusedError, match=r"number 2 of the key .* is over"):
            topics.transaction(once=(key, 2)).__enter__()
        assert texts(topics, f"once/{key}") == ["fast", "more"]


@pytest.mark.parametrize("once", [("a b", 1), ("", 1), ("..", 1), ("k", -1), ("k", 1 << 53)])
def test_a_wrong_number_is_refused_before_the_begin(
    agent: Agent, topics_of: TopicsOf, once: tuple[str, int]
) -> None:
    with topics_of(agent.url) as topics, pytest.raises(ValueError, match="is not a"):
        topics.transaction(once=once)
