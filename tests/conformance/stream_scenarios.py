"""The table of consumers: bytes of the stream."""

from typing import Any

from tests.conformance.events import (
    block,
    blocks,
    checkpoint,
    data_of,
    event_id,
    live,
    operation,
    reset,
)
from tests.conformance.play import Outcome, Scenario
from tests.conformance.steps import (
    LAST_CHUNK,
    STREAM_HEAD,
    UNCHUNKED_HEAD,
    Do,
    Printed,
    Script,
    byte_by_byte,
    chunk,
    cut_at,
    flat,
    stream,
)

A, B, C, D = (operation(number) for number in (1, 2, 3, 4))
WIDE = operation(9, "update", "vidéo", "ключ/😀", "user/ö", "日本")


def consumer(name: str, answers: list[Script], **fields: Any) -> Scenario:
    return Scenario(name, "consumer", answers, **fields)


def following(number: int) -> dict[str, object]:
    return {**WIDE, "id": event_id(number)}


def numbered_cuts() -> Script:
    """Return a block for each place of a cut; each is printed before the next is sent."""
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
        [
            [
                STREAM_HEAD,
                chunk(block(A), ";x=y"),
                Printed(1),
                chunk(block(B), ';name="a;b"'),
                Printed(2),
                LAST_CHUNK,
                Do.CLOSE,
            ]
        ],
        events=[A, B],
        positions=[None],
    ),
    consumer(
        "chunk sizes may have upper case and leading zeros, and the last chunk trailers",
        [
            [
                STREAM_HEAD,
                b"%08X\r\n" % len(block(A)) + block(A) + b"\r\n",
                Printed(1),
                b"0\r\nX-Trailer: 1\r\n\r\n",
                Do.CLOSE,
            ],
            stream(block(B)),
        ],
        events=[A, B],
        positions=[None, A["id"]],
    ),
    consumer(
        "a stream without chunked encoding lasts until the connection is closed",
        [
            [
                UNCHUNKED_HEAD,
                *cut_at(block(A), 30),
                Printed(1),
                *byte_by_byte(block(WIDE)),
                Printed(2),
                Do.CLOSE,
            ],
            stream(block(B)),
        ],
        events=[A, WIDE, B],
        positions=[None, WIDE["id"]],
    ),
    consumer(
        "lines may end in CR LF",
        [
            stream(
                ends(block(A), b"\r\n"),
                Printed(1),
                *byte_by_byte(ends(block(WIDE), b"\r\n")),
                Printed(2),
            )
        ],
        events=[A, WIDE],
    ),
    consumer(
        "lines may end in CR, and no event waits for the byte after it",
        [
            stream(
                ends(block(A), b"\r"),
                Printed(1),
                *byte_by_byte(ends(block(WIDE), b"\r")),
                Printed(2),
                block(B),
                Printed(3),
            )
        ],
        events=[A, WIDE, B],
    ),
    consumer(
        "lines may end in CR, LF and CR LF in one block",
        [
            stream(
                *byte_by_byte(
                    b"id: %s\revent: insert\ndata: %s\r\n\r"
                    % (A["id"].encode(), data_of(A).encode())
                ),
                Printed(1),
                block(B),
            )
        ],
        events=[A, B],
    ),
    consumer(
        "a cut between CR and LF makes no blank line",
        [
            stream(
                b"id: %s\r" % A["id"].encode(),
                Do.READ,
                b"\nevent: insert\r",
                Do.READ,
                b"\ndata: %s\r" % data_of(A).encode(),
                Do.READ,
                b"\n\r",
                Do.READ,
                b"\n",
                Printed(1),
            )
        ],
        events=[A],
    ),
    consumer(
        "one byte order mark at the start is dropped",
        [stream(b"\xef", Do.READ, b"\xbb", Do.READ, b"\xbf" + block(A), Printed(1), block(B))],
        events=[A, B],
    ),
    consumer(
        "unusual fields and comments are read as the standard says",
        [
            stream(
                b": comment\n:\nunknown: 1\nunknown\nid:%s\nevent:insert\n" % A["id"].encode()
                + b"data: "
                + data_of(A).encode().replace(b',"type"', b',\ndata: "type"')
                + b"\n:in between\n\n",
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
            stream(
                b"event: news\ndata: {}\n\n"
                + b"event: news\n\n"
                + b"id: %s\nevent: news\ndata: x\n\n" % event_id(5).encode()
            ),
            stream(b"id: %s\nevent: news\n\n" % event_id(6).encode()),
            stream(block(operation(7))),
        ],
        events=[operation(7)],
        positions=[None, event_id(5), event_id(6)],
        check=lambda outcome: told_times(outcome, "news", 1),
    ),
    consumer(
        "a block with only an id moves the position",
        [
            stream(block(A), checkpoint(event_id(5))),
            stream(checkpoint(event_id(6)), checkpoint(event_id(7))),
            stream(block(operation(8))),
        ],
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
            stream(
                block(A),
                block(B, with_id=False),
                block(reset(), with_id=False),
                block(live(""), with_id=False),
            ),
            stream(checkpoint(event_id(5)), block(C, with_id=False)),
        ],
        events=[A, {**B, "id": A["id"]}, reset(A["id"]), live(A["id"]), {**C, "id": event_id(5)}],
        positions=[None, A["id"]],
    ),
    consumer(
        "operations of the types live and reset are operations",
        [
            stream(
                blocks(
                    operation(1, "insert", "live"),
                    operation(2, "delete", "reset"),
                    operation(3, "update", "insert"),
                )
            )
        ],
        events=[
            operation(1, "insert", "live"),
            operation(2, "delete", "reset"),
            operation(3, "update", "insert"),
        ],
    ),
    consumer(
        "a copy is handed out whole, with the positions between its ends",
        [
            stream(
                block(reset()),
                block({**A, "id": "1700000000000"}),
                block({**B, "id": "1700000000001"}),
            ),
            stream(block({**B, "id": "1700000000001"}), block(live(event_id(5))), block(C)),
        ],
        flags={"start": "0"},
        events=[
            reset(),
            {**A, "id": "1700000000000"},
            {**B, "id": "1700000000001"},
            {**B, "id": "1700000000001"},
            live(event_id(5)),
            C,
        ],
        positions=["0", "1700000000001"],
    ),
    consumer(
        "a block of 900,000 bytes is read",
        [
            stream(
                block({**A, "parents": ["p" * 1000] * 900}),
                Printed(1),
                b": %s\n\n" % (b"c" * 900_000),
                block(B),
            )
        ],
        events=[{**A, "parents": ["p" * 1000] * 900}, B],
    ),
]

BAD_BLOCKS = {
    "an id that is none": b"id: not-an-id\nevent: insert\ndata: %s\n\n" % data_of(B).encode(),
    "an id in upper case": b"id: 663880AAAAAAAAAAAAAAAAAA\nevent: insert\ndata: %s\n\n"
    % data_of(B).encode(),
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
BAD += [
    consumer(
        "a bad block ends the consumer behind the good ones that came with it",
        [[STREAM_HEAD, chunk(blocks(A, B) + b"id: none\n\n" + block(C)), Do.HOLD]],
        flags={"state": "state"},
        events=[A, B],
        exit=1,
        says=[r"\w+ \w+ \w+"],
        state=B["id"],
        positions=[None],
    ),
]


NAMES = [
    consumer(
        "the consumer gives its name",
        [stream(block(A))],
        flags={"name": "Search_v2.eu-1"},
        events=[A],
        check=lambda outcome: asked_for(outcome, "/ops?checkpoint=1&name=Search_v2.eu-1"),
    ),
    consumer(
        "a name that an agent would refuse ends the consumer before it asks",
        [],
        flags={"name": "search index"},
        exit=2,
        says=[r"name\b.* 1 to 100 ASCII letters, digits, '\.', '_' or '-'"],
        positions=[],
    ),
]


def asked_for(outcome: Outcome, target: str) -> None:
    assert [request.target for request in outcome.requests] == [target]


def told_times(outcome: Outcome, word: str, times: int) -> None:
    told = [line for line in outcome.stderr.splitlines() if word in line]
    assert len(told) == times, f"{word!r} is told {len(told)} times"


SCENARIOS = [*BYTES, *BAD, *NAMES]
