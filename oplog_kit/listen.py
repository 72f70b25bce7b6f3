"""Addresses to listen on. No I/O."""

import ipaddress
import re
from typing import NamedTuple

_LISTEN = re.compile(r"(?:\[([^\]]+)\]|([^\s:/@\[\]]*)):([0-9]{1,5})")


class Address(NamedTuple):
    """An address to listen on. An empty host means all interfaces, port 0 means any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"

    def loopback(self) -> "Address":
        """Return the same port on the loopback interface of the same address family."""
        if self.is_loopback:
            return self
        return Address("::1" if ":" in self.host else "127.0.0.1", self.port)


def listen_address(text: str, port: int = 9108) -> Address:
    """Return the address of ``HOST:PORT``, where HOST may be empty.

    ``port``: of the examples in the message. Raises ValueError.
    """
    match = _LISTEN.fullmatch(text.strip())
    if match is None or int(match[3]) > 65535 or (match[1] and not _is_ipv6(match[1])):
        examples = f":{port}, localhost:{port} or [::1]:{port}"
        raise ValueError(f"{text!r} is not an address such as {examples}")
    return Address(match[1] or match[2], int(match[3]))


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
