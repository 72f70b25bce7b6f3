"""The log of a process has what it had written when a test looks."""

import subprocess

import pytest

from tests.kits.processes.logged import LoggedProcess

pytestmark = pytest.mark.process

TELLS = "import sys; print('told', file=sys.stderr); print(flush=True); sys.stdin.read()"


class BusyTest(LoggedProcess):
    """The thread that reads the log does not get its turn."""

    def _read_log(self) -> None:
        pass


def test_a_line_that_was_written_before_a_look_is_in_the_log() -> None:
    with BusyTest(["-c", TELLS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        stdin, stdout = process.process.stdin, process.process.stdout
        assert stdin is not None
        assert stdout is not None
        with stdin, stdout:
            stdout.readline()
            assert process.count("told") == 1
            assert process.log == ["told\n"]
            assert process.text() == "told\n"
