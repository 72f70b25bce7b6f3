"""An agent that serves HTTPS, with a certificate made by the command ``openssl``."""

import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.wire.store_kinds import StoreKind, on_one_store
from tests.kits.agents.agent import DEADLINE
from tests.kits.contract.wire import Target, operation, said


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1"
        " -subj /CN=oplog -addext subjectAltName=IP:127.0.0.1"
    )
    made = subprocess.run(
        [*command.split(), "-out", certificate, "-keyout", key],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return certificate, key


@pytest.fixture(scope="module")
def secure(
    store_kind: StoreKind, certificate: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    flags = ("--tls-certificate", str(certificate[0]), "--tls-key", str(certificate[1]))
    with store_kind.agent(tmp_path_factory.mktemp("agent"), *flags) as agent:
        assert agent.url.startswith("https://127.0.0.1:")
        yield Target.of(agent, ssl.create_default_context(cafile=str(certificate[0])))


@on_one_store
def test_operations_and_stream_go_over_tls(secure: Target) -> None:
    with secure.follow() as stream:
        secure.store(operation("insert", "a", "thing"))
        secure.send_udp(b'{"event":"delete","type":"thing","id":"a"}')
        assert [said(block) for block in stream.take(2)] == [("insert", "a"), ("delete", "a")]
    with secure.follow("0") as stream:
        assert [said(block) for block in stream.take(2)] == [("reset", ""), ("live", "")]


@on_one_store
def test_plain_http_gets_no_answer_from_a_tls_port(secure: Target) -> None:
    with socket.create_connection((secure.host, secure.port), DEADLINE) as sock:
        sock.sendall(b"GET /status HTTP/1.1\r\nHost: a\r\n\r\n")
        try:
            answer = sock.recv(1000)
        except ConnectionResetError:
            answer = b""
    assert b"HTTP/1.1" not in answer
