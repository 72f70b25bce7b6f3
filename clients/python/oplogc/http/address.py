"""Addresses of agents. No message shows the user, password or query of an address."""

import re
import socket
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx

from oplogc.http.token import TokenSource
from oplogc.wire.shard import shard_query

DEFAULT_PORT = 8042
_CONSUMER_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}", re.ASCII)


SocketAddress = tuple[str, int] | tuple[str, int, int, int]


class Endpoint(NamedTuple):
    """URL of ``/ops`` without user and password, which stand in ``auth``."""

    url: httpx.URL
    auth: httpx.BasicAuth | TokenSource | None


def is_udp(url: str) -> bool:
    """Return whether a producer's URL is for UDP. Raise ValueError for other URLs."""
    scheme = url.partition(":")[0].lower()
    if scheme not in ("udp", "http", "https"):
        raise _no_address(url, "a producer: udp://HOST:PORT, http://HOST:PORT or https://HOST")
    return scheme == "udp"


def resolve(url: str) -> tuple[socket.AddressFamily, SocketAddress]:
    """Look up a host, IPv4 if possible. Raises ValueError, and OSError for an unknown host."""
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
    except (ValueError, OverflowError):  # an empty label, or one too long
        raise ValueError(f"{host!r} is no name of a host") from None
    # UDP reports nothing if the agent listens on the other of two families: prefer IPv4.
    family, _, _, _, address = next(
        (entry for entry in found if entry[0] == socket.AF_INET), found[0]
    )
    return family, address  # type: ignore[return-value]  # of these two families only


def agent_urls(url: str | Sequence[str]) -> tuple[str, ...]:
    """Return the addresses of one or several agents. Raise ValueError if there is none."""
    urls = (url,) if isinstance(url, str) else tuple(url)
    if not urls:
        raise ValueError("url: give the address of an agent, or a list of them")
    return urls


def base_endpoint(url: str, password: str | None, token: TokenSource | None = None) -> Endpoint:
    """Return an agent's base address, without ``/ops`` at its end. Raise ValueError.

    ``password`` takes precedence over a password in ``url``. ``token``: instead of a password.
    """
    try:
        parts = urlsplit(url)
        has_port = parts.port != 0  # reading it raises ValueError for one beyond 65535
        base = httpx.URL(url)
        base.host.encode("idna")  # the look-up does the same: no label may be empty or too long
    except (ValueError, httpx.InvalidURL):
        raise _no_address(url, "an agent, such as http://localhost:8042") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not has_port:
        raise _no_address(url, "an agent, such as http://localhost:8042")
    path = base.path.rstrip("/").removesuffix("/ops")
    password = password or base.password
    auth: httpx.BasicAuth | TokenSource | None = token
    if password or base.username:  # any user name will do
        if token is not None:
            raise ValueError("token and the password of the address exclude each other")
        auth = httpx.BasicAuth(base.username, password)
    return Endpoint(base.copy_with(userinfo=b"", path=path or "/", fragment=None), auth)


def below(base: Endpoint, path: str) -> Endpoint:
    """Return the address of a path, which begins with a slash, below a base address."""
    return base._replace(url=base.url.copy_with(path=base.url.path.rstrip("/") + path))


def ops_endpoint(url: str, password: str | None, token: TokenSource | None = None) -> Endpoint:
    """Return ``/ops`` below an agent's base address, see ``base_endpoint``. Raise ValueError."""
    return below(base_endpoint(url, password, token), "/ops")


def check_consumer_name(name: str) -> str:
    """Return the name of a consumer. Raise ValueError."""
    if not isinstance(name, str) or not _CONSUMER_NAME.fullmatch(name):
        raise ValueError("name: give 1 to 100 ASCII letters, digits, '.', '_' or '-'")
    return name


def stream_query(name: str | None, shard: str | None = None) -> dict[str, str]:
    """Return the parameters of every stream. ``name``: of the consumer. Raises ValueError."""
    named = {} if name is None else {"name": check_consumer_name(name)}
    return {"checkpoint": "1", **named, **shard_query(shard)}


def stream_endpoint(
    url: str,
    password: str | None,
    types: Sequence[str],
    parents: Sequence[str],
    name: str | None = None,
    token: TokenSource | None = None,
    *,
    ids: Sequence[str] = (),
    events: Sequence[str] = (),
    shard: str | None = None,
) -> Endpoint:
    """Return a stream with its filters. ``name``: of the consumer. Raises ValueError."""
    query: dict[str, str | list[str]] = {**stream_query(name, shard)}
    lower = [type_.lower() for type_ in types]
    filters = {"types": lower, "parents": parents, "ids": ids, "events": events}
    for filter_, values in filters.items():
        if any("," in value for value in values):
            # The agent splits a single value at its commas. Of several values each is one name.
            query[filter_] = [*values, values[0]]
        elif values:
            query[filter_] = ",".join(values)
    ops, auth = ops_endpoint(url, password, token)
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
    """Return the address without query, fragment and credentials."""
    return str(url.copy_with(query=None, fragment=None, userinfo=b""))


def shown_text(url: str) -> str:
    """Return the same for text, which may be no URL."""
    if "@" in url:  # any part of it may be a password
        return "(an address with a password)"
    return url.partition("?")[0].partition("#")[0]


def _quoted(url: str) -> str:
    return shown_text(url) if "@" in url else repr(shown_text(url))


def _no_address(url: str, wanted: str) -> ValueError:
    return ValueError(f"{_quoted(url)} is no address of {wanted}")
