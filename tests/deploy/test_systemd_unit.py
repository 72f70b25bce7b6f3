"""The unit passes systemd's own checks.

tests/e2e/agent/test_start.py shows that the agent notifies.
"""

import re
import shutil
import sys
from pathlib import Path

import pytest

from oplog_kit.listen import Address
from oplogd.config.command import parse
from oplogd.config.settings import Settings
from oplogd.server import EXIT_FAILED, EXIT_OK, EXIT_UNWRITTEN
from tests.kits.deploy.files import DEPLOY, must_pass, program, run

UNIT = DEPLOY / "systemd/oplogd.service"
# Greatest exposure for `systemd-analyze security`, in tenths. Below 20 is "ok", no hardening is 96.
EXPOSURE = 12


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """Return a copy of the unit and its drop-in that runs the program of these tests."""
    shutil.copytree(DEPLOY / "systemd/oplogd.service.d", tmp_path / "oplogd.service.d")
    here = tmp_path / UNIT.name
    text = UNIT.read_text()
    assert text.count("/opt/oplog/bin/") == 1
    here.write_text(text.replace("/opt/oplog/bin/", f"{Path(sys.executable).parent}/"))
    return here


def test_systemd_understands_every_line(unit: Path) -> None:
    done = must_pass(program("systemd-analyze"), "verify", "--man=no", "--generators=no", unit)
    assert "oplogd" not in done.stderr


def test_systemd_notices_an_unknown_line(unit: Path) -> None:
    with unit.open("a") as file:
        file.write("\n[Service]\nProtectSistem=strict\n")
    done = run(program("systemd-analyze"), "verify", "--man=no", "--generators=no", unit)
    assert "ProtectSistem" in done.stderr


def test_the_unit_is_hardly_exposed(unit: Path) -> None:
    done = must_pass(
        program("systemd-analyze"), "security", "--offline=true", f"--threshold={EXPOSURE}", unit
    )
    assert re.search(r"Overall exposure level for oplogd.service: [01]\.\d", done.stdout), (
        done.stdout
    )


def test_the_unit_waits_for_the_agent_to_stop_and_does_not_repeat_a_bad_flag() -> None:
    lines = dict(
        line.split("=", 1) for line in UNIT.read_text().splitlines() if re.match(r"[A-Z]\w+=", line)
    )
    assert lines["Type"] == "notify"
    assert "WatchdogSec" not in lines  # the agent sends none
    settings = Settings()
    assert int(lines["TimeoutStopSec"]) >= settings.shutdown_timeout + 5
    assert int(lines["LimitNOFILE"]) > settings.max_clients
    assert int(lines["RestartPreventExitStatus"]) not in (EXIT_OK, EXIT_FAILED, EXIT_UNWRITTEN)
    assert not settings.store.is_absolute()
    assert lines["WorkingDirectory"] == f"%S/{lines['StateDirectory']}"


def test_the_agent_of_the_unit_serves_all_interfaces_unless_the_file_says_otherwise() -> None:
    text = UNIT.read_text()
    (name, value), *_ = re.findall(r"^Environment=(\w+)=(.*)$", text, re.MULTILINE)
    assert parse([], {name: value}).listen == Address("", Settings().http_address.port)
    assert text.index("\nEnvironment=") < text.index("\nEnvironmentFile=")
