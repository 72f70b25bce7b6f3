"""Bytes that are not HTTP or could be read in two ways."""

import pytest

from tests.kits.agents.agent import Agent
from tests.kits.web.connection import H2C, NDJSON, Growth, RawConnection, chunked, length, lines

CHUNKS = chunked([lines(1)])
REFUSED = {
    "no HTTP": b"hello\r\n\r\n",
    "a TLS greeting": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "two lengths": NDJSON + b"Content-Length: 5\r\n" + length(lines(1)) + lines(1),
    "the same length twice": NDJSON
    + (b"Content-Length: %d\r\n" % len(lines(1)))
    + length(lines(1))
    + lines(1),
    "a list of lengths": NDJSON + b"Content-Length: 5, 5\r\n\r\nhello",
    "a signed length": NDJSON + b"Content-Length: +5\r\n\r\nhello",
    "a length and chunks": NDJSON + b"Content-Length: 4\r\n" + CHUNKS,
    "chunks and a length": NDJSON + b"Transfer-Encoding: chunked\r\n" + length(lines(1)) + lines(1),
    "a space before the colon": NDJSON + CHUNKS.replace(b"Encoding:", b"Encoding :"),
    "another coding": NDJSON + CHUNKS.replace(b": chunked", b": gzip, chunked"),
    "identity": NDJSON + CHUNKS.replace(b": chunked", b": identity"),
    "chunks in HTTP/1.0": NDJSON.replace(b"/1.1", b"/1.0") + CHUNKS,
    "bare line feeds": (NDJSON + length(lines(1))).replace(b"\r", b"") + lines(1),
    "bare line feeds between chunks": NDJSON + CHUNKS.replace(b"\r\n{", b"\n{"),
    "a folded header": NDJSON + b"X: a\r\n b\r\n" + length(lines(1)) + lines(1),
    "HTTP/2.0": NDJSON.replace(b"/1.1", b"/2.0") + length(lines(1)) + lines(1),
}


@pytest.mark.parametrize("offer", [b"", H2C], ids=["no offer", "offer"])
@pytest.mark.parametrize("name", REFUSED)
def test_ambiguous_framing_is_refused(
    agent: Agent, stored: Growth, name: str, offer: bytes
) -> None:
    raw = REFUSED[name]
    if raw.startswith(b"POST"):
        first, _, rest = raw.partition(b"\n")
        raw = first + b"\n" + offer + rest
    with RawConnection(agent) as connection:
        reply = connection.send(raw).reply()
        assert reply.status == 400
        assert reply.problem()
        assert reply.headers["server"].startswith("oplog/")
        assert connection.rest() == b""
    assert stored() == 0


def test_http_2_without_negotiation_is_refused_with_a_sentence(agent: Agent) -> None:
    with RawConnection(agent) as connection:
        reply = connection.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0").reply()
    assert reply.status == 400
    assert "use HTTP/1.1" in reply.problem()


def test_a_tunnel_is_refused(agent: Agent) -> None:
    with RawConnection(agent) as connection:
        reply = connection.send(
            b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n"
        ).reply()
    assert reply.status == 405
    assert reply.problem()
