"""The refusals of a request without a credential."""

from ctypes import c_int64
from pathlib import Path

import pytest
from starlette.requests import HTTPConnection

from oplogd.config.command import parse
from oplogd.web.access.authentication import BASIC
from oplogd.web.access.keeper import Keeper
from oplogd.web.access.keys.signing import Purpose
from oplogd.web.access.sides import ReadAuthenticator, WriteAuthenticator
from oplogd.web.access.sources import Sources
from oplogd.web.http.plain import PlainRequest
from oplogd.web.http.problem import Problem
from tests.kits.clock.virtual import VirtualClock

PASSWORD = "the password: HTTP Basic authentication with any user name"
PRINCIPAL = PASSWORD.replace("any user", "the name of a principal, or any user")
TOKEN = "a token: Authorization: Bearer"

RIGHTS = """
[ada]
password_hash = "$scrypt$ln=4,r=1,p=1$c2FsdHNhbHQ$eZrN9+Lobgu+oFGuitRRHArZSn9Kn/Z9aIz3/C4UQsc"
read = ["*"]
"""


@pytest.mark.parametrize(
    ("flags", "needed"),
    [
        (("--password", "shared"), PASSWORD),
        (("--password", "shared", "--token-key", "{key}"), f"{PASSWORD}, or {TOKEN}"),
        (("--token-key", "{key}"), TOKEN),
        (("--ingest-password", "shared", "--token-key", "{key}"), TOKEN),
        (("--rights", "{rights}"), PRINCIPAL),
        (("--rights", "{rights}", "--token-key", "{key}"), f"{PRINCIPAL}, or {TOKEN}"),
    ],
)
async def test_a_refusal_names_the_credentials_that_open(
    tmp_path: Path, flags: tuple[str, ...], needed: str
) -> None:
    key = tmp_path / "key"
    key.write_text("a secret of the application, for its tokens")
    rights = tmp_path / "rights.toml"
    rights.write_text(RIGHTS)
    settings = parse([each.format(key=key, rights=rights) for each in flags], {})
    clock = VirtualClock().clock
    readers = ReadAuthenticator(Keeper(Sources(settings), clock), (), clock)
    request = HTTPConnection({"type": "http", "headers": [], "query_string": b"", "client": None})
    with pytest.raises(Problem) as raised:
        await readers.caller(request)
    assert (raised.value.status, raised.value.headers) == (401, BASIC)
    assert raised.value.detail == f"reading needs {needed}"


async def test_a_token_for_reading_does_not_write_also_the_short_way() -> None:
    clock = VirtualClock().clock
    keeper = Keeper(Sources(parse(["--password", "a", "--ingest-password", "b"], {})), clock)
    readers, writers = ReadAuthenticator(keeper, (), clock), WriteAuthenticator(keeper, (), clock)
    (password,) = keeper.credentials.shared["reading"].values()
    value, _ = readers.sign(password, Purpose.TOKEN, 60)
    authorization = f"Bearer {value}".encode()
    headers = [(b"authorization", authorization)]
    request = HTTPConnection(
        {"type": "http", "headers": headers, "query_string": b"", "client": None}
    )
    plain = PlainRequest({b"authorization": authorization}, bytearray(), "192.0.2.1")
    reader = await readers.caller(request)
    assert readers.plain_caller(plain) == reader
    with pytest.raises(Problem) as raised:
        await writers.caller(request)
    assert raised.value.status == 401
    assert writers.plain_caller(plain) is None
    in_url = {"type": "http", "headers": [], "query_string": f"token={value}".encode()}
    assert await readers.caller(HTTPConnection({**in_url, "client": None})) == reader


async def test_refused_tokens_and_passwords_count_together_and_are_logged_apart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "oplogd.password")
    key = tmp_path / "key"
    key.write_text("a secret of the application, for its tokens")
    settings = parse(["--password", "a", "--token-key", str(key)], {})
    clock, refused = VirtualClock().clock, c_int64()
    readers = ReadAuthenticator(Keeper(Sources(settings), clock), (), clock, refused)
    for authorization in (b"Bearer x", b"Basic Ong="):
        headers = [(b"authorization", authorization)]
        client = ("192.0.2.1", 1)
        with pytest.raises(Problem):
            await readers.caller(
                HTTPConnection(
                    {"type": "http", "headers": headers, "query_string": b"", "client": client}
                )
            )
    assert refused.value == readers.refused == 2
    assert caplog.messages == [
        "reading: refusing tokens from 192.0.2.1: it is no token",
        "reading: refusing passwords from 192.0.2.1: it is wrong",
    ]
