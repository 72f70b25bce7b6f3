"""Creating, changing, listing, deleting and polling topics with the Python client."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from oplogc.topics import (
    BadRequestError,
    Message,
    MessageError,
    NotAllowed,
    ProtocolError,
    RefusedError,
    Topic,
    TopicAlreadyExists,
    TopicName,
    TopicNotFound,
    Topics,
    UnavailableError,
)
from tests.kits.agents.agent import Agent
from tests.kits.clients.restart import agent_on
from tests.kits.clients.topics_of import TopicsOf
from tests.kits.servers.ports import free_port
from tests.kits.servers.scripted import ScriptedServer, answer

FAST = (0.01, 0.05)
SHOWN = answer("200 OK", '{"name":"t","properties":{"ttl":"60"}}')
BUSY = answer("503 Busy", '{"detail":"the store is unreachable"}')


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """Return a name for the topic of a test with its parameter."""
    return "threads" if "threads" in request.node.name else "asyncio"


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with Agent(tmp_path_factory.mktemp("agent"), "--poll-limit", "50") as agent:
        yield agent


def test_a_topic_from_its_creation_to_its_end(agent: Agent, topics_of: TopicsOf) -> None:
    with topics_of(agent.url) as topics:
        name = TopicName("life", "a.B-c_1")
        assert topics.create("life/a.B-c_1", ttl=60) == Topic(name, {"ttl": "60"})
        assert topics.get("life/a.B-c_1").ttl == 60
        with pytest.raises(TopicAlreadyExists, match="topic life/a") as exists:
            topics.create("life/a.B-c_1")
        assert exists.value.status == 409
        assert topics.update("life/a.B-c_1", ttl=120).ttl == 120
        assert topics.update("life/a.B-c_1", max_bytes=1 << 20).max_bytes == 1 << 20
        assert topics.get("life/a.B-c_1").max_bytes == 1 << 20
        assert topics.update("life/a.B-c_1").ttl == 604_800
        assert topics.get("life/a.B-c_1").max_bytes is None
        topics.create("life/another")
        assert [str(each.name) for each in topics.list("life")] == ["life/a.B-c_1", "life/another"]
        topics.delete("life/a.B-c_1")
        topics.delete("life/another")
        assert topics.list("life") == ()
        for call in (topics.get, topics.delete, topics.update, topics.poll):
            with pytest.raises(TopicNotFound, match="no topic life/a"):
                call("life/a.B-c_1")
        with pytest.raises(TopicNotFound, match="no topic life/a"):
            topics.publish("life/a.B-c_1", "x").result()


def test_the_properties_that_concern_pointers(
    agent: Agent, topics_of: TopicsOf, topic: str
) -> None:
    name = f"rules/{topic}"
    with topics_of(agent.url) as topics:
        made = topics.create(name, pointers=False, pointer_timeout=60)
        assert (made.ttl, made.pointers, made.pointer_timeout) == (604_800, False, 60)
        assert topics.get(name) == made
        changed = topics.update(name, ttl=60)
        assert (changed.ttl, changed.pointers, changed.pointer_timeout) == (60, True, None)
        for wrong in (0, 2_592_001, True, "60"):
            with pytest.raises(ValueError, match="pointer_timeout: give whole seconds"):
                topics.create("rules/u", pointer_timeout=wrong)  # type: ignore[arg-type]


def test_a_topic_with_other_rules_is_not_the_one_that_was_created(topics_of: TopicsOf) -> None:
    taken = answer("409 Conflict", '{"detail":"exists"}')
    off = answer("200 OK", '{"name":"t","properties":{"ttl":"60","pointers":"off"}}')
    for pointers, shown in ((True, off), (False, SHOWN)):
        with (
            ScriptedServer([BUSY, taken, shown]) as server,
            topics_of(server.url, backoff=FAST) as topics,
            pytest.raises(TopicAlreadyExists),
        ):
            topics.create("t", ttl=60, pointers=pointers)
    with (
        ScriptedServer([BUSY, taken, off]) as server,
        topics_of(server.url, backoff=FAST) as topics,
    ):
        assert not topics.create("t", ttl=60, pointers=False).pointers


def test_the_oplog_is_a_topic_that_stays(agent: Agent, topics_of: TopicsOf) -> None:
    with topics_of(agent.url) as topics:
        (oplog,) = topics.list("system")
        assert (str(oplog.name), oplog.ttl, list(oplog.properties)) == (
            "system/oplog",
            None,
            ["bytes"],
        )
        for call in (topics.create, topics.delete, topics.update):
            with pytest.raises(RefusedError, match="reserved") as refused:
                call("system/oplog")
            assert type(refused.value) is RefusedError
        topics.publish("system/oplog", '{"event":"insert","type":"t","id":"1"}').result()
        with pytest.raises(BadRequestError, match=r"messages\[0\].id: is required"):
            topics.publish("system/oplog", '{"event":"insert","type":"t"}').result()
        message = topics.poll("system/oplog").messages[-1]
        assert len(message.id) == 24
        assert message.text is not None
        assert json.loads(message.text)["id"] == "1"
        assert topics.poll("system/oplog", message.id, inclusive=False).messages == ()


def test_bad_values_are_refused_before_they_are_sent(topics_of: TopicsOf) -> None:
    topics = topics_of("http://127.0.0.1:9")
    for bad in (0, -1, 10**12, "5", 1.5, True):
        with pytest.raises(MessageError, match="ttl: must be a whole number"):
            topics.create("t", ttl=bad)  # type: ignore[arg-type]
    for bad in (0, (1 << 20) - 1, 1 << 63, "1048576", 2.0**21, True):
        with pytest.raises(MessageError, match="max_bytes: must be a whole number"):
            topics.create("t", max_bytes=bad)  # type: ignore[arg-type]
    for limit in (0, -1, 1.5):
        with pytest.raises(ValueError, match="limit: "):
            topics.poll("t", limit=limit)  # type: ignore[arg-type]
    for name in ("a/b/c", "", "é"):
        with pytest.raises(ValueError, match="is not a topic"):
            topics.publish(name, "x")
    with pytest.raises(ValueError, match="is not a namespace"):
        topics.list("a/b")
    with pytest.raises(ValueError, match="at least one message"):
        topics.publish("t")
    with pytest.raises(ValueError, match="time zone"):
        topics.poll("t", datetime(2026, 1, 31))
    topics.close()


@pytest.mark.parametrize(
    "options",
    [
        {"url": "nowhere"}, {"timeout": 0}, {"retry_for": -1}, {"backoff": (2, 1)},
        {"batch_size": 0}, {"max_buffered": 0}, {"max_buffered_bytes": 0}, {"proxy": "gopher://x"},
    ],
)  # fmt: skip
def test_a_bad_argument_is_refused(options: dict[str, object], topics_of: TopicsOf) -> None:
    with pytest.raises(ValueError, match=r"address|seconds|backoff|at least 1"):
        topics_of(**{"url": "http://127.0.0.1:9", **options})  # type: ignore[arg-type]


def test_a_poll_begins_at_ids_times_and_the_oldest(
    agent: Agent, topics_of: TopicsOf, topic: str
) -> None:
    name = f"polls/{topic}"
    with topics_of(agent.url) as topics:
        topics.create(name)
        before = datetime.now(UTC) - timedelta(hours=1)
        assert topics.poll(name) == ((), False)
        sent = [Message(str(number), f"k{number}", [("n", "v")]) for number in range(5)]
        topics.publish(name, *sent).result()
        messages = topics.poll(name).messages
        assert [(each.text, each.key, each.headers) for each in messages] == [
            (str(number), f"k{number}", (("n", "v"),)) for number in range(5)
        ]
        assert topics.poll(name, before, limit=2) == (messages[:2], False)
        assert topics.poll(name, messages[2].id).messages == messages[2:]
        assert topics.poll(name, messages[2].id, inclusive=False).messages == messages[3:]
        ms = int(messages[0].published.timestamp() * 1000)
        assert topics.poll(name, messages[0].published).messages == messages
        assert topics.poll(name, ms, inclusive=False).messages == ()
        with pytest.raises(BadRequestError, match="40"):
            topics.poll(name, "nonsense")
        topics.publish(name, *map(str, range(100))).result()
        assert len(topics.poll(name, limit=100).messages) == 50


def test_a_poll_tells_a_gap(tmp_path: Path, topics_of: TopicsOf) -> None:
    with Agent(tmp_path) as agent, topics_of(agent.url) as topics:
        topics.create("t")
        topics.publish("t", "a").result()
        (old,) = topics.poll("t").messages
        topics.delete("t")
        topics.create("t")
        topics.publish("t", "b").result()
        found = topics.poll("t", old.id)
        assert ([each.text for each in found.messages], found.gap) == (["b"], True)
        assert topics.poll("t", found.messages[0].id).gap is False


def test_messages_of_a_megabyte_and_of_bytes_come_back(tmp_path: Path, topics_of: TopicsOf) -> None:
    raw = bytes(range(256)) * 4096
    text = "\x01" * 1024 * 1024  # six bytes each in JSON
    with Agent(tmp_path) as agent, topics_of(agent.url) as topics:
        topics.create("t")
        topics.publish("t", raw).result()
        topics.publish("t", text).result()
        first, second = (topics.poll("t", start).messages[0] for start in (None, _second(topics)))
        assert (first.raw, first.text, second.text) == (raw, None, text)


def _second(topics: Topics) -> str:
    first = topics.poll("t", limit=1).messages[0]
    return topics.poll("t", first.id, inclusive=False, limit=1).messages[0].id


def test_reading_and_writing_have_passwords_of_their_own(
    tmp_path: Path, topics_of: TopicsOf
) -> None:
    with Agent(tmp_path, "--password", "read", "--ingest-password", "write") as agent:
        with topics_of(agent.url, password="read", ingest_password="write") as topics:
            topics.create("t")
            topics.publish("t", "a").result()
            assert len(topics.poll("t").messages) == 1
        with topics_of(agent.url, password="read") as topics:
            for write in (topics.create, topics.update, topics.delete):
                with pytest.raises(NotAllowed) as refused:
                    write("t")
                assert refused.value.status == 401
            with pytest.raises(NotAllowed):
                topics.publish("t", "a").result()
            assert topics.get("t").ttl == 604_800
        with topics_of(agent.url.replace("//", "//any:write@")) as topics:
            topics.publish("t", "b").result()
            for read in (topics.get, topics.poll):
                with pytest.raises(NotAllowed):
                    read("t")
            with pytest.raises(NotAllowed):
                topics.list()
            with topics.stream("t") as consumer, pytest.raises(NotAllowed):
                next(iter(consumer))


def test_a_call_waits_for_an_agent_that_comes_back(tmp_path: Path, topics_of: TopicsOf) -> None:
    port = free_port()
    with topics_of(f"http://127.0.0.1:{port}", backoff=FAST) as topics:
        impatient = topics_of(f"http://127.0.0.1:{port}", backoff=FAST, retry_for=0.1)
        with impatient, pytest.raises(UnavailableError):
            impatient.get("t")
        stored = topics.publish("system/oplog", '{"event":"insert","type":"t","id":"1"}')
        with agent_on(port, tmp_path):
            stored.result()
            assert len(topics.poll("system/oplog").messages) == 1


def test_retry_after_is_heeded_and_a_busy_agent_is_asked_again(topics_of: TopicsOf) -> None:
    later = answer("429 Slow", '{"detail":"slowly"}', "Retry-After: 1")
    with (
        ScriptedServer([BUSY, None, later, SHOWN]) as server,
        topics_of(server.url, backoff=FAST) as topics,
    ):
        assert topics.get("t").ttl == 60
        assert len(server.heads) == 4
    later = answer("503 Busy", '{"detail":"the store is unreachable"}', "Retry-After: 3000")
    with (
        ScriptedServer([later]) as server,
        topics_of(server.url, backoff=FAST) as topics,
        pytest.raises(UnavailableError, match=r"the store is unreachable \(HTTP 503\)"),
    ):
        topics.get("t")
    assert len(server.heads) == 1


def test_a_creation_whose_answer_was_lost_counts_if_the_topic_is_as_wanted(
    topics_of: TopicsOf,
) -> None:
    exists = answer("409 Conflict", '{"detail":"exists"}')
    for lost in (None, BUSY):
        with (
            ScriptedServer([lost, exists, SHOWN]) as server,
            topics_of(server.url, backoff=FAST) as topics,
        ):
            assert topics.create("t", ttl=60).ttl == 60
    with (
        ScriptedServer([None, exists, SHOWN]) as server,
        topics_of(server.url, backoff=FAST) as topics,
        pytest.raises(TopicAlreadyExists),
    ):
        topics.create("t", ttl=61)
    slowly = answer("429 Slow", '{"detail":"slowly"}')  # it was not carried out
    with (
        ScriptedServer([slowly, exists, SHOWN]) as server,
        topics_of(server.url, backoff=FAST) as topics,
        pytest.raises(TopicAlreadyExists),
    ):
        topics.create("t", ttl=60)


def test_a_deletion_whose_answer_was_lost_counts_if_the_topic_is_gone(topics_of: TopicsOf) -> None:
    gone = answer("404 Not Found", '{"detail":"gone"}')
    with ScriptedServer([None, gone]) as server, topics_of(server.url, backoff=FAST) as topics:
        topics.delete("t")
        with pytest.raises(TopicNotFound):
            topics.delete("t")
    wrong = answer("401 Unauthorized", '{"detail":"wrong"}')
    with (
        ScriptedServer([None, wrong]) as server,
        topics_of(server.url, backoff=FAST) as topics,
        pytest.raises(NotAllowed),
    ):
        topics.delete("t")


@pytest.mark.parametrize(
    ("raw", "kind", "words"),
    [
        (answer("200 OK", "<html>"), ProtocolError, "is no agent with topics"),
        (answer("200 OK", '{"name":5}'), ProtocolError, "does not describe a topic"),
        (
            answer("302 Found", "", "Location: http://x/?token=geheim"),
            RefusedError,
            "redirects to",
        ),
        (answer("418 Teapot", ""), RefusedError, "Teapot"),
    ],
)
def test_answers_of_strangers_are_told_and_not_repeated(
    raw: bytes, kind: type[Exception], words: str, topics_of: TopicsOf
) -> None:
    with ScriptedServer([raw]) as server, topics_of(server.url, backoff=FAST) as topics:
        with pytest.raises(kind, match=words) as raised:
            topics.get("t")
        assert "geheim" not in str(raised.value)
        assert len(server.heads) == 1


def test_the_paths_and_bodies_are_those_of_the_interface(topics_of: TopicsOf) -> None:
    with ScriptedServer([SHOWN]) as server, topics_of(f"{server.url}/base/ops?token=x") as topics:
        topics.create("n/t", ttl=5)
        topics.update("n/t")
        topics.get("t")
        server.answer_with(answer("200 OK", "[]"))
        topics.list()
        topics.poll("t", 5, inclusive=False, limit=7)
        server.answer_with(answer("200 OK", ""))
        topics.delete("t")
        topics.publish("t", "a").result()
    base = "/base/v1/namespaces"
    assert [head.split(" HTTP")[0] for head in server.heads] == [
        f"PUT {base}/n/topics/t?token=x",
        f"PUT {base}/n/topics/t/properties?token=x",
        f"GET {base}/default/topics/t?token=x",
        f"GET {base}/default/topics?token=x",
        f"POST {base}/default/topics/t/poll?token=x",
        f"DELETE {base}/default/topics/t?token=x",
        f"POST {base}/default/topics/t/publish?token=x",
    ]
    assert server.bodies == [
        b'{"ttl": 5}', b"{}", b"", b"",
        b'{"startFrom": 5, "inclusive": false, "limit": 7, "isolation": "read_committed"}',
        b"", b'{"messages":["a"]}',
    ]  # fmt: skip
