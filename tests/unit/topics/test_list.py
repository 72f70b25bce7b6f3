"""The list of topics is encoded in pieces, so that a long one does not hold up other requests."""

import json
from typing import Any

from oplogd.model.names import TopicName
from oplogd.store.topics import Topic
from oplogd.web.v1.topics import encoding_list


def listed(found: list[Topic], others: list[dict[str, Any]]) -> tuple[int, list[Any]]:
    """Return the number of pieces, and the list."""
    pieces, work = 0, encoding_list(found, 60, others)
    while True:
        try:
            next(work)
            pieces += 1
        except StopIteration as end:
            return pieces, json.loads(end.value)


def topics(*names: str, ttl: int | None = None) -> list[Topic]:
    return [Topic(number, TopicName("ns", name), ttl) for number, name in enumerate(names)]


def names(rows: list[Any]) -> list[str]:
    return [row["name"] for row in rows]


def test_a_long_list_is_encoded_in_pieces() -> None:
    found = topics(*(f"t{number:06}" for number in range(20_000)))
    pieces, rows = listed(found, [])
    assert pieces == 200
    assert names(rows) == [topic.name.topic for topic in found]


def test_topics_beside_the_store_have_their_place_in_the_order() -> None:
    def other() -> list[dict[str, Any]]:
        return [{"name": "oplog", "properties": {"bytes": "1"}}]

    assert names(listed(topics("a", "z"), other())[1]) == ["a", "oplog", "z"]
    assert names(listed(topics("a", "b"), other())[1]) == ["a", "b", "oplog"]
    assert names(listed([], other())[1]) == ["oplog"]
    assert listed([], []) == (0, [])


def test_a_topic_without_a_time_to_live_shows_the_default() -> None:
    assert listed(topics("a"), [])[1] == [{"name": "a", "properties": {"ttl": "60"}}]
    assert listed(topics("a", ttl=5), [])[1] == [{"name": "a", "properties": {"ttl": "5"}}]
