"""Unread bytes of a connection, from the Linux kernel by sock_diag(7)."""

import socket
import struct

_SOCK_DIAG = 4
_BY_FAMILY = 20
_REQUEST = 1
_SOCKET_ID_BYTES = 48


def all_read(here: tuple[str, int], there: tuple[str, int]) -> bool:
    """Return whether the process at ``there`` has read all bytes that ``here`` sent. IPv4 only."""
    _, to_send = _queues(here, there)
    to_read, _ = _queues(there, here)
    return to_send == to_read == 0


def _queues(local: tuple[str, int], remote: tuple[str, int]) -> tuple[int, int]:
    """Return the bytes in the receive queue and in the send queue. A closed socket has none."""
    ports = struct.pack("!HH", local[1], remote[1])
    addresses = b"".join(socket.inet_aton(host) + bytes(12) for host in (local[0], remote[0]))
    any_state, any_cookie = 0xFFFFFFFF, b"\xff" * 8
    question = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, any_state)
    question += ports + addresses + bytes(4) + any_cookie
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as netlink:
        netlink.send(
            struct.pack("=IHHII", 16 + len(question), _BY_FAMILY, _REQUEST, 0, 0) + question
        )
        reply = netlink.recv(65536)
    (kind,) = struct.unpack_from("=H", reply, 4)
    if kind != _BY_FAMILY:
        return 0, 0
    to_read, to_send = struct.unpack_from("=II", reply, 16 + 4 + _SOCKET_ID_BYTES + 4)
    return to_read, to_send
