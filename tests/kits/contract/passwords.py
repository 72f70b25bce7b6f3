"""Passwords of agents under test, and requests that use them."""

import base64
import json

from tests.kits.contract.wire import JSON, Target

READER, WRITER = "read: mé", "write"
BROWSER_CHALLENGE = 'OplogSession realm="oplog"'
# A hash of the password "sesame" for a file of principals, cheap: of one block.
SESAME = "$scrypt$ln=4,r=1,p=1$c2FsdHNhbHQ$o1gT9OTyaPciygsW3Z+tJc3QzmSQS9+q9Dgg0HPXoXM"
LOGIN = {"password": READER}

# Deeper nesting than Python decodes.
DEEP = b'{"x": %s%s}' % (b"[" * 5_000, b"]" * 5_000)

# Bodies with options, for endpoints that have none.
OPTIONS = [
    b'{"types": ["video"]}',
    b'{"seconds": 60}',
    b"types=video",
    b"[]",
    b"null",
    b"0",
    b"x",
    b"\xff",
    b"{",
    b"{}{}",
    DEEP,
]


def basic(password: str, user: str = "anybody") -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def sign_in(target: Target, headers: dict[str, str] | None = None) -> str:
    """Sign in. Return the cookie as a browser sends it."""
    reply = target.request(
        "POST", "/session", json.dumps(LOGIN).encode(), {**JSON, **(headers or {})}
    )
    assert (reply.status, reply.body) == (204, b"")
    return (reply.header("Set-Cookie") or "").partition(";")[0]


def get_token(target: Target) -> str:
    reply = target.request("POST", "/token", b"", basic(READER))
    assert (reply.status, reply.json["seconds"]) == (200, 900)
    token: str = reply.json["token"]
    return token
