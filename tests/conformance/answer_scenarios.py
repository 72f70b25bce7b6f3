"""The table of consumers: answers, redirects, delays, time-outs and filters."""

import re

from tests.conformance.events import block, checkpoint, event_id, operation
from tests.conformance.play import Outcome
from tests.conformance.steps import (
    BUSY,
    EARLY_HINTS,
    LAST_CHUNK,
    STREAM_HEAD,
    Do,
    Drip,
    Printed,
    Script,
    Signal,
    Told,
    answer,
    chunk,
    head,
    problem,
    stream,
)
from tests.conformance.stream_scenarios import A, B, C, D, consumer

SECRET = "s3cr3t-Wörd"
# Seconds until a client gives up. A busy machine answers sooner.
PATIENCE = "5"

REFUSALS = {
    "400 Bad Request": "the event id is none",
    "401 Unauthorized": "this agent needs the password",
    "403 Forbidden": "this password may not follow",
    "404 Not Found": "there is nothing here",
    "406 Not Acceptable": "name text/event-stream in Accept",
    "410 Gone": "this address is of the past",
}

STALLS: dict[str, Script] = {
    "an answer that does not come": [Do.HOLD],
    "a head that stalls": [STREAM_HEAD[:30], Do.HOLD],
    "a head that drips for ever": [b"HTTP/1.1 200 OK\r\n", Drip(b"X-More: 1\r\n")],
    "a status line that drips for ever": [b"HTTP/1.1 200 ", Drip(b"O")],
    "a busy answer whose body stalls": [
        head("Content-Length: 1000", status="503 Service Unavailable") + b"{",
        Do.HOLD,
    ],
    "a busy answer whose body drips for ever": [
        head("Content-Length: 1000000", status="503 Service Unavailable"),
        Drip(b"x"),
    ],
    "a busy answer whose chunks drip for ever": [
        head("Transfer-Encoding: chunked", status="429 Too Many Requests"),
        Drip(chunk(b"x")),
    ],
    "a refusal whose body stalls": [
        head("Content-Length: 1000", status="401 Unauthorized") + b"{",
        Do.HOLD,
    ],
    "a refusal whose body drips for ever": [
        head("Content-Length: 1000000", status="403 Forbidden"),
        Drip(b"x"),
    ],
}

ANSWERS = [
    consumer(
        "HTML is no stream",
        [[answer("200 OK", "<html>hello</html>", "Content-Type: text/html")]],
        exit=1,
        says=["agent"],
        positions=[None],
    ),
    consumer(
        "an answer without content type is no stream",
        [[answer("200 OK", block(A))]],
        exit=1,
        says=["agent"],
        positions=[None],
    ),
    consumer(
        "204 is no stream",
        [[b"HTTP/1.1 204 No Content\r\n\r\n"]],
        exit=1,
        says=[r"\w+ \w+"],
        positions=[None],
    ),
    consumer(
        "the content type of a stream may have any case and parameters",
        [
            [
                head(
                    "content-type: Text/Event-Stream;Charset=UTF-8",
                    "transfer-encoding: Chunked",
                    "Connection: close",
                ),
                chunk(block(A)),
                LAST_CHUNK,
                Do.CLOSE,
            ]
        ],
        events=[A],
    ),
    *(
        consumer(
            f"{status} ends the consumer with the agent's sentence",
            [[problem(status, detail)]],
            password=SECRET,
            exit=1,
            says=[detail],
            hides=[SECRET],
            positions=[None],
        )
        for status, detail in REFUSALS.items()
    ),
    consumer(
        "credentials in the URL are sent and never shown",
        [stream(block(A)), [problem("401 Unauthorized", "a password is needed")]],
        url="http://user:s3cr3t@127.0.0.1:%HERE%",
        flags={"count": "0"},
        events=[A],
        exit=1,
        says=["a password is needed"],
        hides=["s3cr3t", "dXNlcjpzM2NyM3Q"],
        check=lambda outcome: authorizations(outcome, ["Basic dXNlcjpzM2NyM3Q="] * 2),
    ),
    consumer(
        "credentials in a URL of an unknown host are never shown",
        [],
        url="http://user:s3cr3t@oplog.invalid:1",
        flags={
            "timeout": "5",
            "count": "1",
            "backoff": "0.02,0.02",
            "state": "missing/folder/state",
        },
        exit=1,
        hides=["s3cr3t"],
    ),
    consumer(
        "credentials in a URL with a bad port are never shown",
        [],
        url="http://user:s3cr3t@127.0.0.1:99999",
        exit=2,
        says=[r"\w+ \w+"],
        hides=["s3cr3t"],
    ),
    consumer(
        "busy answers are tried again from the same position",
        [
            stream(block(A)),
            *([problem(status, "not now")] for status in BUSY),
            stream(block(B)),
        ],
        flags={"backoff": "0.01,0.02"},
        events=[A, B],
        positions=[None, *[A["id"]] * 8],
        says=["trying again"],
    ),
    consumer(
        "Retry-After in seconds is kept",
        [[problem("503 Service Unavailable", "busy", "Retry-After: 1")], stream(block(A))],
        events=[A],
        positions=[None, None],
        gaps={0: 1.0},
    ),
    consumer(
        "Retry-After as a date is kept",
        [[problem("429 Too Many Requests", "busy", "Retry-After: %DATE+1%")], stream(block(A))],
        events=[A],
        positions=[None, None],
        check=lambda outcome: not_before_its_date(outcome),
    ),
    consumer(
        "Retry-After that is unreadable, negative or past is none",
        [
            *(
                [problem("503 Service Unavailable", "busy", f"Retry-After: {value}")]
                for value in ("soon", "-5", "%DATE-100%", "1.5e3", "Infinity", "NaN", "", "30 s")
            ),
            stream(block(A)),
        ],
        flags={"backoff": "0.01,0.02"},
        events=[A],
        positions=[None] * 9,
    ),
    *(
        consumer(
            f"Retry-After of {what} is an hour",
            [
                [
                    problem("503 Service Unavailable", "busy", f"Retry-After: {value}"),
                    Told(r"trying again in"),
                    Signal(),
                    Do.HOLD,
                ]
            ],
            check=lambda outcome: told_delays(outcome, 3599, 4800),
        )
        for what, value in {
            "a day": "86400",
            "a number of 400 digits": "9" * 400,
            "a date in ten years": "%DATE+315360000%",
        }.items()
    ),
    consumer(
        "a connection that is refused, reset or ended is tried again from the last id",
        [
            [Do.LISTEN, *stream(block(A), block(B), end=[Do.READ, Printed(2), Do.RESET])],
            [Do.RESET],
            [Do.CLOSE],
            stream(),
            stream(end=[Do.CLOSE]),
            stream(block(C)),
        ],
        flags={"backoff": "0.01,0.02"},
        events=[A, B, C],
        positions=[None, *[B["id"]] * 5],
    ),
    consumer(
        "the delay doubles while connections end at once, and starts over after an event",
        [
            *(stream(checkpoint(event_id(n))) for n in range(20, 25)),
            stream(block(operation(30))),
            stream(block(operation(31))),
        ],
        flags={"backoff": "0.1,1.6"},
        events=[operation(30), operation(31)],
        positions=[None, *(event_id(n) for n in range(20, 25)), event_id(30)],
        gaps={0: 0.1, 1: 0.2, 2: 0.4, 3: 0.8, 4: 0.8},
        check=lambda outcome: last_delay_at_most(outcome, 0.25),
    ),
    *(
        consumer(
            f"{what} is given up and tried again",
            [stream(block(A)), script, stream(block(B))],
            flags={"timeout": PATIENCE},
            events=[A, B],
            positions=[None, A["id"], A["id"]],
        )
        for what, script in STALLS.items()
    ),
    consumer(
        "a stream that is silent is given up and tried again",
        [stream(block(A), end=[Do.HOLD]), stream(block(B))],
        flags={"heartbeat-timeout": PATIENCE},
        events=[A, B],
        positions=[None, A["id"]],
    ),
    consumer(
        "comments keep a stream alive",
        [stream(block(A), Drip(b":\n", 0.3, times=24), block(B))],
        flags={"heartbeat-timeout": PATIENCE, "timeout": PATIENCE},
        events=[A, B],
        positions=[None],
    ),
    consumer(
        "a handler slower than the heartbeat timeout breaks no connection and loses nothing",
        [
            stream(
                *(block(operation(n)) for n in range(2000)),
                Drip(b":\n", 0.2, events=2000),
                block(operation(2000)),
            )
        ],
        flags={"heartbeat-timeout": PATIENCE},
        events=[operation(n) for n in range(2001)],
        reads_late=7.0,
        positions=[None],
    ),
    consumer(
        "a handler that waits longer than the heartbeat timeout keeps its connection",
        [stream(block(A), block(B), Printed(1), block(C), Drip(b":\n", 0.2, events=3), block(D))],
        flags={"heartbeat-timeout": PATIENCE, "handler-delay": "5.5"},
        events=[A, B, C, D],
        positions=[None],
        only=["python", "python-async", "javascript"],
    ),
    consumer(
        "interim answers are passed over",
        [stream(block(A))],
        interim=EARLY_HINTS,
        events=[A],
        positions=[None],
    ),
    consumer(
        "types are told to the agent in lower case, parents as they are",
        [stream(block(A))],
        flags={"types": "Video,USER", "parents": "User/A"},
        events=[A],
        check=lambda outcome: asked(
            outcome, {"types": ["video,user"], "parents": ["User/A"], "checkpoint": ["1"]}
        ),
    ),
    consumer(
        "filters and start are told to the agent",
        [stream(block(A))],
        flags={"types": "video,user", "parents": "a/1,b", "start": event_id(5)},
        events=[A],
        positions=[event_id(5)],
        check=lambda outcome: asked(
            outcome, {"types": ["video,user"], "parents": ["a/1,b"], "checkpoint": ["1"]}
        ),
    ),
]


def authorizations(outcome: Outcome, expected: list[str]) -> None:
    assert [request.headers.get("authorization") for request in outcome.requests] == expected


def not_before_its_date(outcome: Outcome) -> None:
    first, second = outcome.requests[:2]
    assert second.wall >= first.promised, (
        f"came back {first.promised - second.wall:.3f} s before the date"
    )


def delays(outcome: Outcome) -> list[float]:
    return [
        float(text.replace(",", ""))
        for text in re.findall(r"trying again in ([\d.,]+) s", outcome.stderr)
    ]


def told_delays(outcome: Outcome, least: float, most: float) -> None:
    found = delays(outcome)
    assert found
    assert all(least <= delay <= most for delay in found), found


def last_delay_at_most(outcome: Outcome, most: float) -> None:
    assert delays(outcome)[-1] <= most, delays(outcome)


def asked(outcome: Outcome, query: dict[str, list[str]]) -> None:
    assert outcome.requests[0].query == query
    assert "text/event-stream" in outcome.requests[0].headers["accept"]


SCENARIOS = ANSWERS
