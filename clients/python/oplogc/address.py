"""Addresses of agents. A message never shows user, password or query of one."""

import socket
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx

DEFAULT_PORT = 8042


class UdpAddress(NamedTuple):
    family: socket.AddressFamily
    address: tuple[str, int] | tuple[str, int, int, int]


class Endpoint(NamedTuple):
    """``/ops`` of an agent, without user and password, and these as Basic auth."""

    url: httpx.URL
    auth: httpx.BasicAuth | None


def is_udp(url: str) -> bool:
    """Whether a producer's URL asks for UDP. Raises ValueError for one that asks for neither UDP nor HTTP."""
    scheme = url.partition(":")[0].lower()
    if scheme not in ("udp", "http", "https"):
        raise _no_address(url, "a producer: udp://HOST:PORT, http://HOST:PORT or https://HOST")
    return scheme == "udp"


def resolve(url: str) -> UdpAddress:
    """The host's address, looked up once: IPv4 if it has one. Raises ValueError, and OSError for an unknown host."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or DEFAULT_PORT
    except ValueError:
        raise _no_address(url, "a producer, such as udp://localhost:8042") from None
    if not host:
        raise ValueError(f"{_quoted(url)} names no host: give one, as in udp://localhost:8042")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except socket.gaierror as error:
        raise socket.gaierror(
            error.errno, f"the host {host!r} is not known: {error.strerror}"
        ) from None
    except (ValueError, OverflowError):  # a label that is empty or too long
        raise ValueError(f"{host!r} is no name of a host") from None
    # Nothing tells a sender that it talks to the wrong one of two families.
    family, _, _, _, address = next(
        (entry for entry in found if entry[0] == socket.AF_INET), found[0]
    )
    return UdpAddress(family, address)  # type: ignore[arg-type]  # of these two families only


def ops_endpoint(url: str, password: str | None) -> Endpoint:
    """``/ops`` below an agent's base address. ``password`` comes before the one in ``url``. Raises ValueError."""
    try:
        parts = urlsplit(url)
        has_port = parts.port != 0  # reading it raises ValueError for one beyond 65535
        base = httpx.URL(url)
        base.host.encode("idna")  # as the look-up will: no label may be empty or too long
    except (ValueError, httpx.InvalidURL):
        raise _no_address(url, "an agent, such as http://localhost:8042") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not has_port:
        raise _no_address(url, "an agent, such as http://localhost:8042")
    path = base.path.rstrip("/")
    ops = base.copy_with(
        userinfo=b"", path=path if path.endswith("/ops") else f"{path}/ops", fragment=None
    )
    password = password or base.password
    # Any user name will do.
    return Endpoint(
        ops, httpx.BasicAuth(base.username, password) if password or base.username else None
    )


def stream_endpoint(
    url: str, password: str | None, types: Sequence[str], parents: Sequence[str]
) -> Endpoint:
    """The stream's address with its filters. Raises ValueError."""
    query = {"checkpoint": ["1"]}
    for name, values in (("types", [type_.lower() for type_ in types]), ("parents", parents)):
        if any("," in value for value in values):
            # One value is split at its commas, of several each stands for itself.
            query[name] = [*values, values[0]]
        elif values:
            query[name] = [",".join(values)]
    ops, auth = ops_endpoint(url, password)
    return Endpoint(ops.copy_merge_params(httpx.QueryParams(query)), auth)


def check_proxy(proxy: str | None) -> None:
    """Raise ValueError unless ``proxy`` is None or the URL of a proxy."""
    if proxy is None:
        return
    try:
        httpx.Proxy(proxy)
    except (ValueError, httpx.InvalidURL):
        raise _no_address(proxy, "a proxy, such as http://proxy:3128") from None


def shown(url: httpx.URL) -> str:
    """The address without its query and its credentials."""
    return str(url.copy_with(query=None, fragment=None, userinfo=b""))


def shown_text(url: str) -> str:
    """The same for text that may be no URL at all."""
    if "@" in url:  # nobody knows which part of it is a password
        return "(an address with a password)"
    return url.partition("?")[0].partition("#")[0]


def _quoted(url: str) -> str:
    return shown_text(url) if "@" in url else repr(shown_text(url))


def _no_address(url: str, wanted: str) -> ValueError:
    return ValueError(f"{_quoted(url)} is no address of {wanted}")
