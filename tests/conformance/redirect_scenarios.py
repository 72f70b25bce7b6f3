"""Scenarios of consumers: redirects."""

from tests.conformance.answer_scenarios import SECRET
from tests.conformance.events import block
from tests.conformance.play import Outcome
from tests.conformance.steps import (
    answer,
    stream,
)
from tests.conformance.stream_scenarios import A, B, consumer

SCENARIOS = [
    *(
        consumer(
            f"{status} is followed",
            [
                [answer(f"{status} Moved", "", "Location: /elsewhere/ops?x=1")],
                [answer(f"{status} Moved", "", "Location: http://127.0.0.1:%HERE%/ops/there")],
                stream(block(A)),
            ],
            password=SECRET,
            events=[A],
            check=lambda outcome: redirected(outcome, ["/ops", "/elsewhere/ops", "/ops/there"]),
        )
        for status in (301, 302, 303, 307, 308)
    ),
    consumer(
        "redirects are resolved as addresses are, and their credentials neither sent nor shown",
        [
            [answer("302 Found", "", "Location: ./x/../down?a=b#c")],
            [answer("302 Found", "", "Location: ../up here")],
            [answer("302 Found", "", "Location: HTTP://u:s3cr3t@127.0.0.1:%HERE%/ops/")],
            stream(block(A)),
        ],
        url="http://127.0.0.1:%HERE%/base",
        events=[A],
        check=lambda outcome: resolved(
            outcome, ["/base/ops?checkpoint=1", "/base/down?a=b", "/up%20here", "/ops/"]
        ),
    ),
    consumer(
        "twenty redirects are followed",
        [
            *([answer("302 Found", "", f"Location: /ops/{n}")] for n in range(1, 21)),
            stream(block(A)),
        ],
        events=[A],
        positions=[None] * 21,
    ),
    consumer(
        "an endless redirect ends the consumer",
        [],
        rest=[answer("302 Found", "", "Location: /ops")],
        exit=1,
        says=["redirect"],
    ),
    consumer(
        "a redirect to another host gets the position and not the password",
        [
            stream(block(A)),
            [answer("307 Temporary Redirect", "", "Location: http://127.0.0.1:%OTHER%/ops")],
            stream(block(B)),
        ],
        password=SECRET,
        events=[A, B],
        positions=[None, A["id"], A["id"]],
        check=lambda outcome: kept_from_the_other_port(outcome),
    ),
]


def redirected(outcome: Outcome, paths: list[str]) -> None:
    assert [request.path for request in outcome.requests] == paths
    assert all(
        request.headers.get("authorization", "").startswith("Basic ")
        for request in outcome.requests
    )


def resolved(outcome: Outcome, targets: list[str]) -> None:
    assert [request.target for request in outcome.requests] == targets
    assert not any("authorization" in request.headers for request in outcome.requests)
    # httpcore logs the headers of every answer at DEBUG.
    shown = [line for line in outcome.stderr.splitlines() if not line.startswith("httpcore.")]
    assert not any("s3cr3t" in line for line in shown), "stderr shows 's3cr3t'"


def kept_from_the_other_port(outcome: Outcome) -> None:
    assert [request.port for request in outcome.requests] == ["here", "here", "other"]
    assert ["authorization" in request.headers for request in outcome.requests] == [
        True,
        True,
        False,
    ]
