"""Signing in and out for the dashboard, and tokens for pages of other origins: the endpoints /session and /token.

Nothing here allows reading from another origin, and a page of another origin cannot even ask: signing in needs a content
type and signing out a method that the preflight does not grant.
"""

from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response

from oplogd.ingest.http import JSON
from oplogd.operation import format_ms
from oplogd.web import describe
from oplogd.web.auth import COOKIE, COOKIE_SECONDS, TOKEN_SECONDS, ReadGuard
from oplogd.web.negotiate import media_type
from oplogd.web.problem import Problem
from oplogd.web.signing import Kind

_MAX_BODY = 16 * 1024
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class _Login(msgspec.Struct, forbid_unknown_fields=True):
    password: str


class _Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """What is asked of an endpoint that has no options. Who asks for more must not believe that it was granted."""


def add_session(app: FastAPI, guard: ReadGuard) -> None:
    @app.get("/session", **describe.SESSION)
    async def get_session(request: Request) -> Response:
        until = guard.signed_until(request)
        body = {
            "password_needed": not guard.is_open,
            "signed_in": guard.is_open or guard.admits(request),
            "expires": format_ms(until * 1000) if until else None,
        }
        return _json(body)

    @app.post("/session", **describe.SIGN_IN)
    async def sign_in(request: Request) -> Response:
        if guard.is_open:
            raise Problem(409, "no password is set: there is nothing to sign in to")
        guard.demand_password(request, (await _read_login(request)).password.encode())
        value, _ = guard.sign(Kind.COOKIE, COOKIE_SECONDS)
        return _with_cookie(request, value)

    @app.delete("/session", **describe.SIGN_OUT)
    async def sign_out(request: Request) -> Response:
        await _expect_nothing(request, "DELETE /session")
        return _with_cookie(request, "", "Max-Age=0")

    @app.post("/token", **describe.TOKEN)
    async def post_token(request: Request) -> Response:
        if guard.is_open:
            raise Problem(409, "no password is set: the stream needs no token")
        guard.demand_basic(request)
        await _expect_nothing(request, "POST /token")
        token, expires = guard.sign(Kind.TOKEN, TOKEN_SECONDS)
        return _json(
            {"token": token, "expires": format_ms(expires * 1000), "seconds": TOKEN_SECONDS}
        )


async def _read_login(request: Request) -> _Login:
    type_ = media_type(request.headers.get("content-type", ""))
    if type_ != JSON:
        raise Problem(
            415, f"send the password as Content-Type: {JSON}, not {type_ or 'without one'}"
        )
    try:
        return msgspec.json.decode(await _read_body(request), type=_Login)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Problem(
            400, 'send a JSON object with the password and nothing else: {"password": "..."}'
        ) from None


async def _expect_nothing(request: Request, endpoint: str) -> None:
    """Raise Problem 400 unless the body is empty or an empty object, and the query empty."""
    body = (await _read_body(request)).strip()
    try:
        if body:
            msgspec.json.decode(body, type=_Nothing)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        asks = True
    else:
        asks = bool(request.url.query)
    if asks:  # neither is repeated: it may hold a secret
        raise Problem(400, f"{endpoint} has no options: send no query, and no body or {{}}")


async def _read_body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_BODY:
            raise Problem(413, f"the body has more than {_MAX_BODY:,} bytes")
    return bytes(body)


def _with_cookie(request: Request, value: str, *more: str) -> Response:
    """Set the cookie until the browser is closed.

    The value expires earlier. A browser that still sends it then is told so in a way that does not open a dialog.
    """
    parts = [f"{COOKIE}={value}", "Path=/", "HttpOnly", "SameSite=Strict", *more]
    # A proxy that ends TLS may not say so, the browser's own word will do.
    if request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://"):
        parts.append("Secure")
    return Response(status_code=204, headers={**_HEADERS, "Set-Cookie": "; ".join(parts)})


def _json(body: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(body), 200, _HEADERS, JSON)
