"""The start of the agent: its log line, its sockets, and the reasons to refuse."""

import json
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from oplogd.host.sockets import base_url, bind, interfaces
from tests.kits.agents.agent import DEADLINE, Agent, NewAgent, write_lock
from tests.kits.agents.runs import (
    a_folder,
    a_newer_schema,
    another_program,
    has_ipv6,
    no_sqlite,
    nothing,
    refusal,
    udp_is_free,
)
from tests.kits.contract.wire import Target, operation, said
from tests.kits.processes.logged import LoggedProcess
from tests.kits.servers.ports import free_port


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """An agent on all interfaces, for tests that do not end it."""
    with NewAgent(tmp_path_factory.mktemp("agent"), "--listen", ":0") as agent:
        yield agent


def test_a_port_in_use_is_named_with_its_flag(running: Agent, tmp_path: Path) -> None:
    sentence = refusal("--listen", f"127.0.0.1:{running.port}", "--store", tmp_path / "oplog.db")
    assert f"127.0.0.1:{running.port}" in sentence
    assert "--listen" in sentence
    assert "in use" in sentence
    assert not (tmp_path / "oplog.db").exists()


def test_a_udp_port_in_use_is_named_with_its_flag(running: Agent, tmp_path: Path) -> None:
    address = f"127.0.0.1:{running.udp_port}"
    sentence = refusal("--udp-listen", address, "--store", tmp_path / "oplog.db")
    assert address in sentence
    assert "--udp-listen" in sentence
    assert "in use" in sentence


@pytest.mark.parametrize(
    ("prepare", "words", "code"),
    [
        (nothing, "cannot be opened", 1),  # the folder of a volume that is not mounted yet
        (a_folder, "cannot be opened", 2),
        (no_sqlite, "no SQLite file", 1),
        (another_program, "not an oplog store", 2),
        (a_newer_schema, "version 99", 2),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_an_unusable_store_is_named_with_the_remedy_and_left_unchanged(
    tmp_path: Path, prepare: Callable[[Path], None], words: str, code: int
) -> None:
    path = tmp_path / "folder" / "oplog.db"
    path.parent.mkdir()
    prepare(path)
    before = path.read_bytes() if path.is_file() else None
    sentence = refusal("--store", path, code=code)
    assert str(path) in sentence
    assert "--store" in sentence
    assert words in sentence
    assert (path.read_bytes() if path.is_file() else None) == before


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (["--heartbeat", "26s"], "--heartbeat"),
        (["--no-such-flag=secret"], "--no-such-flag"),
    ],
)
def test_a_bad_flag_ends_with_code_2_and_its_name(flags: list[str], names: str) -> None:
    sentence = refusal(*flags, code=2)
    assert names in sentence
    assert "secret" not in sentence


def test_an_invalid_certificate_is_named_with_its_flag(tmp_path: Path) -> None:
    no_certificate = tmp_path / "no-certificate"
    no_certificate.write_text("this is none")
    flags = ("--tls-certificate", no_certificate, "--tls-key", no_certificate)
    assert "--tls-certificate" in refusal("--store", tmp_path / "oplog.db", *flags, code=2)


def test_an_unusable_spool_is_named_and_only_a_missing_folder_may_be_tried_again(
    tmp_path: Path,
) -> None:
    mongo = ("--mongo-url", "mongodb://127.0.0.1:9/?serverSelectionTimeoutMS=1")
    for path, code in ((tmp_path, 2), (tmp_path / "missing" / "spool.db", 1)):
        sentence = refusal(*mongo, "--spool", path, code=code)
        assert sentence.startswith(f"oplogd: --spool: {path} cannot be opened: ")


def test_port_0_takes_a_free_port_the_same_for_udp(running: Agent) -> None:
    assert running.port == running.udp_port > 0


def test_an_ipv6_address_is_served(tmp_path: Path) -> None:
    with Agent(tmp_path, "--listen", "[::1]:0") as agent:
        assert agent.url == f"http://[::1]:{agent.port}"
        target = Target(agent.url)
        with target.follow() as stream:
            target.send_udp(b'{"event":"insert","type":"thing","id":"udp"}')
            assert said(stream.block()) == ("insert", "udp")
            target.store(operation("insert", "http", "thing"))
            assert said(stream.block()) == ("insert", "http")


def test_an_ingest_password_keeps_udp_on_the_loopback_address(
    running: Agent, tmp_path: Path
) -> None:
    assert not udp_is_free("127.0.0.2", running.udp_port), "without one it is bound to all"
    with Agent(tmp_path, "--listen", "0.0.0.0:0", "--ingest-password", "secret") as agent:
        assert agent.udp_port == agent.port
        assert udp_is_free("127.0.0.2", agent.udp_port)
        assert not udp_is_free("127.0.0.1", agent.udp_port)
        agent.send_udp(operation("insert", "a", "thing"))
        agent.wait_status(events_ingested=1)
        assert agent.post(operation("insert", "a", "thing")) == 401


def test_with_udp_off_no_port_is_taken(tmp_path: Path) -> None:
    with Agent(tmp_path, "--udp-listen", "off") as agent:
        assert udp_is_free("127.0.0.1", agent.port)
        assert agent.post(operation("insert", "a", "thing")) == 204


def test_the_agent_notifies_systemd_when_it_is_ready_and_when_it_stops(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(path)
        listening.settimeout(DEADLINE)
        with NewAgent(tmp_path, environ={"NOTIFY_SOCKET": path}) as agent:
            assert listening.recv(100) == b"READY=1"
            assert agent.post(operation("insert", "a", "thing")) == 204
            agent.process.send_signal(signal.SIGTERM)
            assert listening.recv(100) == b"STOPPING=1"
            assert agent.wait() == 0


def start_line(agent: Agent) -> str:
    """Return the addresses in the start line."""
    (line,) = [line for line in agent.log if "oplogd: oplogd " in line]
    return line.partition(" on ")[2].partition(", store")[0]


def open_access(agent: Agent) -> list[str]:
    return [line.partition("no password: ")[2] for line in agent.log if "no password" in line]


def test_the_start_line_tells_that_all_interfaces_are_served(running: Agent) -> None:
    port = running.port
    assert start_line(running) == f"http://localhost:{port} (all interfaces), UDP [::]:{port}"


def test_the_start_line_tells_each_address_that_is_served(tmp_path: Path) -> None:
    with Agent(tmp_path, "--listen", "0.0.0.0:0", "--udp-listen", "off") as agent:
        assert start_line(agent) == f"http://localhost:{agent.port} (all IPv4 interfaces), UDP off"
    with Agent(tmp_path, "--listen", "127.0.0.1:0") as agent:
        url = f"127.0.0.1:{agent.port}"
        assert start_line(agent) == f"http://{url}, UDP {url}"


def loopback(port: int) -> str:
    """Return the addresses of localhost on this machine, as a log line shows them."""
    return f"127.0.0.1:{port}" + (f", [::1]:{port}" if has_ipv6() else "")


def test_localhost_is_served_with_ipv4_and_ipv6_on_one_port(tmp_path: Path) -> None:
    with Agent(tmp_path, "--listen", "localhost:0") as agent:
        assert start_line(agent).partition(", UDP ")[2] == loopback(agent.port)
        families = [socket.AF_INET6] if has_ipv6() else []
        for family in (socket.AF_INET, *families):
            host = "::1" if family == socket.AF_INET6 else "127.0.0.1"
            with socket.create_connection((host, agent.port), DEADLINE):
                pass
            with socket.socket(family, socket.SOCK_DGRAM) as sock:
                raw = json.dumps(operation("insert", host, "thing")).encode()
                sock.sendto(raw, (host, agent.port))
        agent.wait_status(events_ingested=1 + len(families))


def default_agent(folder: Path, *flags: str, environ: Mapping[str, str] | None = None) -> str:
    """Start an agent whose port without --listen is free, and return its log."""
    program = folder / "default.py"
    program.write_text(DEFAULT.format(port=free_port()))
    command = [str(program), "--store", str(folder / "oplog.db"), *flags]
    with LoggedProcess(command, environ) as process:
        process.wait_log(", store ")
        assert process.stop() == 0
        return process.text()


DEFAULT = """
from oplogd import announce
from oplogd.config import settings
settings.LOCAL = announce.LOCAL = settings.Address("localhost", {port})
from oplogd.cli import main
main()
"""


def test_without_listen_only_this_machine_is_served_and_the_first_line_says_so(
    tmp_path: Path,
) -> None:
    log = default_agent(tmp_path)
    found = re.search(
        r"on (\S+) \(this machine only; --listen :(\d+) serves others\), UDP (.+), store", log
    )
    assert found
    assert found[1].endswith(f":{found[2]}")
    assert found[3] == loopback(int(found[2]))
    assert "WARN" not in log


@pytest.mark.parametrize(
    ("flags", "environ", "warns"),
    [
        ((), {}, True),
        (("--listen", "localhost:0"), {}, False),
        ((), {"OPLOGD_LISTEN": "127.0.0.1:0"}, False),
    ],
)
def test_an_agent_on_an_older_store_says_that_others_do_not_reach_it_any_more(
    tmp_path: Path, flags: tuple[str, ...], environ: dict[str, str], warns: bool
) -> None:
    with Agent(tmp_path):
        pass
    log = default_agent(tmp_path, *flags, environ={**os.environ, **environ})
    assert ("Earlier versions served all interfaces without --listen" in log) == warns


@pytest.mark.parametrize(
    ("flags", "warning"),
    [
        (
            [],
            "everyone who can reach this machine may read operations over HTTP and send"
            " operations over HTTP and UDP;"
            " set --password and --ingest-password, or give --listen a single address\n",
        ),
        (
            ["--password", "x"],
            "everyone who can reach this machine may send operations over HTTP and UDP;"
            " set --ingest-password, or give --listen a single address\n",
        ),
        (
            ["--ingest-password", "x"],
            "everyone who can reach this machine may read operations over HTTP;"
            " set --password, or give --listen a single address\n",
        ),
        (["--password", "x", "--ingest-password", "y"], None),
        (["--listen", "127.0.0.1:0"], None),
    ],
)
def test_an_agent_on_all_interfaces_warns_of_each_right_without_a_password(
    tmp_path: Path, flags: list[str], warning: str | None
) -> None:
    with Agent(tmp_path, "--listen", ":0", *flags) as agent:
        assert agent.stop() == 0
    assert open_access(agent) == ([warning] if warning else [])


def test_a_name_with_several_addresses_has_them_all_in_the_start_line() -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as four,
        socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as six,
    ):
        bind(four, "127.0.0.1", 0)
        bind(six, "::1", 0)
        port, other = four.getsockname()[1], six.getsockname()[1]
        assert base_url([four, six], tls=False) == f"http://127.0.0.1:{port}"
        assert base_url([six], tls=True) == f"https://[::1]:{other}"
        assert interfaces([four, six]) == f"also [::1]:{other}"
        assert interfaces([four]) == ""


IMPATIENT = """
from oplogd import server
from oplogd.store.sqlite.file import connection
connection.BUSY_SECONDS = 3600.0
server.OPENING_SECONDS = 0.01
from oplogd.cli import main
main()
"""


def test_a_store_that_hangs_at_the_start_is_named(tmp_path: Path) -> None:
    with Agent(tmp_path):
        pass
    program = tmp_path / "impatient.py"
    program.write_text(IMPATIENT)
    flags = ("--listen", "127.0.0.1:0", "--shutdown-timeout", "500ms")
    store = ("--store", str(tmp_path / "oplog.db"))
    with write_lock(tmp_path), LoggedProcess([str(program), *flags, *store]) as process:
        process.wait_log("the store has not opened for 0.01 s")
        assert process.stop() == 0
