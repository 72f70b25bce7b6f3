"""The parameters of a request for the stream of a topic."""

import pytest
from starlette.datastructures import Headers, QueryParams

from oplogd.model.event_id import Millis
from oplogd.model.message_id import MessageId
from oplogd.model.transaction import Isolation
from oplogd.stream.phases.start import TopicPosition
from oplogd.web.http.problem import Problem
from oplogd.web.v1.stream_request import TopicStreamRequest, parse_topic_request

ID = MessageId(1_700_000_000_000, 3)


def parsed(query: str, header: str = "") -> TopicStreamRequest:
    headers = {"last-event-id": header} if header else {}
    return parse_topic_request(Headers(headers), QueryParams(query))


@pytest.mark.parametrize(
    ("query", "header", "position"),
    [
        ("", "", None),
        ("", str(ID), ID),
        (f"last_event_id={ID}", "", ID),
        ("last_event_id=5", str(ID), ID),
        ("", "0", Millis(0)),
        ("last_event_id=1700000000000", "", Millis(1_700_000_000_000)),
        ("since=1700000000000", "", Millis(1_700_000_000_000, chosen=True)),
        ("since=1970-01-01T00:00:01Z", "", Millis(1000, chosen=True)),
        ("since=1970-01-01T00:00:01%2B00:00", "", Millis(1000, chosen=True)),
    ],
)
def test_a_position_is_an_id_or_a_time(
    query: str, header: str, position: TopicPosition | None
) -> None:
    assert parsed(query, header).position == position


def test_a_consumer_may_have_checkpoints_and_a_name() -> None:
    request = parsed("checkpoint=1&name=search")
    assert request == TopicStreamRequest(None, checkpoints=True, name="search")


@pytest.mark.parametrize(
    "query",
    [
        f"last_event_id={str(ID)[:24]}",
        f"last_event_id={str(ID).upper()[:39]}F",
        "last_event_id=12345678901234",
        "last_event_id=-1",
        "since=yesterday",
        "checkpoint=2",
        "name=a/b",
    ],
)
def test_a_bad_parameter_is_refused(query: str) -> None:
    with pytest.raises(Problem) as problem:
        parsed(query)
    assert problem.value.status == 400


@pytest.mark.parametrize("query", ["", "isolation=read_committed"])
def test_a_reader_is_committed_unless_it_says_otherwise(query: str) -> None:
    assert parsed(query).isolation is Isolation.READ_COMMITTED
    assert parsed("isolation=read_uncommitted").isolation is Isolation.READ_UNCOMMITTED


@pytest.mark.parametrize("value", ["", "committed", "READ_COMMITTED", "1", "read_committed,x"])
def test_an_unknown_isolation_is_refused_by_name(value: str) -> None:
    with pytest.raises(Problem) as caught:
        parsed(f"isolation={value}")
    assert caught.value.status == 400
    assert str(caught.value) == "isolation: must be read_uncommitted or read_committed"
