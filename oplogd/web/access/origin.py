"""Decides which web pages may send operations. No I/O.

With DNS rebinding an attacker loads a page and then points its host name at the agent. To the
browser the page then has the agent's own origin, so neither CORS nor a preflight stops it. Only the
host name, which is the attacker's, shows it. An attacker cannot redirect ``localhost`` or an IP
address, so pages under these belong to the agent.
"""

import ipaddress
import re
from collections.abc import Collection, Mapping, Sequence

from oplogd.config.values import host_name

_HOST = re.compile(r"(?:\[([^\[\]]*)\]|([^\[\]:]*))(?::[0-9]{0,5})?")

# A browser adds one of these to every write of a page. Servers and command-line clients send
# neither.
_FROM_BROWSERS = ("origin", "sec-fetch-site")


def is_from_page(headers: Mapping[str, str]) -> bool:
    """Return whether a page in a browser sent this request, of any origin."""
    return any(name in headers for name in _FROM_BROWSERS)


def is_from_elsewhere(headers: Mapping[str, str]) -> bool:
    """Return whether a page of another origin sent this GET, as far as its browser tells.

    A browser sends ``Origin`` with a GET of such pages only, ``Sec-Fetch-Site`` with any.
    """
    return "origin" in headers or headers.get("sec-fetch-site") in ("cross-site", "same-site")


def is_own_host(hosts: Sequence[str], allowed: Collection[str]) -> bool:
    """Return whether all values of ``Host`` belong to the agent: ``localhost``, IP addresses,
    ``allowed``.

    ``allowed`` holds names as ``host_name`` returns them. Without any value the answer is False.
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
