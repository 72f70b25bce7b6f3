"""The refusals of a request without a credential."""

from pathlib import Path

import pytest
from starlette.requests import HTTPConnection

from oplogd.config.command import parse
from oplogd.web.access.authentication import BASIC
from oplogd.web.access.keeper import Keeper
from oplogd.web.access.sides import ReadAuthenticator
from oplogd.web.access.sources import Sources
from oplogd.web.http.problem import Problem
from tests.kits.clock.virtual import VirtualClock

PASSWORD = "the password: HTTP Basic authentication with any user name"
TOKEN = "a token: Authorization: Bearer"


@pytest.mark.parametrize(
    ("flags", "needed"),
    [
        (("--password", "shared"), PASSWORD),
        (("--password", "shared", "--token-key", "{key}"), f"{PASSWORD}, or {TOKEN}"),
        (("--token-key", "{key}"), TOKEN),
        (("--ingest-password", "shared", "--token-key", "{key}"), TOKEN),
    ],
)
async def test_a_refusal_names_the_credentials_that_open(
    tmp_path: Path, flags: tuple[str, ...], needed: str
) -> None:
    key = tmp_path / "key"
    key.write_text("a secret of the application, for its tokens")
    settings = parse([each.format(key=key) for each in flags], {})
    clock = VirtualClock().clock
    readers = ReadAuthenticator(Keeper(Sources(settings), clock), (), clock)
    request = HTTPConnection({"type": "http", "headers": [], "query_string": b"", "client": None})
    with pytest.raises(Problem) as raised:
        await readers.caller(request)
    assert (raised.value.status, raised.value.headers) == (401, BASIC)
    assert raised.value.detail == f"reading needs {needed}"
