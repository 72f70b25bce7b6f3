"""The listening sockets of HTTP and UDP."""

import contextlib
import errno
import socket

from oplog_kit.listen import Address
from oplogd.config.settings import Settings
from oplogd.errors import StartupError
from oplogd.host.sockets import bind
from oplogd.ingest.udp import open_sockets

_ATTEMPTS = 20
_Endpoint = tuple[socket.AddressFamily, str, int]


def open_listeners(settings: Settings) -> tuple[list[socket.socket], list[socket.socket]]:
    """Return the bound sockets of HTTP and of UDP. Raises StartupError.

    With port 0 both get the same free port.
    """
    for attempt in range(_ATTEMPTS):
        try:
            http = _open_http(settings.http_address)
        except OSError as error:
            if settings.http_address.port == 0 and _is_taken(error, attempt):
                continue  # this port is free for one address of the name but not for another
            raise StartupError(
                f"cannot listen on {settings.http_address}: {error.strerror or error};"
                " give another address with --listen"
            ) from None
        port = http[0].getsockname()[1]
        try:
            return http, _open_udp(settings, port)
        except OSError as error:
            for sock in http:
                sock.close()
            shared_port = settings.http_address.port == 0 and settings.udp_listen is None
            if shared_port and _is_taken(error, attempt):
                continue  # this port is free for TCP but not for UDP
            address = settings.udp_address
            raise StartupError(
                f"cannot listen on UDP {address}: {error.strerror or error}; "
                "give another address with --udp-listen, or --udp-listen off"
            ) from None
    raise AssertionError("not reached")


def _is_taken(error: OSError, attempt: int) -> bool:
    """Return whether another attempt may find a port that is free."""
    return error.errno == errno.EADDRINUSE and attempt < _ATTEMPTS - 1


def _open_http(address: Address) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    try:
        port = address.port
        for family, host, _ in _endpoints(address.host, port, socket.SOCK_STREAM):
            sock = socket.socket(family, socket.SOCK_STREAM)
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bind(sock, host, port)
            sock.listen(1)  # refuses a second agent now; uvicorn would do so later
            port = sock.getsockname()[1]
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets


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
