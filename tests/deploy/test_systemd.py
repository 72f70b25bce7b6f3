import socket
import sys
import uuid
from pathlib import Path

import pytest

from oplogd.host.systemd import notify
from tests.kits.processes.logged import DEADLINE

pytestmark = pytest.mark.skipif(
    not hasattr(socket, "AF_UNIX"), reason="the platform has no Unix sockets"
)


def receiver(address: str) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listening.bind(address)
    listening.settimeout(DEADLINE)
    return listening


def test_the_state_arrives_at_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    with receiver(path) as listening:
        notify("READY=1\nSTATUS=listening on :8042")
        assert listening.recv(100) == b"READY=1\nSTATUS=listening on :8042"


@pytest.mark.skipif(sys.platform != "linux", reason="abstract names are a matter of Linux")
def test_the_state_arrives_at_an_abstract_name(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"oplog-{uuid.uuid4()}"
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
    with receiver(f"\0{name}") as listening:
        notify("STOPPING=1")
        assert listening.recv(100) == b"STOPPING=1"


@pytest.mark.parametrize(
    "name", [None, "", "/does/not/exist", "@nobody-listens-here", "x" * 500, "@", "/tmp"]
)
def test_nothing_is_raised_if_no_socket_listens(
    name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if name is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", name)
    notify("READY=1")
