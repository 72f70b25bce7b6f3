"""Which web pages may send operations. No I/O.

A page whose name an attacker points at the agent after it was loaded (DNS rebinding) is of the agent's own origin to the
browser, so neither CORS nor a preflight holds it back. Only the name gives it away: it is the attacker's. An attacker cannot
point ``localhost`` or an IP address elsewhere, so pages under these are the agent's own.
"""

import ipaddress
import re
from collections.abc import Collection, Mapping, Sequence

from oplogd.values import host_name

_HOST = re.compile(r"(?:\[([^\[\]]*)\]|([^\[\]:]*))(?::[0-9]{0,5})?")
_FROM_BROWSERS = ("origin", "sec-fetch-site")
"""One of these comes with every write of a page. Servers and command-line clients send neither."""


def is_from_page(headers: Mapping[str, str]) -> bool:
    """Whether a page in a browser sent this request, be it of another origin or of the agent's own."""
    return any(name in headers for name in _FROM_BROWSERS)


def is_own_host(hosts: Sequence[str], allowed: Collection[str]) -> bool:
    """Whether the values of ``Host`` are names that only the agent can have: ``localhost``, IP addresses, or ``allowed``.

    ``allowed`` holds names as ``host_name`` returns them. There must be a value, and every one must be such a name.
    """
    return bool(hosts) and all(_is_own(host, allowed) for host in hosts)


def _is_own(host: str, allowed: Collection[str]) -> bool:
    parts = _HOST.fullmatch(host)
    if parts is None:
        return False
    if parts[1] is not None:
        return _is_ip(parts[1], 6)
    name = host_name(parts[2])
    return name is not None and (
        name in allowed or name == "localhost" or name.endswith(".localhost") or _is_ip(name, 4)
    )


def _is_ip(text: str, version: int) -> bool:
    try:
        return ipaddress.ip_address(text).version == version
    except ValueError:
        return False
