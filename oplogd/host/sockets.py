"""Addresses and options of TCP and UDP sockets."""

import socket
from collections.abc import Sequence

from oplog_kit.listen import Address

ANY_IPV4 = "0.0.0.0"
ANY_IPV6 = "::"


def bind(sock: socket.socket, host: str, port: int) -> None:
    """Bind a socket. ``::`` takes IPv4 too. Other IPv6 addresses do not. Raises OSError."""
    if sock.family == socket.AF_INET6:
        only_ipv6 = host != ANY_IPV6
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(only_ipv6))
    sock.bind((host, port))


def share_port(sock: socket.socket) -> None:
    """Let other sockets have the address of this one, bound or not. Raises OSError."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)


def address_of(sock: socket.socket) -> Address:
    return Address(*sock.getsockname()[:2])


def is_on_all_interfaces(sock: socket.socket) -> bool:
    return address_of(sock).host in (ANY_IPV4, ANY_IPV6)


def base_url(sockets: Sequence[socket.socket], *, tls: bool) -> str:
    """Return the URL under which this machine reaches the first socket."""
    address = address_of(sockets[0])
    if is_on_all_interfaces(sockets[0]) or _is_localhost(sockets):
        address = Address("localhost", address.port)
    return f"{'https' if tls else 'http'}://{address}"


def interfaces(sockets: Sequence[socket.socket]) -> str:
    """Describe the addresses without a name in ``base_url``. The text may be empty."""
    first, *others = sockets
    if is_on_all_interfaces(first):
        return "all interfaces" if first.family == socket.AF_INET6 else "all IPv4 interfaces"
    if _is_localhost(sockets):
        return ""
    return "also " + ", ".join(str(address_of(sock)) for sock in others) if others else ""


def _is_localhost(sockets: Sequence[socket.socket]) -> bool:
    """Return whether the sockets serve IPv4 and IPv6 of the loopback interface on one port."""
    found = {address_of(sock) for sock in sockets}
    return found == {Address(host, address_of(sockets[0]).port) for host in ("127.0.0.1", "::1")}
