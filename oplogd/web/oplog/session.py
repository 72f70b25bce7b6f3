"""/session and /token: signing in and out for the dashboard, and tokens for pages of other origins.

Nothing here lets another origin read. A page of another origin cannot even send the requests:
signing in needs a content type, and signing out a method, that the preflight does not grant.
"""

from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Request, Response

from oplog_kit.wording import shortened
from oplogd.decode.media_types import JSON
from oplogd.decode.typed import FAULTS, about
from oplogd.model.operation import format_ms
from oplogd.web.access.authentication import (
    COOKIE_SECONDS,
    TOKEN_SECONDS,
    ReadAuthenticator,
)
from oplogd.web.access.carried import COOKIE, Given
from oplogd.web.access.signing import Purpose
from oplogd.web.describe import types
from oplogd.web.describe.document import PASSWORD, described
from oplogd.web.http.bodies import small_body
from oplogd.web.http.headers import media_type
from oplogd.web.http.problem import Problem

_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class LoginBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a login."""

    password: Annotated[str, about(None, "secret")]
    user: Annotated[str, about("The name of a principal. Default: none.", "ada")] = ""


class _NoOptions(msgspec.Struct, forbid_unknown_fields=True):
    """The body of an endpoint without options. Unknown ones are refused, not ignored."""


def add_session(app: FastAPI, readers: ReadAuthenticator) -> None:
    @app.get("/session")
    @described("passwords", answer=types.SessionAnswer)
    async def session(request: Request) -> Response:
        """Check whether this browser may follow the stream.

        Needs no password.
        """
        signed = readers.signed(request)
        until = signed and signed.until
        body = {
            "password_needed": not readers.is_open,
            "signed_in": readers.is_open or await readers.admitted(request) is not None,
            "expires": format_ms(until * 1000) if until else None,
        }
        return _json(body)

    @app.post("/session")
    @described("passwords", *(400, 401, 409, 413, 415, 429), status=204, body=LoginBody, rights=())
    async def sign_in(request: Request) -> Response:
        """Sign in: get a cookie that allows following the stream."""
        if readers.is_open:
            raise Problem(409, "no password is set: there is nothing to sign in to")
        login = await _read_login(request)
        given = Given(login.user, login.password.encode())
        caller = await readers.check_password(request, given)
        value, _ = readers.sign(caller, Purpose.COOKIE, COOKIE_SECONDS)
        return _with_cookie(request, value)

    @app.delete("/session")
    @described("passwords", 400, 413, status=204)
    async def sign_out(request: Request) -> Response:
        """Sign out: delete the cookie."""
        await _require_no_options(request, "DELETE /session")
        return _with_cookie(request, "", "Max-Age=0")

    @app.post("/token")
    @described("passwords", *(400, 401, 409, 413, 429), answer=types.TokenAnswer, rights=PASSWORD)
    async def token(request: Request) -> Response:
        """Get a token for following the stream from a page of another origin.

        For the server of that page, which sends the password by HTTP Basic.
        """
        if readers.is_open:
            raise Problem(409, "no password is set: the stream needs no token")
        caller = await readers.with_password(request)
        await _require_no_options(request, "POST /token")
        value, expires = readers.sign(caller, Purpose.TOKEN, TOKEN_SECONDS)
        return _json(
            {"token": value, "expires": format_ms(expires * 1000), "seconds": TOKEN_SECONDS}
        )


async def _read_login(request: Request) -> LoginBody:
    type_ = media_type(request.headers.get("content-type", ""))
    if not type_:
        raise Problem(415, f"Content-Type is missing; send the password as {JSON}")
    if type_ != JSON:
        raise Problem(
            415, f"Content-Type {shortened(type_)} is not understood; send the password as {JSON}"
        )
    try:
        return msgspec.json.decode(await small_body(request), type=LoginBody)
    except FAULTS:
        raise Problem(
            400,
            "send a JSON object with the password, of a principal also its name as user, and"
            ' nothing else: {"password": "..."}',
        ) from None


async def _require_no_options(request: Request, endpoint: str) -> None:
    """Raise Problem 400 unless the query is empty and the body is empty or an empty object."""
    try:
        msgspec.json.decode((await small_body(request)).strip() or b"{}", type=_NoOptions)
        has_options = bool(request.url.query)
    except FAULTS:
        has_options = True
    if has_options:  # the message does not repeat them: they may hold a secret
        raise Problem(400, f"{endpoint} has no options: send no query, and no body or {{}}")


def _with_cookie(request: Request, value: str, *attributes: str) -> Response:
    """Set the cookie until the browser is closed.

    The value may expire earlier. If a browser still sends it, it gets a challenge that opens no
    dialog.
    """
    parts = [f"{COOKIE}={value}", "Path=/", "HttpOnly", "SameSite=Strict", *attributes]
    # A proxy that ends TLS may not tell the agent. The browser does, in Origin.
    if request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://"):
        parts.append("Secure")
    return Response(status_code=204, headers={**_HEADERS, "Set-Cookie": "; ".join(parts)})


def _json(body: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(body), 200, _HEADERS, JSON)
