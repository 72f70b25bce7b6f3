"""Scenarios of producers: answers, redirects, delays and time-outs."""

from tests.conformance.answer_scenarios import PATIENCE, SECRET, not_before_its_date
from tests.conformance.producer_checks import (
    basic,
    delivered_but,
    grown_back,
    nothing_skipped,
    only_posts_here,
    same_bytes,
    sent_once,
    told_once_an_answer,
    well_asked,
)
from tests.conformance.producing import ABC, ALL, DELIVERED, ONE, lines, operation, producer
from tests.conformance.steps import (
    BUSY,
    EARLY_HINTS,
    JSON,
    PROBLEM,
    Do,
    Drip,
    Ingest,
    Script,
    answer,
    chunk,
    head,
    problem,
)


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
    "one usable and one unusable line": (
        '[{"line": 1, "field": "id", "reason": "empty"},'
        ' {"line": 99, "field": "id", "reason": "empty"}]'
    ),
    "Infinity": '[{"line": Infinity, "field": "id", "reason": "empty"}]',
    "a number of 400 digits": '[{"line": 1%s, "field": "id", "reason": "empty"}]' % ("0" * 400),
    "a broken number": '[{"line": 1.5, "field": "id", "reason": "empty"}]',
    "a line as text": '[{"line": "1", "field": "id", "reason": "empty"}]',
    "no lines": "[]",
    "a text": '"all of them"',
    "null": "null",
}


def invalid(errors: str) -> bytes:
    return answer(
        "400 Bad Request",
        '{"title": "Bad Request", "status": 400, "detail": "some lines are wrong", '
        f'"errors": {errors}}}',
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
    producer(
        "a batch is delivered when the agent has all of it",
        [DELIVERED],
        batches=[ALL],
        check=lambda outcome: well_asked(outcome),
    ),
    producer(
        "an answer in chunks counts",
        [
            [
                head("Transfer-Encoding: chunked", JSON),
                chunk(b'{"ingest'),
                Do.READ,
                chunk(b'ed": 1}'),
                b"0\r\n\r\n",
            ]
        ],
        batches=[ALL],
    ),
    producer(
        "interim answers are passed over, also while the batch is sent",
        [],
        rest=DELIVERED,
        interim=EARLY_HINTS,
        input=lines(*(operation(f"x{n}", parents=["p" * 1000]) for n in range(900))),
        check=lambda outcome: sent_once(outcome, [f"x{n}" for n in range(900)]),
    ),
    producer("an empty input sends nothing", [], input=b"", batches=[]),
    producer(
        "an input whose last line lacks its end is sent whole",
        [DELIVERED],
        input=ONE[:-1],
        batches=[ALL],
    ),
    *(
        producer(
            f"{what} as the answer is no delivery",
            [],
            rest=script,
            exit=1,
            says=["agent"],
            check=lambda outcome: nothing_skipped(outcome),
            python_once=True,
        )
        for what, script in NO_DELIVERIES.items()
    ),
    *(
        producer(
            f"{status} is not followed",
            [],
            rest=[
                answer(f"{status} Moved", "", "Location: http://127.0.0.1:%OTHER%/secret-place/ops")
            ],
            exit=1,
            says=["secret-place"],
            password=SECRET,
            hides=[SECRET],
            check=lambda outcome: only_posts_here(outcome),
        )
        for status in (301, 302, 303, 307, 308)
    ),
    *(
        producer(
            f"{status} ends the producer with the agent's sentence",
            [],
            rest=[problem(status, detail)],
            exit=1,
            says=[detail],
            password=SECRET,
            hides=[SECRET],
            check=lambda outcome: nothing_skipped(outcome),
        )
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
            *([problem(status, "not now")] for status in (*BUSY, "507 Insufficient Storage")),
            [Do.RESET],
            [Do.CLOSE],
            [b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"ingested', Do.CLOSE],
            DELIVERED,
        ],
        flags={"backoff": "0.01,0.02"},
        batches=[ALL] * 12,
        says=["again|wait"],
        check=lambda outcome: same_bytes(outcome),
    ),
    producer(
        "an agent that is not there yet gets the batch when it is",
        [[Do.LISTEN, Ingest()]],
        batches=[ALL],
    ),
    *(
        producer(
            f"{what} is given up and the batch sent again",
            [script, DELIVERED],
            flags={"timeout": PATIENCE},
            batches=[ALL, ALL],
        )
        for what, script in STALLS.items()
    ),
    producer(
        "Retry-After in seconds is kept",
        [[problem("503 Service Unavailable", "busy", "Retry-After: 1")], DELIVERED],
        batches=[ALL, ALL],
        gaps={0: 1.0},
    ),
    producer(
        "Retry-After as a date is kept",
        [[problem("429 Too Many Requests", "busy", "Retry-After: %DATE+1%")], DELIVERED],
        batches=[ALL, ALL],
        check=not_before_its_date,
    ),
    producer(
        "Retry-After that is unreadable, negative or past is none",
        [
            *(
                [problem("503 Service Unavailable", "busy", f"Retry-After: {value}")]
                for value in ("soon", "-5", "%DATE-100%", "1.5e3", "Infinity", "NaN", "")
            ),
            DELIVERED,
        ],
        flags={"backoff": "0.01,0.02"},
        batches=[ALL] * 8,
    ),
    producer(
        "lines that the agent names are rejected and told, and the others delivered",
        [],
        rest=[Ingest(bad=("b",))],
        input=ABC,
        exit=1,
        says=["is not accepted"],
        check=lambda outcome: delivered_but(outcome, ["a", "b", "c"], "b"),
    ),
    producer(
        "many lines that the agent names are told once for each answer",
        [],
        rest=[Ingest(bad=tuple(f"x{n}" for n in range(1, 500)))],
        input=lines(*(operation(f"x{n}") for n in range(501))),
        exit=1,
        says=["is not accepted"],
        check=lambda outcome: told_once_an_answer(outcome, "is not accepted", ["x0", "x500"]),
    ),
    producer(
        "a batch of which all lines are named is told, and nothing is sent again",
        [[invalid('[{"line": 1, "field": "type", "reason": "is not accepted"}]')]],
        input=lines(operation("a")),
        batches=[["a"]],
        exit=1,
        says=["is not accepted"],
    ),
    *(
        producer(
            f"{what} in place of the named lines is a refusal of all",
            [],
            rest=[invalid(errors)],
            exit=1,
            says=["some lines are wrong|400"],
            check=lambda outcome: nothing_skipped(outcome),
            python_once=True,
        )
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
]

SCENARIOS = HTTP
