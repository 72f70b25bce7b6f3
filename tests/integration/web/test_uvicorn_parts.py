"""A uvicorn that does not fit is noticed at the start."""

from pathlib import Path

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from oplog_kit.listen import Address
from oplogd.config.settings import Settings
from oplogd.errors import StartupError
from oplogd.server import serve


async def test_an_agent_does_not_start_on_a_uvicorn_that_lacks_an_overridden_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(HttpToolsProtocol, "_start_asgi_task")
    settings = Settings(listen=Address("127.0.0.1", 0), store=tmp_path / "oplog.db")
    with pytest.raises(
        StartupError, match=r"^uvicorn \S+ does not fit: it has no _start_asgi_task; install oplog"
    ):
        await serve(settings)
