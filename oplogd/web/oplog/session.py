"""/session and /token: signing in and out for the dashboard, and tokens for pages of other origins.

Nothing here lets another origin read. A page of another origin cannot even send the requests:
signing in needs a content type, and signing out a method, that the preflight does not grant.
"""

import math
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Request, Response

from oplog_kit.wording import shortened
from oplogd.decode.media_types import JSON
from oplogd.decode.typed import FAULTS, about
from oplogd.errors import RightError
from oplogd.model.names import OPLOG
from oplogd.model.operation import format_ms
from oplogd.web.access.carried import COOKIE, Given
from oplogd.web.access.credentials import COOKIE_SECONDS, MAX_SECONDS, TOKEN_SECONDS
from oplogd.web.access.keys.signing import Purpose
from oplogd.web.access.keys.tokens import MAX_TOKEN_BYTES
from oplogd.web.access.right_bodies import RightBody, body_of, right_of
from oplogd.web.access.rights import Right
from oplogd.web.access.sides import ReadAuthenticator
from oplogd.web.describe import types
from oplogd.web.describe.document import AUTHORIZATION, described
from oplogd.web.http.bodies import small_body
from oplogd.web.http.headers import media_type
from oplogd.web.http.problem import Problem

_TOKEN_BODY = "send no body, or a JSON object with a right and seconds"
_Members = dict[str, Any]
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class LoginBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a login."""

    password: Annotated[str, about(None, "secret")]
    user: Annotated[str, about("The name of a principal. Default: none.", "ada")] = ""


class TokenBody(RightBody, forbid_unknown_fields=True):
    """The body of POST /token: a right, and how long the token is valid."""

    seconds: Annotated[int, about("Default: 900.", 600, ge=1, le=MAX_SECONDS)] = TOKEN_SECONDS


class _NoOptions(msgspec.Struct, forbid_unknown_fields=True):
    """The body of an endpoint without options. Unknown ones are refused, not ignored."""


def add_session(app: FastAPI, readers: ReadAuthenticator) -> None:
    @app.get("/session")
    @described("passwords", answer=types.SessionAnswer)
    async def session(request: Request) -> Response:
        """Check whether this browser may follow the stream.

        Needs no password.
        """
        is_open = readers.is_open
        caller = None if is_open else await readers.admitted(request)
        until = None if caller is None else caller.until
        body = {
            "password_needed": not is_open,
            "principals": readers.has_principals,
            "signed_in": is_open or caller is not None,
            "reads_operations": is_open or (caller is not None and OPLOG in caller.right.read),
            "expires": None if until is None else format_ms(int(until) * 1000),
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
    @described(
        "passwords",
        *(400, 401, 403, 409, 413, 429, 503),
        answer=types.TokenAnswer,
        body=TokenBody,
        rights=AUTHORIZATION,
    )
    async def token(request: Request) -> Response:
        """Get a token for following the stream from a page of another origin.

        For the server of that page, which sends the password by HTTP Basic, or a JWT. With a right
        in the body the token grants what both this right and the client have, for `seconds`, and
        not beyond the end of the JWT. Without a body it is for reading all that the client may, for
        15 minutes.
        """
        if readers.is_open:
            raise Problem(409, "no password is set: the stream needs no token")
        caller = await readers.maker(request)
        asked, seconds = await _read_token(request)
        readers.require_still(caller)
        right = None if asked is None else caller.right.narrowed(asked)
        now = readers.now()
        try:
            value, expires = readers.sign(caller, Purpose.TOKEN, seconds, right)
        except RightError as error:
            raise Problem(400, str(error)) from None
        if len(value) > MAX_TOKEN_BYTES:
            raise Problem(413, f"the token would have more than {MAX_TOKEN_BYTES:,} bytes")
        left = min(seconds, math.ceil(expires - now))
        body = {"token": value, "expires": format_ms(expires * 1000), "seconds": left}
        return _json(body if right is None else {**body, "right": body_of(right)})


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


async def _read_token(request: Request) -> tuple[Right | None, int]:
    """Return the right of a token, None if it names none, and its seconds. Raises Problem 400."""
    if request.url.query:  # not repeated: it may hold a secret
        raise Problem(400, "POST /token has no parameters: send a right in the body")
    try:
        given = msgspec.json.decode((await small_body(request)).strip() or b"{}", type=_Members)
        seconds = given.pop("seconds", TOKEN_SECONDS)
        right = right_of(given) if given else None
    except FAULTS:
        raise Problem(400, _TOKEN_BODY) from None
    except RightError as error:
        raise Problem(400, str(error)) from None
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 1 <= seconds <= MAX_SECONDS:
        raise Problem(400, f"seconds: must be a whole number from 1 to {MAX_SECONDS:,}")
    return right, seconds


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
