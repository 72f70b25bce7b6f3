"""A free port is given to one test only, also if no server has it yet."""

import random
import subprocess
import sys

import pytest

from tests.kits.processes.forked import run
from tests.kits.processes.logged import DEADLINE
from tests.kits.servers.ports import free_port

pytestmark = pytest.mark.process


def test_no_port_is_given_twice_in_this_and_in_other_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second, third = (free_port() for _ in range(3))
    given = iter([first, second, third, 31_999, 31_998, 31_997])
    monkeypatch.setattr(random, "randrange", lambda *_: next(given))
    assert free_port() not in (first, second, third)
    code = f"""if True:
        import random
        from tests.kits.servers.ports import free_port
        given = iter([{first}, {second}, {third}, 31_996, 31_995, 31_994])
        random.randrange = lambda *_: next(given)
        print(free_port())
    """
    command = [sys.executable, "-c", code]
    other: subprocess.CompletedProcess[str] = run(
        command, capture_output=True, text=True, timeout=DEADLINE, check=True
    )
    assert int(other.stdout) not in (first, second, third)
