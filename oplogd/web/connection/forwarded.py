"""The client of a request: the peer's address, or the address that a trusted proxy reports in
X-Forwarded-For.
"""

import ipaddress
import logging
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from starlette.types import Scope

VARIABLE = "FORWARDED_ALLOW_IPS"

# Trusted proxies if the variable is not set.
LOOPBACK = "127.0.0.1,::1"

_MAX_ADDRESS_LENGTH = 64
_ZONE = re.compile(r"[\w.-]{1,15}", re.ASCII)
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_WITH_PORT = re.compile(r"\[([^\[\]]*)\](?::([0-9]{1,5}))?|([^:]*):([0-9]{1,5})", re.ASCII)

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
logger = logging.getLogger("oplogd.proxy")


def plain_address(text: str) -> str | None:
    """Return an IP address in its canonical form, None if ``text`` is not an IP address.

    A socket for IPv4 and IPv6 shows an IPv4 peer as ``::ffff:192.0.2.1``. The result is
    ``192.0.2.1``.
    """
    # The length is checked before the cache, which would keep a long text.
    return _short_address(text) if len(text) <= _MAX_ADDRESS_LENGTH else None


@lru_cache(maxsize=4096)
def _short_address(text: str) -> str | None:
    try:
        ip = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return str(ip.ipv4_mapped)
        if ip.scope_id is not None and not _ZONE.fullmatch(ip.scope_id):
            return None
    return str(ip)


class TrustedProxies:
    """Addresses and networks whose X-Forwarded-For and X-Forwarded-Proto are believed.

    Commas separate them in ``text``. ``*`` alone trusts every address. Any other text that is
    not an address is logged as a warning and trusts none.
    """

    def __init__(self, text: str) -> None:
        self._trusts_everybody = text.strip() == "*"
        self._addresses: set[str] = set()
        self._networks: list[_Network] = []
        for item in filter(None, map(str.strip, text.split(","))):
            if not self._trusts_everybody and not self._add(item):
                logger.warning("%s: ignoring %r, not an IP address or network", VARIABLE, item)

    def trust(self, address: str | None) -> bool:
        """Return whether an address in its canonical form belongs to a trusted proxy."""
        if self._trusts_everybody:
            return True
        if address is None:
            return False
        return address in self._addresses or (
            bool(self._networks)
            and any(ipaddress.ip_address(address) in network for network in self._networks)
        )

    def client(self, forwarded_for: Sequence[str]) -> tuple[str, int] | None:
        """Return the client that the values of X-Forwarded-For report, None without one.

        The port is 0 if they do not report it. Every proxy appends the address of its peer. So the
        client is the last address not of a trusted proxy. The addresses before it are unproven
        claims of the client.
        """
        entries = [entry for value in forwarded_for for entry in value.split(",")]
        if self._trusts_everybody:
            del entries[1:]
        client = None
        for entry in reversed(entries):  # the claims of the client are not parsed
            client = _split(entry.strip())
            if client is None or not self.trust(client[0]):
                break
        return client

    def _add(self, item: str) -> bool:
        if "/" not in item:
            address = plain_address(item)
            if address is not None:
                self._addresses.add(address)
            return address is not None
        try:
            network = ipaddress.ip_network(item)
        except ValueError:
            return False
        if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(_MAPPED):
            network = ipaddress.IPv4Network(
                (network.network_address.packed[12:], network.prefixlen - 96)
            )
        self._networks.append(network)
        return True


def set_client(scope: Scope, proxies: TrustedProxies) -> None:
    """Set the client and the scheme of a request. The client is None if it is unknown."""
    host, port = scope.get("client") or ("", 0)
    address = plain_address(host)
    scope["client"] = (address, port) if address is not None else None
    if not proxies.trust(address):
        return
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    forwarded_for: list[str] = []
    for name, value in headers:
        if name == b"x-forwarded-for":
            forwarded_for.append(value.decode("latin-1"))
        elif name == b"x-forwarded-proto" and value.strip() in (b"http", b"https"):
            scope["scheme"] = value.strip().decode()
    if any(value.strip() for value in forwarded_for):
        scope["client"] = proxies.client(forwarded_for)


def _split(entry: str) -> tuple[str, int] | None:
    """Split ``192.0.2.1``, ``192.0.2.1:80``, ``2001:db8::1`` or ``[2001:db8::1]:80``.

    Return None for anything else.
    """
    host, port = entry, "0"
    if parts := _WITH_PORT.fullmatch(entry):
        host, port = parts[1] or parts[3], parts[2] or parts[4] or "0"
    address = plain_address(host or "")
    return (address, int(port)) if address is not None else None
