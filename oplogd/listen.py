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
        http: list[socket.socket] = []
        try:
            http = _open_http(settings.http_address)
            return http, _open_udp(settings, http[0].getsockname()[1])
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
