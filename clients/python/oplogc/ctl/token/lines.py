"""The content of a token in words and in JSON. No I/O."""

from collections.abc import Iterator
from typing import Any

from oplogc.ctl.token.content import Content, shown_time
from oplogc.http.answers import printable
from oplogc.terminal.output import as_time

_GRANTS = ("read", "write", "manage", "leases")
_NARROWED = {
    "types": "only operations on objects of these types: ",
    "parents": "reads only operations with one of these parents: ",
}


def token_lines(content: Content, verified: bool | None, now: float) -> Iterator[str]:
    """Yield what a token grants, to whom, and until when.

    ``verified``: whether the signature is right; None: it was not looked at. ``now``: seconds since
    1970.
    """
    for name, value in _rows(content, now):
        yield printable(f"{name:<9} {value}")
    yield f"signature {_verdict(content, verified)}"


def _rows(content: Content, now: float) -> Iterator[tuple[str, str]]:
    right = content.right
    if right is not None:
        granted = {name: right[name] for name in _GRANTS if right.get(name)}
        for name, values in granted.items():
            yield name, ", ".join(values)
        if not granted:
            yield "grants", "nothing"
        for name, words in _NARROWED.items():
            if name in right:
                yield "narrowed", words + ", ".join(right[name])
        if content.algorithm is None:
            yield "narrowed", "to what its maker may do"
    elif content.algorithm is None and not content.fault.startswith("its claim"):
        yield "read", "all that its maker may read"
    if content.expires is not None:
        yield "until", _moment(content.expires, now)
    if content.begins is not None:
        yield "from", _moment(content.begins, now)
    if content.issued is not None:
        yield "issued", _moment(content.issued, now)
    if content.subject is not None:
        yield "sub" if content.algorithm else "maker", content.subject
    if content.audience:
        yield "aud", ", ".join(content.audience)
    yield "signed", content.algorithm or "by an agent, with a password (POST /token)"
    if content.kid is not None:
        yield "kid", content.kid
    if content.fault:
        yield "refused", f"by every agent: {content.fault}"


def _moment(seconds: float, now: float) -> str:
    left = round(seconds - now)
    shown = _time(seconds) or f"{seconds:.0f} seconds after 1970"
    return f"{shown}, in {left:,} s" if left > 0 else f"{shown}, {-left:,} s ago"


def _time(seconds: float | None) -> str | None:
    """Return a time as text. None: it is missing, or out of the range of dates."""
    time = None if seconds is None else shown_time(seconds)
    return None if time is None else as_time(time)


def _verdict(content: Content, verified: bool | None) -> str:
    if verified is not None:
        return "verified with the key" if verified else "WRONG: not made with this key"
    way = "give --key FILE to verify it" if content.algorithm else "only an agent can verify it"
    return f"NOT verified: anybody can write such a token; {way}"


def token_members(content: Content, verified: bool | None, now: float) -> dict[str, Any]:
    """Return the content of a token for JSON. ``verified``: None if it was not looked at."""
    expires = content.expires
    return {
        "kind": "jwt" if content.algorithm else "agent",
        "verified": verified,
        "refused": content.fault or None,
        "right": content.right,
        "expires": _time(expires),
        "seconds": None if expires is None else round(expires - now),
        "begins": _time(content.begins),
        "issued": _time(content.issued),
        "sub": content.subject,
        "aud": list(content.audience),
        "algorithm": content.algorithm,
        "kid": content.kid,
    }
