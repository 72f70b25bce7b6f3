"""The table of producers."""

import json
from collections.abc import Sequence
from typing import Any

from tests.conformance.answer_rows import SECRET, not_before_its_date
from tests.conformance.play import Outcome, Row
from tests.conformance.steps import (
    EARLY_HINTS,
    JSON,
    PROBLEM,
    Do,
    Drip,
    Ingest,
    Script,
    Signal,
    Told,
    answer,
    chunk,
    head,
    problem,
)

Operation = dict[str, Any]


def operation(id_: str, **fields: Any) -> Operation:
    return {"event": "insert", "type": "video", "id": id_, **fields}


def lines(*operations: Operation) -> bytes:
    return b"".join(
        json.dumps(operation, ensure_ascii=False).encode() + b"\n" for operation in operations
    )


ONE = lines(operation("a"))
"""Most rows send one operation: how many of several make up the first batch is the client's affair."""
ALL = ["a"]
ABC = lines(*map(operation, "abc"))
DELIVERED: Script = [Ingest()]


def producer(name: str, answers: Sequence[Script], **fields: Any) -> Row:
    return Row(name, "producer", answers, **{"input": ONE, **fields})


def ok(body: str | bytes, *headers: str, status: str = "200 OK") -> Script:
    return [answer(status, body, *(headers or (JSON,)))]


NO_DELIVERIES: dict[str, Script] = {
    "HTML": ok("<html>welcome</html>", "Content-Type: text/html"),
    "a body that is no JSON": ok("thanks"),
    "an empty body": ok(""),
    "JSON of too many levels": ok('{"ingested": ' + "[" * 100_000 + "]" * 100_000 + "}"),
    "JSON that is nothing but levels": ok("[" * 100_000),
    "another number": ok('{"ingested": 0}'),
    "a larger number": ok('{"ingested": 2}'),
    "a number as text": ok('{"ingested": "1"}'),
    "NaN": ok('{"ingested": NaN}'),
    "Infinity": ok('{"ingested": Infinity}'),
    "a number beyond all bounds": ok('{"ingested": 1e400}'),
    "true": ok('{"ingested": true}'),
    "null": ok("null"),
    "a list": ok('[{"ingested": 1}]'),
    "status 204": [b"HTTP/1.1 204 No Content\r\n\r\n"],
    "status 201": ok('{"ingested": 1}', status="201 Created"),
    "status 202": ok('{"ingested": 1}', status="202 Accepted"),
    "status 206": ok('{"ingested": 1}', status="206 Partial Content"),
}

REFUSALS = {
    "401 Unauthorized": "this agent needs the ingest password",
    "403 Forbidden": "this page may not write",
    "404 Not Found": "there is nothing here",
    "405 Method Not Allowed": "only GET is allowed here",
    "410 Gone": "this address is of the past",
    "415 Unsupported Media Type": "use application/x-ndjson",
    "400 Bad Request": "the body is not what it should be",
}

UNUSABLE = {
    "a line 0": '[{"line": 0, "field": "id", "reason": "empty"}]',
    "a line beyond the batch": '[{"line": 2, "field": "id", "reason": "empty"}]',
    "one usable and one unusable line": '[{"line": 1, "field": "id", "reason": "empty"}, {"line": 99, "field": "id", "reason": "empty"}]',
    "Infinity": '[{"line": Infinity, "field": "id", "reason": "empty"}]',
    "a number of 400 digits": '[{"line": 1%s, "field": "id", "reason": "empty"}]' % ("0" * 400),
    "a broken number": '[{"line": 1.5, "field": "id", "reason": "empty"}]',
    "a line as text": '[{"line": "1", "field": "id", "reason": "empty"}]',
    "no lines": "[]",
    "a text": '"all of them"',
    "null": "null",
}  # fmt: skip


def invalid(errors: str) -> bytes:
    return answer(
        "400 Bad Request",
        f'{{"title": "Bad Request", "status": 400, "detail": "some lines are wrong", "errors": {errors}}}',
        PROBLEM,
    )


STALLS: dict[str, Script] = {
    "an answer that does not come": [Do.HOLD],
    "an answer whose head drips for ever": [b"HTTP/1.1 200 OK\r\n", Drip(b"X-More: 1\r\n")],
    "an answer whose body stalls": [head("Content-Length: 15", JSON) + b'{"inges', Do.HOLD],
    "an answer whose body drips for ever": [head("Content-Length: 1000000", JSON), Drip(b" ")],
    "a busy answer whose body drips for ever": [
        head("Transfer-Encoding: chunked", status="503 Service Unavailable"),
        Drip(chunk(b"x")),
    ],
}

HTTP = [
    producer("a batch is delivered when the agent has all of it", [DELIVERED], batches=[ALL], check=lambda outcome: well_asked(outcome)),
    producer("an answer in chunks counts", [[head("Transfer-Encoding: chunked", JSON), chunk(b'{"ingest'), Do.READ, chunk(b'ed": 1}'), b"0\r\n\r\n"]], batches=[ALL]),
    producer(
        "interim answers are passed over, also while the batch is sent",
        [],
        rest=DELIVERED,
        interim=EARLY_HINTS,
        flags={"timeout": "5"},
        input=lines(*(operation(f"x{n}", parents=["p" * 1000]) for n in range(900))),
        check=lambda outcome: sent_once(outcome, [f"x{n}" for n in range(900)]),
    ),
    producer("an empty input sends nothing", [], input=b"", batches=[]),
    producer("an input whose last line lacks its end is sent whole", [DELIVERED], input=ONE[:-1], batches=[ALL]),
    *(
        producer(f"{what} as the answer is no delivery", [], rest=script, exit=1, says=["agent"], check=lambda outcome: nothing_skipped(outcome), python_once=True)
        for what, script in NO_DELIVERIES.items()
    ),
    *(
        producer(
            f"{status} is not followed",
            [],
            rest=[answer(f"{status} Moved", "", "Location: http://127.0.0.1:%OTHER%/secret-place/ops")],
            exit=1,
            says=["secret-place"],
            password=SECRET,
            hides=[SECRET],
            check=lambda outcome: only_posts_here(outcome),
        )
        for status in (301, 302, 303, 307, 308)
    ),
    *(
        producer(f"{status} ends the producer with the agent's sentence", [], rest=[problem(status, detail)], exit=1, says=[detail], password=SECRET, hides=[SECRET], check=lambda outcome: nothing_skipped(outcome))
        for status, detail in REFUSALS.items()
    ),
    producer(
        "credentials in the URL are sent and never shown",
        [],
        rest=[problem("401 Unauthorized", "a password is needed")],
        url="http://user:s3cr3t@127.0.0.1:%HERE%",
        exit=1,
        says=["a password is needed"],
        hides=["s3cr3t", "dXNlcjpzM2NyM3Q"],
        check=lambda outcome: basic(outcome),
    ),
    producer(
        "busy answers and lost connections get the same batch again",
        [
            *([problem(status, "not now")] for status in ("408 Request Timeout", "425 Too Early", "429 Too Many Requests", "500 Internal Server Error", "502 Bad Gateway", "503 Service Unavailable", "504 Gateway Timeout", "507 Insufficient Storage")),
            [Do.RESET],
            [Do.CLOSE],
            [b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{\"ingested", Do.CLOSE],
            DELIVERED,
        ],
        flags={"backoff": "0.01,0.02"},
        batches=[ALL] * 12,
        says=["again|wait"],
        check=lambda outcome: same_bytes(outcome),
    ),
    producer("an agent that is not there yet gets the batch when it is", [[Do.LISTEN, Ingest()]], batches=[ALL]),
    *(
        producer(f"{what} is given up and the batch sent again", [script, DELIVERED], flags={"timeout": "1"}, batches=[ALL, ALL])
        for what, script in STALLS.items()
    ),
    producer("Retry-After in seconds is kept", [[problem("503 Service Unavailable", "busy", "Retry-After: 1")], DELIVERED], batches=[ALL, ALL], gaps={0: 1.0}),
    producer("Retry-After as a date is kept", [[problem("429 Too Many Requests", "busy", "Retry-After: %DATE+1%")], DELIVERED], batches=[ALL, ALL], check=not_before_its_date),
    producer(
        "Retry-After that is unreadable, negative or past is none",
        [*([problem("503 Service Unavailable", "busy", f"Retry-After: {value}")] for value in ("soon", "-5", "%DATE-100%", "1.5e3", "Infinity", "NaN", "")), DELIVERED],
        flags={"backoff": "0.01,0.02"},
        batches=[ALL] * 8,
    ),
    producer(
        "lines that the agent names are rejected and told, and the others delivered",
        [],
        rest=[Ingest(bad=("b",))],
        input=ABC,
        exit=1,
        says=["is not to my taste"],
        check=lambda outcome: delivered_but(outcome, ["a", "b", "c"], "b"),
    ),
    producer(
        "many lines that the agent names are told once for each answer",
        [],
        rest=[Ingest(bad=tuple(f"x{n}" for n in range(1, 500)))],
        input=lines(*(operation(f"x{n}") for n in range(501))),
        exit=1,
        says=["is not to my taste"],
        check=lambda outcome: told_once_an_answer(outcome, "is not to my taste", ["x0", "x500"]),
    ),
    producer(
        "a batch of which all lines are named is told, and nothing is sent again",
        [[invalid('[{"line": 1, "field": "type", "reason": "is not to my taste"}]')]],
        input=lines(operation("a")),
        batches=[["a"]],
        exit=1,
        says=["is not to my taste"],
    ),
    *(
        producer(f"{what} in place of the named lines is a refusal of all", [], rest=[invalid(errors)], exit=1, says=["some lines are wrong|400"], check=lambda outcome: nothing_skipped(outcome), python_once=True)
        for what, errors in UNUSABLE.items()
    ),
    producer(
        "a batch that is too large is halved, and one operation that is too large is rejected",
        [],
        rest=[Ingest(too_large=("x5",))],
        input=lines(*(operation(f"x{n}") for n in range(10))),
        exit=1,
        says=["send fewer"],
        check=lambda outcome: delivered_but(outcome, [f"x{n}" for n in range(10)], "x5"),
    ),
    producer(
        "batches grow back when larger ones are taken again",
        [],
        rest=[Ingest(lines=100, wide_after=6)],
        input=lines(*(operation(f"x{n}") for n in range(6000))),
        check=lambda outcome: grown_back(outcome, [f"x{n}" for n in range(6000)]),
    ),
    producer(
        "operations arrive in order and in batches",
        [],
        rest=DELIVERED,
        input=lines(*(operation(f"x{n}") for n in range(5000))),
        check=lambda outcome: delivered_but(outcome, [f"x{n}" for n in range(5000)], ""),
    ),
]  # fmt: skip

INVALID_LINES: dict[str, bytes] = {
    "no JSON": b"{",
    "a list": b"[]",
    "text": b'"insert"',
    "invalid UTF-8": lines(operation("xö")).strip().replace("ö".encode(), b"\xf6"),
    "NUL": lines(operation("x")).strip().replace(b'"x"', b'"x\\u0000"'),
    "an unpaired surrogate": lines(operation("x")).strip().replace(b'"x"', b'"x\\ud800"'),
    "no id": b'{"event": "insert", "type": "video"}',
    "no type": b'{"event": "insert", "id": "x"}',
    "no event": b'{"type": "video", "id": "x"}',
    "an unknown event": b'{"event": "upsert", "type": "video", "id": "x"}',
    "an empty id": b'{"event": "insert", "type": "video", "id": ""}',
    "an id that is a number": b'{"event": "insert", "type": "video", "id": 7}',
    "a slash in the type": lines(operation("x", type="a/b")).strip(),
    "a comma in the type": lines(operation("x", type="a,b")).strip(),
    "a type of 256 bytes": lines(operation("x", type="t" * 256)).strip(),
    "an id of 1025 bytes": lines(operation("ö" * 513)).strip(),
    "parents that are a text": lines(operation("x", parents="user")).strip(),
    "an empty parent": lines(operation("x", parents=[""])).strip(),
    "a time without a zone": lines(operation("x", timestamp="2024-05-06T07:08:09")).strip(),
    "a time that is none": lines(operation("x", timestamp="yesterday")).strip(),
    "64 KiB": lines(operation("x", parents=["p" * 70_000])).strip(),
}

STRINGS = [
    "ключ/😀",
    "tab\there",
    'quote " and \\ and /',
    "\u2028\u2029\x85",
    "e\u0301 is not \u00e9",
    "<&>'",
    "\x7f\x01",
    "ö" * 500,
]

INPUT = [
    *(
        producer(
            f"a line with {what} is told with its number, and the others are delivered",
            [],
            rest=DELIVERED,
            input=lines(operation("a")) + line + b"\n" + lines(operation("c")),
            exit=1,
            says=[r"line 2\b"],
            check=lambda outcome: delivered_but(outcome, ["a", "c"], ""),
            python_once=True,
        )
        for what, line in INVALID_LINES.items()
    ),
    producer(
        "strings arrive as they were given",
        [],
        rest=DELIVERED,
        input=lines(*(operation(text, parents=[text, "p"]) for text in STRINGS)),
        check=lambda outcome: arrived(outcome, [operation(text, parents=[text, "p"]) for text in STRINGS]),
    ),
    producer(
        "types and events in upper case, and every zone of a time, are taken",
        [],
        rest=DELIVERED,
        input=lines(operation("a", type="Video", event="INSERT", timestamp="2024-05-06T07:08:09.123456+05:30"), operation("b", timestamp="2024-05-06T07:08:09Z")),
        check=lambda outcome: delivered_but(outcome, ["a", "b"], ""),
    ),
    producer("SIGTERM while the input is read delivers what was read", [], rest=DELIVERED, input=ABC, input_stays_open=True, check=lambda outcome: delivered_but(outcome, [*"abc"], "")),
    producer(
        "SIGTERM ends a producer that waits to try again",
        [[problem("503 Service Unavailable", "busy", "Retry-After: 3000"), Told("again|wait"), Signal()]],
        exit=1,
        says=[r"\w+ \w+"],
        batches=[ALL],
        only=["go", "php"],
    ),
    producer(
        "close under load loses nothing that send has taken",
        [],
        rest=DELIVERED,
        flags={"senders": "8"},
        prints_taken=True,
        check=lambda outcome: all_taken_delivered(outcome),
        only=["python", "python-async", "javascript"],
    ),
    producer(
        "close wakes the senders that wait for room, and a second close returns at once",
        [[Do.HOLD]],
        flags={"senders": "8", "close-timeout": "0.2"},
        prints_taken=True,
        exit=1,
        says=["not delivered|are left|operations"],
        check=lambda outcome: all_woken(outcome),
        only=["python", "python-async", "javascript"],
    ),
]  # fmt: skip

BAD_FLAGS = {
    "an unknown flag": {"nonsense": "1"},
    "a time-out that is no number": {"timeout": "soon"},
    "a negative time-out": {"timeout": "-1"},
    "a back-off whose end is before its begin": {"backoff": "2,1"},
    "an address of another scheme": {"url": "ftp://127.0.0.1"},
    "an address without a scheme": {"url": "127.0.0.1:8042"},
    "an address without a host": {"url": "http://"},
    "a UDP address without a host": {"url": "udp://"},
    "a UDP address with a bad port": {"url": "udp://127.0.0.1:99999"},
}

FLAGS = [
    *(producer(f"{what} is refused", [], flags=flags, exit=2, says=[r"\w+"], batches=[], python_once=True) for what, flags in BAD_FLAGS.items()),
    producer("an unknown UDP host is told", [], url="udp://oplog.invalid:1", exit=1, says=["oplog.invalid"], batches=[]),
    producer(
        "an operation larger than a datagram is told with its number, and the others are sent",
        [],
        url="udp://127.0.0.1:9",
        input=lines(operation("a"), operation("b", parents=["p" * 1000] * 65 + ["p" * 380]), operation("c")),
        exit=1,
        says=[r"line 2\b"],
        batches=[],
    ),
]  # fmt: skip

ROWS = [*HTTP, *INPUT, *FLAGS]


def well_asked(outcome: Outcome) -> None:
    request = outcome.requests[0]
    assert request.method == "POST"
    assert request.path == "/ops"
    assert request.headers["content-type"].partition(";")[0] == "application/x-ndjson"


def nothing_skipped(outcome: Outcome) -> None:
    """However often it was tried, it was the whole batch."""
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


def arrived(outcome: Outcome, operations: list[Operation]) -> None:
    assert [
        operation for request in outcome.requests for operation in request.operations
    ] == operations
