"""Requests that weigh little on the wire and would cost much: the cases, and random ones."""

import gzip
import random
import struct
import time
import zlib
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from tests.kits.agents.agent import Agent, Answer

# No request here has more bytes of body on the wire.
WIRE_BYTES = 64 * 1024
MB = 1 << 20
# The default of --max-body-size.
BODY = 16 * MB

# CPU time of one turn, on a machine that decodes a full body in the time of REFERENCE.
TURN_SECONDS = 0.05
REFERENCE = 0.027

_decode = msgspec.json.Decoder(msgspec.Raw).decode

TOPIC = "/v1/namespaces/ns/topics/t"
# For messages that are taken.
LARGE_TOPIC = "/v1/namespaces/ns/topics/large"
OPLOG = "/v1/namespaces/system/topics/oplog"


class Hostile(NamedTuple):
    """A request. ``body`` is made when it is sent: it may have megabytes before it is packed.

    ``answer_bytes``: the most that the answer may have.
    """

    name: str
    method: str
    path: str
    body: Callable[[], bytes]
    media_type: str = "application/json"
    packed: bool = True
    headers: tuple[tuple[str, str], ...] = ()
    answer_bytes: int = 16 * 1024

    def __str__(self) -> str:
        return self.name

    def wire(self) -> bytes:
        """Return the body as it is sent."""
        raw = self.body()
        sent = packed(raw) if self.packed else raw
        assert len(sent) <= WIRE_BYTES, (self.name, len(sent))
        return sent


# A multiple of the lengths of nearly all units that are repeated here.
_PIECE = 420 * 801


def packed(raw: bytes) -> bytes:
    """Return the body in gzip. A piece that equals the one before it is compressed once."""
    parts, last, packed = [b"\x1f\x8b\x08\0\0\0\0\0\x02\xff"], b"", b""
    for at in range(0, len(raw), _PIECE):
        piece = raw[at : at + _PIECE]
        if piece != last:
            packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
            last, packed = piece, packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH)
        parts.append(packed)
    end = b"\x03\0"  # an empty last block
    return b"".join([*parts, end, struct.pack("<II", zlib.crc32(raw), len(raw))])


def repeated(unit: bytes, size: int, before: bytes = b"", after: bytes = b"") -> bytes:
    return before + unit * ((size - len(before) - len(after)) // len(unit)) + after


def _listed(unit: bytes, last: bytes) -> Callable[[int], bytes]:
    """Return the maker of a list of many equal values."""
    return lambda size: repeated(unit, size, b"[", last + b"]")


# JSON values that are cheap to send and dear to decode, by their size in bytes.
VALUES: dict[str, Callable[[int], bytes]] = {
    "lists": _listed(b"[],", b"[]"),
    "numbers": _listed(b"1,", b"1"),
    "objects": _listed(b'{"":1},', b"1"),
    "strings": _listed(b'"",', b'""'),
    "brackets in strings": _listed(b'"[",', b'""'),
    "deep lists": _listed(b"[" * 400 + b"]" * 400 + b",", b"1"),
    "one deep list": lambda size: b"[" * size,
    "one string": lambda size: repeated(b"a", size, b'"', b'"'),
    "escapes": lambda size: repeated(b"\\u0041", min(size, 7 * MB - 99), b'"', b'"'),
    "one number": lambda size: b"9" * size,
    "blanks": lambda size: b" " * (size - 1) + b"1",
    "members": lambda size: repeated(b'"a":1,', size, b"{", b'"a":1}'),
    "large elements": _listed(b'"' + b"[" * 65_000 + b'",', b"1"),
    "two large lists": lambda size: (
        b"[" + b",".join([repeated(b"[],", size // 2 - 9, b"[", b"1]")] * 2) + b"]"
    ),
}

# The same at the limits of endpoints that take less than a whole body.
SMALLER = {
    "poll": 63 * 1024,
    "poll with a snapshot": 2 * MB - 1000,
    "begin": 15 * 1024,
    "commit": 15 * 1024,
    "report": 600 * 1024 - 1000,
    "lease": 63 * 1024,
    "properties": 15 * 1024,
}

# Endpoints that take JSON, and the member that holds a value.
ENDPOINTS = {
    "operations": ("POST", "/ops", b"%s"),
    "publish": ("POST", f"{TOPIC}/publish", b'{"messages":%s}'),
    "publish one": ("POST", f"{TOPIC}/publish", b'{"messages":[%s]}'),
    "publish a payload": ("POST", f"{TOPIC}/publish", b'{"messages":[{"payload":%s}]}'),
    "publish headers": ("POST", f"{TOPIC}/publish", b'{"messages":[{"payload":"","headers":%s}]}'),
    "publish a key": ("POST", f"{TOPIC}/publish", b'{"messages":[{"payload":"","key":%s}]}'),
    "publish operations": ("POST", f"{OPLOG}/publish", b'{"messages":%s}'),
    "publish an operation": ("POST", f"{OPLOG}/publish", b'{"messages":[%s]}'),
    "store": ("POST", f"{TOPIC}/store", b'{"transactionWritePointer":7,"messages":%s}'),
    "roll back": ("POST", f"{TOPIC}/rollback", b'{"transactionWritePointer":7,"rollbackKeys":%s}'),
    "poll": ("POST", f"{TOPIC}/poll", b'{"startFrom":%s}'),
    "poll with a snapshot": (
        "POST",
        f"{TOPIC}/poll",
        b'{"transaction":{"readPointer":1,"invalid":%s}}',
    ),
    "begin": ("POST", "/v1/txns", b'{"group":%s}'),
    "records": ("POST", "/v1/txns/4611686018427387904/records", b'{"records":%s}'),
    "a record": (
        "POST",
        "/v1/txns/4611686018427387904/records",
        b'{"records":[{"topic":"ns/t","lsn":0,"payload":%s}]}',
    ),
    "a record's topic": (
        "POST",
        "/v1/txns/4611686018427387904/records",
        b'{"records":[{"topic":%s,"lsn":0,"payload":"a"}]}',
    ),
    "commit": ("POST", "/v1/txns/4611686018427387904/commit", b'{"records":%s}'),
    "report": ("POST", "/v1/pointers/7/commit", b'{"topics":%s}'),
    "lease": ("POST", "/v1/leases/l", b'{"holder":"a","ttl_ms":1000,"note":%s}'),
    "properties": ("PUT", f"{TOPIC}/properties", b'{"ttl":%s}'),
}


def case(endpoint: str, value: str) -> Hostile:
    """Return the request of an endpoint with a value, both by their names."""
    method, path, template = ENDPOINTS[endpoint]

    def body() -> bytes:
        return template.replace(b"%s", VALUES[value](size_at(endpoint)), 1)

    return Hostile(f"{endpoint}: {value}", method, path, body)


def size_at(endpoint: str) -> int:
    """Return the size of a value that the endpoint decodes."""
    return SMALLER.get(endpoint, BODY - MB)


def random_case(source: random.Random) -> Hostile:
    """Return the begin of a random value and the rest of another, at a random endpoint."""
    endpoint, (method, path, template) = source.choice([*ENDPOINTS.items()])
    names = source.sample([*VALUES], 2)

    def body() -> bytes:
        size = size_at(endpoint)
        first, second = (VALUES[name](size) for name in names)
        cut = source.randrange(len(first))
        return template.replace(b"%s", first[:cut] + second[: size - cut], 1)

    return Hostile(f"{endpoint}: {' and '.join(names)}", method, path, body)


def is_too_long(agent: Agent) -> bool:
    """Return whether a turn of the agent's last minute was longer than this machine allows.

    The CPU time of the same work doubles at times beside other work on the machine: only a turn
    that is too long each time it is measured tells of the request.
    """
    turn: float = agent.status()["loop"]["longest_turn_seconds_last_minute"]
    return turn > TURN_SECONDS and turn > _allowed_turn()


def _allowed_turn() -> float:
    """Return the longest turn on this machine, in seconds, by the time of one long decoding."""
    body = repeated(b"[],", BODY, b"[", b"[]]")
    begun = time.process_time()
    _decode(body)
    return TURN_SECONDS * max(1.0, (time.process_time() - begun) / REFERENCE)


def send(agent: Agent, hostile: Hostile) -> Answer:
    headers = {"Content-Type": hostile.media_type, **dict(hostile.headers)}
    if hostile.packed:
        headers["Content-Encoding"] = "gzip"
    return agent.request(hostile.method, hostile.path, hostile.wire() or None, headers)


def _many_unknown() -> bytes:
    name = b'{"' + b"n" * 150_000 + b'":1},'
    return repeated(name, BODY - MB, b'{"messages":[', name[:-1] + b"]}")


# The largest payload whose text is the longest: six bytes for each character.
_NULS = b'"' + b"\\u0000" * MB + b'"'


def _large(name: str, path: str, before: bytes, after: bytes) -> Hostile:
    return Hostile(f"{name}: one large message", "POST", path, lambda: before + _NULS + after)


# Messages of one request, nearly as many as the queue takes.
_MANY = 99_000
# The answer names each message.
MANY_UNDER_POINTER = Hostile(
    "publish under a pointer: empty messages",
    "POST",
    f"{LARGE_TOPIC}/publish",
    lambda: (
        b'{"transactionWritePointer":9,"messages":['
        + b",".join([b'{"payload":""}'] * _MANY)
        + b"]}"
    ),
    answer_bytes=_MANY * len('{"publishTimestamp":1700000000000,"sequenceId":65535},'),
)
ROLLBACK = Hostile(
    "roll back: everything",
    "POST",
    f"{LARGE_TOPIC}/rollback",
    lambda: b'{"transactionWritePointer":9}',
)

LARGE = (
    _large("publish", f"{LARGE_TOPIC}/publish", b'{"messages":[{"payload":', b"}]}"),
    _large(
        "publish under a pointer",
        f"{LARGE_TOPIC}/publish",
        b'{"transactionWritePointer":7,"messages":[{"payload":',
        b"}]}",
    ),
    _large(
        "store",
        f"{LARGE_TOPIC}/store",
        b'{"transactionWritePointer":8,"messages":[{"payload":',
        b"}]}",
    ),
    MANY_UNDER_POINTER,
    MANY_UNDER_POINTER._replace(
        name="publish under a pointer in Avro: empty messages",
        # The pointer, a block of 99,000 messages without bytes, and no further block.
        body=lambda: b"\x00\x0e\xf0\x8a\x0c" + bytes(_MANY) + b"\0",
        media_type="avro/binary",
    ),
)
OTHERS = (
    *LARGE,
    Hostile("unknown names", "POST", f"{TOPIC}/publish", _many_unknown),
    Hostile("lines", "POST", "/ops", lambda: b"0\n" * (7 * MB), "application/x-ndjson"),
    Hostile("one line", "POST", "/ops", lambda: b"a" * (BODY - 1), "application/x-ndjson"),
    Hostile("blank lines", "POST", "/ops", lambda: b"\n" * (BODY - 1), "application/x-ndjson"),
    Hostile("gzip members", "POST", "/ops", lambda: gzip.compress(b"", 9, mtime=0) * 3200,
            packed=False, headers=(("Content-Encoding", "gzip"),)),
    Hostile("a bomb", "POST", "/ops", lambda: b"\0" * (60 * MB)),
    Hostile("Avro: one message", "POST", f"{TOPIC}/publish",
            lambda: b"\x02\x02" + b"\x80\x80\x80\x0e" + bytes(14 * MB) + b"\0", "avro/binary"),
    Hostile("Avro: empty messages", "POST", f"{TOPIC}/publish",
            lambda: b"\x02\x80\x80\x80\x0c" + bytes(12 * MB) + b"\0", "avro/binary"),
    Hostile("a snapshot", "POST", f"{TOPIC}/poll",
            lambda: b'{"transaction":{"readPointer":1,"invalid":[' + b",".join([b'"7"'] * 99_000)
            + b"]}}"),
    Hostile("Accept", "GET", "/ops", lambda: b"", packed=False,
            headers=(("Accept", "a," * 30_000),)),
    Hostile("a long path", "GET", "/" + "a" * 60_000, lambda: b"", packed=False),
    Hostile("a long type", "POST", "/ops", lambda: b"{}", "a" * 60_000, packed=False),
    Hostile("escapes in a cookie", "GET", "/status", lambda: b"", packed=False,
            headers=(("Cookie", 'a="' + "\\1\\2" * 15_000 + '"'),)),
    Hostile("a forwarded chain", "GET", "/live", lambda: b"", packed=False,
            headers=(("X-Forwarded-For", "1.2.3.4," * 7_000),)),
    Hostile("filter values", "GET", "/ops?types=" + ",".join(map(str, range(10_000))), lambda: b"",
            packed=False, headers=(("Accept", "text/event-stream"),)),
)  # fmt: skip
