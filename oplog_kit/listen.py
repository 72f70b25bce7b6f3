"""Addresses to listen on. No I/O."""

import ipaddress
import re

_LISTEN = re.compile(r"(?:\[([^\]]+)\]|([^\s:/@\[\]]*)):([0-9]{1,5})")


def listen_address(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``, where HOST may be empty. Raises ValueError."""
    match = _LISTEN.fullmatch(text)
    if match is None or int(match[3]) > 65535 or (match[1] and not _is_ipv6(match[1])):
        raise ValueError(f"{text!r} is not an address such as :9108, localhost:9108 or [::1]:9108")
    return match[1] or match[2], int(match[3])


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
