"""The table of consumers: bytes of the stream, and answers."""

import re
from typing import Any

from tests.conformance.events import block, blocks, checkpoint, data_of, event_id, live, operation, reset
from tests.conformance.play import Outcome, Row
from tests.conformance.steps import (
    LAST_CHUNK,
    STREAM_HEAD,
    UNCHUNKED_HEAD,
    Do,
    Drip,
    Printed,
    Script,
    Signal,
    Told,
    answer,
    byte_by_byte,
    chunk,
    cut_at,
    flat,
    head,
    problem,
    stream,
)

A, B, C, D = (operation(number) for number in (1, 2, 3, 4))
WIDE = operation(9, "update", "vidéo", "ключ/😀", "user/ö", "日本")
SECRET = "s3cr3t-Wörd"


def consumer(name: str, answers: list[Script], **fields: Any) -> Row:
    return Row(name, "consumer", answers, **fields)


def following(number: int) -> dict[str, object]:
    return {**WIDE, "id": event_id(number)}


def numbered_cuts() -> Script:
    """A block for every byte at which it may be cut; each must be printed before the next is sent."""
    length = len(block(following(0)))
    return flat([*cut_at(block(following(k)), k), Printed(k)] for k in range(1, length))


def ends(block_: bytes, line_end: bytes) -> bytes:
    return block_.replace(b"\n", line_end)


CUTS = len(block(following(0))) - 1

BYTES = [
    consumer(
        "a block is read as soon as it is whole, wherever it is cut into two chunks",
        [stream(*numbered_cuts())],
        events=[following(k) for k in range(1, CUTS + 1)],
        positions=[None],
    ),
    consumer(
        "a block is read byte by byte",
        [stream(*byte_by_byte(block(A)), Printed(1), *byte_by_byte(block(WIDE)), Printed(2))],
        events=[A, WIDE],
        positions=[None],
    ),
    consumer(
        "chunks may have extensions",
        [[STREAM_HEAD, chunk(block(A), ";x=y"), Printed(1), chunk(block(B), ';name="a;b"'), Printed(2), LAST_CHUNK, Do.CLOSE]],
        events=[A, B],
        positions=[None],
    ),
    consumer(
        "chunk sizes may be in upper case and have leading zeros, and the last chunk may have trailers",
        [
            [STREAM_HEAD, b"%08X\r\n" % len(block(A)) + block(A) + b"\r\n", Printed(1), b"0\r\nX-Trailer: 1\r\n\r\n", Do.CLOSE],
            stream(block(B)),
        ],
        events=[A, B],
        positions=[None, A["id"]],
    ),
    consumer(
        "a stream without chunked encoding lasts until the connection is closed",
        [[UNCHUNKED_HEAD, *cut_at(block(A), 30), Printed(1), *byte_by_byte(block(WIDE)), Printed(2), Do.CLOSE], stream(block(B))],
        events=[A, WIDE, B],
        positions=[None, WIDE["id"]],
    ),
    consumer(
        "lines may end in CR LF",
        [stream(ends(block(A), b"\r\n"), Printed(1), *byte_by_byte(ends(block(WIDE), b"\r\n")), Printed(2))],
        events=[A, WIDE],
    ),
    consumer(
        "lines may end in CR, and no event waits for the byte after it",
        [stream(ends(block(A), b"\r"), Printed(1), *byte_by_byte(ends(block(WIDE), b"\r")), Printed(2), block(B), Printed(3))],
        events=[A, WIDE, B],
    ),
    consumer(
        "a cut between CR and LF makes no blank line",
        [stream(b"id: %s\r" % A["id"].encode(), Do.READ, b"\nevent: insert\r", Do.READ, b"\ndata: %s\r" % data_of(A).encode(), Do.READ, b"\n\r", Do.READ, b"\n", Printed(1))],
        events=[A],
    ),
    consumer(
        "one byte order mark at the start is dropped",
        [stream(b"\xef", Do.READ, b"\xbb", Do.READ, b"\xbf" + block(A), Printed(1), block(B))],
        events=[A, B],
    ),
    consumer(
        "comments, unknown fields, fields without colon, no space after the colon, and two data lines are read as the standard says",
        [
            stream(
                b": comment\n:\nunknown: 1\nunknown\nid:%s\nevent:insert\n" % A["id"].encode()
                + b"data: " + data_of(A).encode().replace(b',"type"', b',\ndata: "type"') + b"\n:in between\n\n",
                Printed(1),
                b"data\n\n" + block(B).replace(b"data: ", b"data:"),
                Printed(2),
                block(C).replace(b"event: insert\n", b"event: delete\nevent: insert\n"),
            )
        ],
        events=[A, B, C],
    ),
    consumer(
        "a block cut off by the end of the connection is no event",
        [
            stream(block(A), block(B)[:-1]),
            stream(block(B), b"id: %s\n" % D["id"].encode()),
            [STREAM_HEAD, chunk(block(C)[:-20]), Do.RESET],
            stream(block(C)),
        ],
        events=[A, B, C],
        positions=[None, A["id"], B["id"], B["id"]],
    ),
    consumer(
        "an unknown event is passed over and told once, and its id moves the position",
        [
            stream(b"event: news\ndata: {}\n\n" + b"event: news\n\n" + b"id: %s\nevent: news\ndata: x\n\n" % event_id(5).encode()),
            stream(b"id: %s\nevent: news\n\n" % event_id(6).encode()),
            stream(block(operation(7))),
        ],
        events=[operation(7)],
        positions=[None, event_id(5), event_id(6)],
        check=lambda outcome: told_times(outcome, "news", 1),
    ),
    consumer(
        "a block with only an id moves the position",
        [stream(block(A), checkpoint(event_id(5))), stream(checkpoint(event_id(6)), checkpoint(event_id(7))), stream(block(operation(8)))],
        events=[A, operation(8)],
        positions=[None, event_id(5), event_id(7)],
    ),
    consumer(
        "retry is ignored",
        [stream(b"retry: 3600000\n" + block(A)), stream(b"retry: 3600000\n\n" + block(B))],
        events=[A, B],
        positions=[None, A["id"]],
    ),
    consumer(
        "an event without an id has the last id received",
        [
            stream(block(A), block(B, with_id=False), block(reset(), with_id=False), block(live(""), with_id=False)),
            stream(checkpoint(event_id(5)), block(C, with_id=False)),
        ],
        events=[A, {**B, "id": A["id"]}, reset(A["id"]), live(A["id"]), {**C, "id": event_id(5)}],
        positions=[None, A["id"]],
    ),
    consumer(
        "operations of the types live and reset are operations",
        [stream(blocks(operation(1, "insert", "live"), operation(2, "delete", "reset"), operation(3, "update", "insert")))],
        events=[operation(1, "insert", "live"), operation(2, "delete", "reset"), operation(3, "update", "insert")],
    ),
    consumer(
        "a copy is handed out whole, with the positions between its ends",
        [
            stream(block(reset()), block({**A, "id": "1700000000000"}), block({**B, "id": "1700000000001"})),
            stream(block({**B, "id": "1700000000001"}), block(live(event_id(5))), block(C)),
        ],
        flags={"start": "0"},
        events=[reset(), {**A, "id": "1700000000000"}, {**B, "id": "1700000000001"}, {**B, "id": "1700000000001"}, live(event_id(5)), C],
        positions=["0", "1700000000001"],
    ),
    consumer(
        "a block of 900,000 bytes is read",
        [stream(block({**A, "parents": ["p" * 1000] * 900}), Printed(1), b": %s\n\n" % (b"c" * 900_000), block(B))],
        events=[{**A, "parents": ["p" * 1000] * 900}, B],
    ),
]  # fmt: skip

BAD_BLOCKS = {
    "an id that is none": b"id: not-an-id\nevent: insert\ndata: %s\n\n" % data_of(B).encode(),
    "an id in upper case": b"id: 663880AAAAAAAAAAAAAAAAAA\nevent: insert\ndata: %s\n\n" % data_of(B).encode(),
    "an id that is none, without an event": b"id: not-an-id\n\n",
    "data that is no JSON": b"id: %s\nevent: insert\ndata: {\n\n" % B["id"].encode(),
    "data that is a list": b"id: %s\nevent: insert\ndata: []\n\n" % B["id"].encode(),
    "no data": b"id: %s\nevent: insert\n\n" % B["id"].encode(),
    "no type": block(B).replace(b'"type"', b'"kind"'),
    "no object id": block(B).replace(b'"id":', b'"key":'),
    "a type that is a number": block(B).replace(b'"video"', b"7"),
    "parents that are a text": block(B).replace(b'"parents":[]', b'"parents":"user"'),
    "a parent that is a number": block(B).replace(b'"parents":[]', b'"parents":[7]'),
    "a timestamp that is none": block(B).replace(b"2024-05-06T", b"yesterday"),
    "invalid UTF-8": block(operation(2, "insert", "video", "xö")).replace("ö".encode(), b"\xf6"),
    "more than 1 MB": block({**B, "parents": ["p" * 1000] * 2000}),
    "more than 1 MB in one line without an end": b"data: " + b"x" * 2_000_000,
}

BAD = [
    consumer(
        f"a block with {what} ends the consumer before it",
        [[STREAM_HEAD, chunk(block(A)), Printed(1), chunk(bad), Do.HOLD]],
        flags={"state": "state"},
        events=[A],
        exit=1,
        says=[r"\w+ \w+ \w+"],
        state=A["id"],
        positions=[None],
    )
    for what, bad in BAD_BLOCKS.items()
]

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
    "a busy answer whose body stalls": [head("Content-Length: 1000", status="503 Service Unavailable") + b"{", Do.HOLD],
    "a busy answer whose body drips for ever": [
        head("Content-Length: 1000000", status="503 Service Unavailable"),
        Drip(b"x"),
    ],
    "a busy answer whose chunks drip for ever": [
        head("Transfer-Encoding: chunked", status="429 Too Many Requests"),
        Drip(chunk(b"x")),
    ],
}

ANSWERS = [
    consumer("HTML is no stream", [[answer("200 OK", "<html>hello</html>", "Content-Type: text/html")]], exit=1, says=["agent"], positions=[None]),
    consumer("an answer without content type is no stream", [[answer("200 OK", block(A))]], exit=1, says=["agent"], positions=[None]),
    consumer("204 is no stream", [[b"HTTP/1.1 204 No Content\r\n\r\n"]], exit=1, says=[r"\w+ \w+"], positions=[None]),
    consumer(
        "the content type of a stream may have any case and parameters",
        [[head("content-type: Text/Event-Stream;Charset=UTF-8", "transfer-encoding: Chunked", "Connection: close"), chunk(block(A)), LAST_CHUNK, Do.CLOSE]],
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
        flags={"timeout": "5", "count": "1", "backoff": "0.02,0.02", "state": "missing/folder/state"},
        exit=1,
        hides=["s3cr3t"],
    ),
    consumer("credentials in a URL with a bad port are never shown", [], url="http://user:s3cr3t@127.0.0.1:99999", exit=2, says=[r"\w+ \w+"], hides=["s3cr3t"]),
    consumer(
        "busy answers are tried again from the same position",
        [
            stream(block(A)),
            *(
                [problem(status, "not now")]
                for status in ("408 Request Timeout", "425 Too Early", "429 Too Many Requests", "500 Internal Server Error", "502 Bad Gateway", "503 Service Unavailable", "504 Gateway Timeout")
            ),
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
            [[problem("503 Service Unavailable", "busy", f"Retry-After: {value}"), Told(r"trying again in"), Signal(), Do.HOLD]],
            check=lambda outcome: told_delays(outcome, 3599, 4800),
        )
        for what, value in {"a day": "86400", "a number of 400 digits": "9" * 400, "a date in ten years": "%DATE+315360000%"}.items()
    ),
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
        "twenty redirects are followed",
        [*([answer("302 Found", "", f"Location: /ops/{n}")] for n in range(1, 21)), stream(block(A))],
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
        [stream(block(A)), [answer("307 Temporary Redirect", "", "Location: http://127.0.0.1:%OTHER%/ops")], stream(block(B))],
        password=SECRET,
        events=[A, B],
        positions=[None, A["id"], A["id"]],
        check=lambda outcome: kept_from_the_other_port(outcome),
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
        "the delay doubles through connections that end at once, also with checkpoints, and starts over after an event",
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
            flags={"timeout": "1"},
            events=[A, B],
            positions=[None, A["id"], A["id"]],
        )
        for what, script in STALLS.items()
    ),
    consumer(
        "a stream that is silent is given up and tried again",
        [stream(block(A), end=[Do.HOLD]), stream(block(B))],
        flags={"heartbeat-timeout": "1"},
        events=[A, B],
        positions=[None, A["id"]],
    ),
    consumer(
        "comments keep a stream alive",
        [stream(block(A), Drip(b":\n", 0.3, times=14), block(B))],
        flags={"heartbeat-timeout": "3", "timeout": "2"},
        events=[A, B],
        positions=[None],
    ),
    consumer(
        "a handler slower than the heartbeat timeout breaks no connection and loses nothing",
        [stream(*(block(operation(n)) for n in range(2000)), Drip(b":\n", 0.2, events=2000), block(operation(2000)))],
        flags={"heartbeat-timeout": "1"},
        events=[operation(n) for n in range(2001)],
        reads_late=3.0,
        positions=[None],
    ),
    consumer(
        "filters and start are told to the agent",
        [stream(block(A))],
        flags={"types": "video,user", "parents": "a/1,b", "start": event_id(5)},
        events=[A],
        positions=[event_id(5)],
        check=lambda outcome: asked(outcome, {"types": ["video,user"], "parents": ["a/1,b"], "checkpoint": ["1"]}),
    ),
]  # fmt: skip


def told_times(outcome: Outcome, word: str, times: int) -> None:
    told = [line for line in outcome.stderr.splitlines() if word in line]
    assert len(told) == times, f"{word!r} is told {len(told)} times"


def authorizations(outcome: Outcome, expected: list[str]) -> None:
    assert [request.headers.get("authorization") for request in outcome.requests] == expected


def not_before_its_date(outcome: Outcome) -> None:
    first, second = outcome.requests[:2]
    assert second.wall >= first.promised, f"came back {first.promised - second.wall:.3f} s before the date"


def delays(outcome: Outcome) -> list[float]:
    return [float(text.replace(",", "")) for text in re.findall(r"trying again in ([\d.,]+) s", outcome.stderr)]


def told_delays(outcome: Outcome, least: float, most: float) -> None:
    found = delays(outcome)
    assert found
    assert all(least <= delay <= most for delay in found), found


def last_delay_at_most(outcome: Outcome, most: float) -> None:
    assert delays(outcome)[-1] <= most, delays(outcome)


def redirected(outcome: Outcome, paths: list[str]) -> None:
    assert [request.path for request in outcome.requests] == paths
    assert all(request.headers.get("authorization", "").startswith("Basic ") for request in outcome.requests)


def kept_from_the_other_port(outcome: Outcome) -> None:
    assert [request.port for request in outcome.requests] == ["here", "here", "other"]
    assert ["authorization" in request.headers for request in outcome.requests] == [True, True, False]


def asked(outcome: Outcome, query: dict[str, list[str]]) -> None:
    assert outcome.requests[0].query == query
    assert "text/event-stream" in outcome.requests[0].headers["accept"]


ROWS = [*BYTES, *BAD, *ANSWERS]
