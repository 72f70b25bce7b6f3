"""/ready tells what is wrong with the store to those who may know it."""

import json
from typing import Any, cast

import pytest
from fastapi import FastAPI

from oplogd.web.access.caller import Caller
from oplogd.web.access.right_bodies import right_of
from oplogd.web.access.rights import READ_ALL, Right
from oplogd.web.http.error_handlers import Refusals, add_error_handlers
from oplogd.web.oplog.monitoring import add_monitoring

TROUBLE = "cannot open /var/lib/oplog"


class _Readers:
    def __init__(self, right: Right | None, *, is_closed: bool) -> None:
        self.right = right
        self.is_closed = is_closed

    async def admitted(self, _: object) -> Caller | None:
        return None if self.right is None else Caller("user:ada", self.right)


class _Report:
    async def trouble(self) -> str:
        return TROUBLE


@pytest.mark.parametrize(
    ("right", "is_closed", "shown"),
    [
        (None, False, TROUBLE),
        (None, True, "the store does not work"),
        (right_of({"read": ["*"]}), True, "the store does not work"),
        (READ_ALL, True, TROUBLE),
    ],
)
async def test_with_rights_only_whole_readers_are_told_the_trouble_of_the_store(
    right: Right | None, shown: str, *, is_closed: bool
) -> None:
    app = FastAPI()
    add_error_handlers(app, Refusals())
    readers = _Readers(right, is_closed=is_closed)
    add_monitoring(app, cast(Any, readers), cast(Any, _Report()), lambda: False)
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/ready", "query_string": b"", "headers": []}
    await app(scope, receive, send)
    assert (sent[0]["status"], json.loads(sent[1]["body"])["detail"]) == (503, shown)
