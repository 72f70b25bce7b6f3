"""Checks of a producer's outcome beyond the fields of a scenario."""

from tests.conformance.play import Outcome
from tests.conformance.producing import ALL, Fields


def well_asked(outcome: Outcome) -> None:
    request = outcome.requests[0]
    assert request.method == "POST"
    assert request.path == "/ops"
    assert request.headers["content-type"].partition(";")[0] == "application/x-ndjson"


def nothing_skipped(outcome: Outcome) -> None:
    """Expect the whole batch in each request."""
    assert outcome.requests
    assert all(request.ids == ALL for request in outcome.requests), [
        request.ids for request in outcome.requests
    ]


def same_bytes(outcome: Outcome) -> None:
    assert len({request.body for request in outcome.requests}) == 1


def only_posts_here(outcome: Outcome) -> None:
    nothing_skipped(outcome)
    assert {(request.port, request.method, request.path) for request in outcome.requests} == {
        ("here", "POST", "/ops")
    }


def basic(outcome: Outcome) -> None:
    assert {request.headers.get("authorization") for request in outcome.requests} == {
        "Basic dXNlcjpzM2NyM3Q="
    }


def told_once_an_answer(outcome: Outcome, text: str, ids: list[str]) -> None:
    assert delivered(outcome) == ids, f"delivered: {delivered(outcome)[:20]}"
    refused = sum(not request.accepted for request in outcome.requests)
    assert 1 <= outcome.stderr.count(text) <= refused, (
        f"{text!r} is told {outcome.stderr.count(text)} times"
    )


def delivered(outcome: Outcome) -> list[str]:
    return [id_ for request in outcome.requests for id_ in request.ids if request.accepted]


def delivered_but(outcome: Outcome, ids: list[str], rejected: str) -> None:
    assert delivered(outcome) == [id_ for id_ in ids if id_ != rejected], (
        f"delivered: {delivered(outcome)[:20]}"
    )


def sent_once(outcome: Outcome, ids: list[str]) -> None:
    assert [id_ for request in outcome.requests for id_ in request.ids] == ids


def grown_back(outcome: Outcome, ids: list[str]) -> None:
    delivered_but(outcome, ids, "")
    largest = max(len(request.ids) for request in outcome.requests[6:])
    assert largest > 100, f"no later batch has more than {largest} operations"


def all_taken_delivered(outcome: Outcome) -> None:
    (printed,) = outcome.events
    taken, came = printed["taken"], delivered(outcome)
    assert taken
    assert len(came) == len(set(came))
    assert not set(taken) - set(came), (
        f"{len(set(taken) - set(came))} of {len(taken)} operations were lost"
    )
    for sender in range(8):
        mine = [int(id_.partition("-")[2]) for id_ in came if id_.startswith(f"{sender}-")]
        assert mine == sorted(mine)


def all_woken(outcome: Outcome) -> None:
    (printed,) = outcome.events
    assert printed == {"woken": 8}


def arrived(outcome: Outcome, operations: list[Fields]) -> None:
    assert [
        operation for request in outcome.requests for operation in request.operations
    ] == operations
