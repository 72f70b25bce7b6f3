"""Where a producer sends to: the scheme of its URL says how."""

import socket
from typing import NamedTuple
from urllib.parse import urlsplit

DEFAULT_PORT = 8042


class UdpAddress(NamedTuple):
    family: socket.AddressFamily
    address: tuple[str, int] | tuple[str, int, int, int]


def is_udp(url: str) -> bool:
    """Whether a producer's URL asks for UDP. Raises ValueError for one that asks for neither UDP nor HTTP."""
    scheme = urlsplit(url).scheme
    if scheme not in ("udp", "http", "https"):
        raise ValueError(f"{url!r} is no address for a producer: udp://HOST:PORT, http://HOST:PORT or https://HOST")
    return scheme == "udp"


def resolve(url: str) -> UdpAddress:
    """The host's address, looked up once: IPv4 if it has one. Raises ValueError, and OSError for an unknown host."""
    try:
        where = urlsplit(url)
        host, port = where.hostname, where.port or DEFAULT_PORT
    except ValueError as error:
        raise ValueError(f"{url!r} is no address for a producer: {error}") from None
    if not host:
        raise ValueError(f"{url!r} names no host")
    found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    # Nothing tells a sender that it talks to the wrong one of two families.
    family, _, _, _, address = next((entry for entry in found if entry[0] == socket.AF_INET), found[0])
    return UdpAddress(family, address)  # type: ignore[arg-type]  # of these two families only
