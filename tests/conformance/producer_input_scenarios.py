"""Scenarios of producers: the input, signals and flags."""

from tests.conformance.producer_checks import all_taken_delivered, all_woken, arrived, delivered_but
from tests.conformance.producing import ABC, ALL, DELIVERED, lines, operation, producer
from tests.conformance.steps import (
    Do,
    Signal,
    Told,
    problem,
)

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
        check=lambda outcome: arrived(
            outcome, [operation(text, parents=[text, "p"]) for text in STRINGS]
        ),
    ),
    producer(
        "types and events in upper case, and every zone of a time, are taken",
        [],
        rest=DELIVERED,
        input=lines(
            operation(
                "a", type="Video", event="INSERT", timestamp="2024-05-06T07:08:09.123456+05:30"
            ),
            operation("b", timestamp="2024-05-06T07:08:09Z"),
        ),
        check=lambda outcome: delivered_but(outcome, ["a", "b"], ""),
    ),
    producer(
        "SIGTERM while the input is read delivers what was read",
        [],
        rest=DELIVERED,
        input=ABC,
        input_stays_open=True,
        check=lambda outcome: delivered_but(outcome, [*"abc"], ""),
    ),
    producer(
        "SIGTERM ends a producer that waits to try again",
        [
            [
                problem("503 Service Unavailable", "busy", "Retry-After: 3000"),
                Told("again|wait"),
                Signal(),
            ]
        ],
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
]

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
    *(
        producer(
            f"{what} is refused",
            [],
            flags=flags,
            exit=2,
            says=[r"\w+"],
            batches=[],
            python_once=True,
        )
        for what, flags in BAD_FLAGS.items()
    ),
    producer(
        "an unknown UDP host is told",
        [],
        url="udp://oplog.invalid:1",
        exit=1,
        says=["oplog.invalid"],
        batches=[],
    ),
    producer(
        "an operation larger than a datagram is told with its number, and the others are sent",
        [],
        url="udp://127.0.0.1:9",
        input=lines(
            operation("a"), operation("b", parents=["p" * 1000] * 65 + ["p" * 380]), operation("c")
        ),
        exit=1,
        says=[r"line 2\b"],
        batches=[],
    ),
]


SCENARIOS = [*INPUT, *FLAGS]
