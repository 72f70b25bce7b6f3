"""The networks that IP addresses belong to. No I/O."""

import ipaddress

_UNKNOWN = "unknown"


def units_of(address: str) -> tuple[str, str]:
    """Return the units that an address counts for: the address (IPv6: its /64), and its network.

    All texts that are no IP address are one unit: a proxy may claim any name, and a new name must
    not bring a new sender.
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return _UNKNOWN, _UNKNOWN
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is None:
            return _network(ip, 64), _network(ip, 48)
        ip = ip.ipv4_mapped
    return str(ip), _network(ip, 24)


def _network(ip: ipaddress.IPv4Address | ipaddress.IPv6Address, bits: int) -> str:
    return str(ipaddress.ip_network((ip, bits), strict=False))
