"""URLs without their secrets. No I/O."""

import re
from urllib.parse import parse_qsl, urlencode

import httpx

# Greedy up to the last at sign: a password may hold one that is not percent-encoded.
_CREDENTIALS = re.compile(r"(?P<driver>[\w+]+://)(?P<user>[^:@]*)(?P<password>:.*)?@", re.DOTALL)

# sslpassword, tlsCertificateKeyFilePassword, authMechanismProperties with a session token.
_SECRET = re.compile(r"pass|secret|token|mechanismprop", re.IGNORECASE)


def hide_password(url: str, hidden: str) -> str:
    """Return the URL with ``hidden`` for the password, also for one among its parameters."""

    def without(match: "re.Match[str]") -> str:
        return f"{match['driver']}{match['user']}{f':{hidden}' if match['password'] else ''}@"

    address, mark, query = _CREDENTIALS.sub(without, url, count=1).partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    shown = [(name, hidden if _SECRET.search(name) else value) for name, value in pairs]
    return f"{address}{mark}{urlencode(shown, safe='/:*,')}"


def origin(url: str, hidden: str = "***") -> str:
    """Return scheme, host and port of a URL. Path and query of a webhook may be its secret."""
    parsed = httpx.URL(url)
    found = str(parsed.copy_with(raw_path=b"/", fragment=None, userinfo=b""))
    return found if parsed.raw_path in (b"", b"/") else f"{found}{hidden}"
