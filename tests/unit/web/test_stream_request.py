"""Parameters of a stream that are mistaken for others."""

import pytest
from starlette.datastructures import Headers, QueryParams

from oplogd.web.http.problem import Problem
from oplogd.web.oplog.stream_request import parse_stream_request
from oplogd.web.v1.stream_request import parse_topic_request

POSITION = "last_event_id"


def refusal(name: str, *, of_topic: bool = False) -> str:
    """Return the sentence about a parameter, empty if it is taken or ignored."""
    query = QueryParams({name: "1"})
    try:
        if of_topic:
            parse_topic_request(Headers(), query)
        else:
            parse_stream_request(Headers(), query, 10)
    except Problem as problem:
        return str(problem) if problem.status == 400 else f"{problem.status}"
    return ""


@pytest.mark.parametrize(
    ("right", "names"),
    [
        ("types", ["type", "Type", "TYPE", "Types", "TYPES"]),
        ("parents", ["parent", "Parent", "Parents"]),
        ("checkpoint", ["checkpoints", "Checkpoints", "Checkpoint", "CHECKPOINT"]),
        ("since", ["Since", "SINCE"]),
        (
            POSITION,
            ["last-event-id", "Last-Event-ID", "LAST_EVENT_ID", "last_event-id", "lasteventid"],
        ),
        (POSITION, ["LastEventID", "LastEventId", "last_event", "last-event", "lastEvent"]),
        (POSITION, ["start", "Start"]),
    ],
)
def test_a_slip_is_refused_in_every_spelling_with_the_right_name(
    right: str, names: list[str]
) -> None:
    for name in names:
        told = f"{name}: there is no such parameter; the name is {right}"
        assert refusal(name) == told
        of_filter = f"{name}: a topic has no filters"
        assert refusal(name, of_topic=True) == (
            of_filter if right in ("types", "parents") else told
        )


@pytest.mark.parametrize(
    "name",
    [
        "since", "checkpoint", "last_event_id", "lastEventId", "name", "token",
        "Name", "TOKEN", "_type", "types_", "ty-pe", "event_type", "type[]", "parent_id", "started",
        "id", "event", "Ids", "Events", "lang", "", "isolated", "isolation_", "is_olation",
        "read_committed",
    ],
)  # fmt: skip
def test_a_name_that_is_right_or_of_others_is_no_slip(name: str) -> None:
    assert refusal(name) == refusal(name, of_topic=True) == ""


@pytest.mark.parametrize("name", ["types", "parents", "events", "ids"])
def test_only_the_stream_of_the_oplog_has_filters(name: str) -> None:
    assert "no such parameter" not in refusal(name)
    assert refusal(name, of_topic=True) == f"{name}: a topic has no filters"


@pytest.mark.parametrize(
    "name",
    [
        "Isolation", "ISOLATION", "isolation_level", "isolation-level", "isolationLevel",
        "IsolationLevel",
    ],
)  # fmt: skip
def test_a_slip_of_isolation_is_refused_where_it_has_a_meaning(name: str) -> None:
    told = f"{name}: there is no such parameter; the name is isolation"
    assert refusal(name, of_topic=True) == told
    assert refusal(name) == ""
