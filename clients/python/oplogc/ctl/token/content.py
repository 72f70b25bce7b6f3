"""The content of tokens, read without a check of their signatures. No I/O."""

import json
import re
from base64 import urlsafe_b64decode
from datetime import UTC, datetime
from typing import Any, NamedTuple

from oplogc.ctl.token.rights import Right, RightError, right_of

# The claim with the right.
CLAIM = "oplog"
MAX_TOKEN_BYTES = 8 * 1024
MAX_SUBJECT = 250
# The end of the year 9999, in seconds since 1970: agents refuse a later exp.
_MAX_TIME = 253_402_300_799
ALGORITHMS = ("HS256", "RS256", "ES256", "EdDSA")

_OWN = re.compile(r"([0-9]{1,12})(?:\.([A-Za-z0-9._@-]{0,100})(?:~([\w-]+))?)?\.[\w-]{43}", re.A)
_BASE64 = re.compile(r"[\w-]*", re.ASCII)


class Content(NamedTuple):
    """The content of a token.

    ``algorithm``: None for a token of ``POST /token`` that an agent signed with a password.
    ``right``: None if the token does not tell, or tells it wrong. ``fault``: a sentence on the
    reason for which every agent refuses the token, empty if there is none.
    """

    algorithm: str | None
    kid: str | None
    right: Right | None
    expires: float | None
    issued: float | None
    begins: float | None
    subject: str | None
    audience: tuple[str, ...]
    fault: str


def content_of(token: str, now: float) -> Content:
    """Return the content of a token. ``now``: seconds since 1970.

    Raise ValueError for a text that is no token. The message repeats nothing of it.
    """
    found = _own(token, now) if token[:1].isdecimal() else _jwt(token, now)
    if len(token) > MAX_TOKEN_BYTES:
        return found._replace(fault=f"it has more than {MAX_TOKEN_BYTES:,} bytes")
    return found


def _own(token: str, now: float) -> Content:
    """Return the content of EXPIRES[.NAME][~CLAIMS].MAC."""
    match = _OWN.fullmatch(token)
    if match is None:
        raise _no_token()
    expires, name, claims = match.groups()
    given = _json(claims) if claims else {}
    if not isinstance(given, dict):
        raise _no_token()
    right, fault = _right(given) if claims else (None, "")
    ends = int(expires)
    fault = fault or ("" if now < ends else "it has expired")
    return Content(None, None, right, ends, _time(given, "iat"), None, name or None, (), fault)


def _jwt(token: str, now: float) -> Content:
    parts = token.split(".")
    if len(parts) != 3 or not _BASE64.fullmatch(parts[2]):
        raise _no_token()
    header, claims = _json(parts[0]), _json(parts[1])
    if not (isinstance(header, dict) and isinstance(claims, dict)):
        raise _no_token()
    algorithm = str(header.get("alg"))
    right, fault = _right(claims)
    audience = claims.get("aud", ())
    subject = claims.get("sub")
    kid = header.get("kid")
    return Content(
        algorithm,
        kid if kid is None else str(kid),
        right,
        _time(claims, "exp"),
        _time(claims, "iat"),
        _time(claims, "nbf"),
        subject if subject is None else str(subject),
        tuple(map(str, audience if isinstance(audience, list | tuple) else [audience])),
        _fault_of_header(header) or _fault_of_times(claims, now) or _fault_of(subject) or fault,
    )


def _fault_of_header(header: dict[str, Any]) -> str:
    if header.get("alg") not in ALGORITHMS:
        return f"its algorithm is none of {', '.join(ALGORITHMS)}"
    if "crit" in header or "b64" in header:
        return "its header has members that must be understood"
    return ""


def _fault_of_times(claims: dict[str, Any], now: float) -> str:
    for name in ("exp", "nbf", "iat"):
        if name in claims and _time(claims, name) is None:
            return f"its {name} is no time"
    expires = _time(claims, "exp")
    if expires is None:
        return "it has no exp"
    if now >= expires:
        return "it has expired"
    if max(_time(claims, "nbf") or 0, _time(claims, "iat") or 0) > now:
        return "it is not yet valid"
    return ""


def _fault_of(subject: object) -> str:
    if subject is None or (isinstance(subject, str) and is_subject(subject)):
        return ""
    return f"its sub is not 1 to {MAX_SUBJECT} printable characters"


def is_subject(text: str) -> bool:
    """Return whether an agent takes this as ``sub``."""
    return 0 < len(text) <= MAX_SUBJECT and text.isprintable()


def _right(claims: dict[str, Any]) -> tuple[Right | None, str]:
    """Return the right, or None and a sentence."""
    if CLAIM not in claims:
        return None, f"it has no claim {CLAIM}"
    try:
        return right_of(claims[CLAIM]), ""
    except RightError as error:
        return None, f"its claim {' '.join([CLAIM, *error.members])}: {error}"


def _time(claims: dict[str, Any], name: str) -> float | None:
    """Return a time. None: it is missing, or an agent takes it for none."""
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) <= _MAX_TIME else None  # NaN is not


def _json(part: str) -> Any:
    try:
        if not _BASE64.fullmatch(part):
            raise ValueError
        return json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        raise _no_token() from None


def _no_token() -> ValueError:
    return ValueError("this is no token")


def shown_time(seconds: float) -> datetime | None:
    """Return a time. None: it is out of the range of dates."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None
