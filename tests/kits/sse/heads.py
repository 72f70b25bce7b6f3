"""Heads of HTTP/1.1 messages, as they are sent."""

from collections.abc import Mapping, Sequence
from typing import BinaryIO

Headers = Mapping[str, str] | Sequence[tuple[str, str]]
Pairs = list[tuple[str, str]]


def pairs_of(headers: Headers) -> Pairs:
    return list(headers.items()) if isinstance(headers, Mapping) else list(headers)


def request_head(method: str, path: str, host: str, headers: Headers = ()) -> bytes:
    name = f"[{host}]" if ":" in host else host
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {name}",
        *(f"{name}: {value}" for name, value in pairs_of(headers)),
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def read_head(file: BinaryIO) -> tuple[int, Pairs]:
    """Return status and headers of an answer."""
    first = file.readline()
    assert first.startswith(b"HTTP/1.1 "), first
    headers = []
    while (line := file.readline()) != b"\r\n":
        assert line.endswith(b"\r\n"), line
        name, _, value = line.decode("latin-1").partition(":")
        headers.append((name, value.strip()))
    return int(first.split()[1]), headers


def one(headers: Pairs, name: str) -> str | None:
    """Return the value of a header, None without it. Fail if it was sent twice."""
    values = [value for key, value in headers if key.lower() == name.lower()]
    assert len(values) <= 1, f"{name} was sent {len(values)} times"
    return values[0] if values else None
