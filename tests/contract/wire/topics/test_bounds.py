"""Bounds in bytes over HTTP: what leaves, what is refused, and how readers learn of it."""

from tests.contract.wire.topics.topics import TopicClient
from tests.kits.contract.wire import JSON, Target, event_of, wait_until

BOUND = 1 << 20
LARGE = "x" * (BOUND // 8)


def left(topic: TopicClient) -> int:
    """Return the number of messages, poll by poll: an answer has at most 1 MB."""
    count, start = 0, None
    while page := (reply := topic.poll(start, inclusive=False)).json:
        # Messages that leave between two polls are no longer counted.
        count = len(page) + (0 if reply.header("Oplog-Gap") else count)
        start = page[-1]["id"]
    return count


def behind(target: Target) -> tuple[TopicClient, str]:
    """Return a topic whose first messages have left, and the id of the first one."""
    topic = TopicClient(target).create({"max_bytes": BOUND})
    topic.store("first")
    position = topic.polled()[0]["id"]
    topic.store("second")
    for _ in range(16):
        topic.store(LARGE)
    assert wait_until(lambda: left(topic) <= 8)
    return topic, position


def test_the_oldest_messages_leave_and_a_reader_behind_gets_a_gap(target: Target) -> None:
    topic, position = behind(target)
    assert left(topic) >= 7
    reply = topic.poll(position, inclusive=False)
    assert (reply.status, reply.header("Oplog-Gap")) == (200, "1")
    assert {each["payload"] for each in reply.json} == {LARGE}


def test_a_stream_that_is_behind_is_reset(target: Target) -> None:
    topic, position = behind(target)
    with topic.follow(position) as stream:
        assert event_of(stream.take(1)[0]) == "reset"


def test_a_message_larger_than_the_bound_is_413_and_names_it(target: Target) -> None:
    topic = TopicClient(target).create({"max_bytes": BOUND})
    escaped = "\x01" * (BOUND // 4)  # each takes six bytes
    for reply in (
        topic.publish("small", escaped),
        topic.request(
            "POST", "/publish", {"messages": [escaped], "transactionWritePointer": 7}, JSON
        ),
        topic.request(
            "POST", "/store", {"messages": [escaped], "transactionWritePointer": 7}, JSON
        ),
    ):
        assert reply.status == 413
        assert "max_bytes of 1,048,576" in reply.problem()
    assert topic.payloads() == []
    topic.request("PUT", "/properties", {})
    topic.store(escaped)


def test_a_full_topic_refuses_publishes_with_503_and_takes_the_decision(target: Target) -> None:
    topic = TopicClient(target).create({"max_bytes": BOUND})
    under = {"messages": [LARGE] * 9, "transactionWritePointer": 7}
    assert topic.request("POST", "/publish", under, JSON).status == 200
    replies = []

    def is_refused() -> bool:
        replies.append(topic.publish("more"))
        return bool(replies[-1].status != 200)

    assert wait_until(is_refused)
    reply = replies[-1]
    assert (reply.status, reply.header("Retry-After")) == (503, "1")
    assert "max_bytes of 1,048,576 bytes" in reply.problem()
    assert "pointer 7 is open" in reply.problem()
    assert topic.payloads()[0] == LARGE
    ended = target.request(
        "POST", "/v1/pointers/7/abort", b'{"topics": ["%s"]}' % topic.name.encode(), JSON
    )
    assert ended.status == 200
    assert wait_until(lambda: topic.publish("more").status == 200)


def test_status_and_metrics_tell_bytes_and_what_has_left(target: Target) -> None:
    before = target.request("GET", "/status").json["topics"]
    topic = TopicClient(target).create({"max_bytes": BOUND})
    for _ in range(16):
        topic.store(LARGE)

    def figures() -> dict[str, int]:
        found: dict[str, int] = target.request("GET", "/status").json["topics"]
        return found

    assert wait_until(lambda: figures()["left_by_bytes"] >= before["left_by_bytes"] + 8)
    assert wait_until(lambda: figures()["bytes"] >= before["bytes"] + 7 * len(LARGE))
    assert figures()["max_bytes"] == 0
    metrics = target.request("GET", "/metrics").body.decode()
    for name in (
        "oplog_topics_bytes ",
        "oplog_topics_max_bytes 0.0",
        "oplog_topics_left_by_bytes_total ",
    ):
        assert f"\n{name}" in metrics
