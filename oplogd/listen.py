"""The listening sockets of HTTP and UDP."""

import contextlib
import errno
import socket
from collections.abc import Sequence
from typing import NamedTuple

from oplogd.config.settings import Settings
from oplogd.errors import StartupError
from oplogd.host.sockets import bind, share_port
from oplogd.ingest.udp import open_sockets

_ATTEMPTS = 20
# Connections that may wait at a socket while its worker starts.
_BACKLOG = 4096
_Endpoint = tuple[socket.AddressFamily, str, int]


class Listeners(NamedTuple):
    """The bound sockets of a process, for HTTP and for UDP."""

    http: list[socket.socket]
    udp: list[socket.socket]

    def close(self) -> None:
        for sock in (*self.http, *self.udp):
            sock.close()


def open_listeners(settings: Settings) -> list[Listeners]:
    """Return the sockets of each worker. Raises StartupError.

    With port 0 all get the same free port.
    """
    first = _open_first(settings)
    found = [first]
    try:
        for _ in range(1, settings.workers):
            found.append(_open_another(first))
    except OSError as error:
        for each in found:
            each.close()
        raise StartupError(
            f"the workers cannot share their port: {error.strerror or error} (--workers)"
        ) from None
    return found


def _open_first(settings: Settings) -> Listeners:
    """Bind alone: so a port in use is found, whoever uses it, and however it may be shared."""
    backlog = _BACKLOG if settings.workers > 1 else 1
    for attempt in range(_ATTEMPTS):
        http: list[socket.socket] = []
        try:
            http = _listen(_endpoints(*settings.http_address, socket.SOCK_STREAM), backlog)
            return Listeners(http, _open_udp(settings, http[0].getsockname()[1]))
        except OSError as error:
            for sock in http:
                sock.close()
            takes_any = settings.http_address.port == 0 and not (http and settings.udp_listen)
            is_taken = error.errno == errno.EADDRINUSE
            if takes_any and is_taken and attempt < _ATTEMPTS - 1:
                continue  # this port is free for one address or for TCP, but not for all
            address, flags = str(settings.http_address), "--listen"
            if http:
                address = f"UDP {settings.udp_address}"
                flags = "--udp-listen, or --udp-listen off"
            raise StartupError(
                f"cannot listen on {address}: {error.strerror or error};"
                f" give another address with {flags}"
            ) from None
    raise AssertionError("not reached")


def _open_another(first: Listeners) -> Listeners:
    """Return sockets at the same addresses. The kernel gives each of them its share.

    The first ones are shared from now on. Other programs still cannot bind them, except those of
    the same user that ask to share them. Raises OSError.
    """
    for sock in (*first.http, *first.udp):
        share_port(sock)
    http = _listen([_endpoint(sock) for sock in first.http], _BACKLOG, is_shared=True)
    try:
        return Listeners(
            http, open_sockets([_endpoint(sock) for sock in first.udp], is_shared=True)
        )
    except OSError:
        for sock in http:
            sock.close()
        raise


def _listen(
    endpoints: Sequence[_Endpoint], backlog: int, *, is_shared: bool = False
) -> list[socket.socket]:
    """Listen now, which refuses a second agent; uvicorn would do so later. Raises OSError."""
    sockets: list[socket.socket] = []
    try:
        port = 0
        for family, host, given in endpoints:
            sock = socket.socket(family, socket.SOCK_STREAM)
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if is_shared:
                share_port(sock)
            bind(sock, host, given or port)
            sock.listen(backlog)
            port = sock.getsockname()[1]
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def _endpoint(sock: socket.socket) -> _Endpoint:
    host, port, *_ = sock.getsockname()
    return sock.family, host, port


def _open_udp(settings: Settings, http_port: int) -> list[socket.socket]:
    address = settings.udp_address
    if address is None:
        return []
    port = http_port if settings.udp_listen is None else address.port
    return open_sockets(_endpoints(address.host, port, socket.SOCK_DGRAM))


def _endpoints(host: str, port: int, kind: socket.SocketKind) -> list[_Endpoint]:
    if not host:
        if _has_ipv6("::"):
            return [(socket.AF_INET6, "::", port)]
        return [(socket.AF_INET, "0.0.0.0", port)]
    if host.lower() == "localhost":
        # Both, whatever the system's table of hosts says: each client takes the one that it finds.
        six = [(socket.AF_INET6, "::1", port)] if _has_ipv6("::1") else []
        return [(socket.AF_INET, "127.0.0.1", port), *six]
    found = socket.getaddrinfo(host, port, type=kind, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, str(where[0]), port) for family, _, _, _, where in found))


def _has_ipv6(host: str) -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as sock:
        sock.bind((host, 0))
        return True
    return False
