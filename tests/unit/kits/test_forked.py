"""Forked programs behave as those of ``subprocess``."""

import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.kits.paths import ROOT
from tests.kits.processes.forked import Forked, run, start
from tests.kits.processes.logged import DEADLINE

pytestmark = pytest.mark.process

# Prints a line, then waits for a signal.
WAITING = "import signal\nprint('ready', flush=True)\nwhile True:\n    signal.pause()\n"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Return the path of a script, which a test writes."""
    return tmp_path / "script.py"


def ended(script: Path, code: str, *arguments: str, **options: Any) -> Any:
    """Run this code as a script in a fork."""
    script.write_text(textwrap.dedent(code))
    command = [sys.executable, str(script), *arguments]
    return run(command, **{"capture_output": True, "text": True, "timeout": DEADLINE, **options})


def waiting(script: Path, code: str = WAITING) -> "Forked[str]":
    """Start a script that waits. Return when it has printed its first line."""
    script.write_text(textwrap.dedent(code))
    process = Forked[str]([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize(
    ("code", "status", "errors"),
    [
        ("", 0, ""),
        ("import sys; sys.exit()", 0, ""),
        ("import sys; sys.exit(7)", 7, ""),
        ("import sys; sys.exit('a sentence')", 1, "a sentence\n"),
        ("import os; os._exit(9)", 9, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
    ],
)
def test_the_exit_code_is_that_of_the_program(
    script: Path, code: str, status: int, errors: str
) -> None:
    done = ended(script, code)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", errors)


def test_an_exception_prints_its_trace_and_is_the_exit_code_1(script: Path) -> None:
    done = ended(script, "def fail():\n    raise ValueError('no')\nfail()\n")
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert f'File "{script}", line 2, in fail\n' in done.stderr
    assert done.stderr.endswith("\nValueError: no\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_that_ends_a_program_is_its_negative_exit_code(
    script: Path, number: signal.Signals
) -> None:
    with waiting(script) as process:
        assert process.poll() is None
        process.send_signal(number)
        assert process.wait(DEADLINE) == -number
        assert process.poll() == -number


def test_sigint_is_a_keyboard_interrupt(script: Path) -> None:
    code = """
        import signal
        try:
            print("ready", flush=True)
            signal.pause()
        except KeyboardInterrupt:
            raise SystemExit(3)
    """
    with waiting(script, code) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE) == 3


def test_exit_functions_run_and_buffers_are_written_once(script: Path) -> None:
    code = "import atexit\natexit.register(print, 'the end')\nprint('the start')\n"
    assert ended(script, code).stdout == "the start\nthe end\n"


def test_a_module_and_a_script_have_their_own_arguments_name_and_path(script: Path) -> None:
    code = "import sys\nprint(__name__, sys.argv[1:], sys.path[0], sys.modules[__name__].__file__)"
    done = ended(script, code, "-x", "é")
    assert done.stdout == f"__main__ ['-x', 'é'] {script.parent} {script}\n"
    done = run(
        [sys.executable, "-m", "script", "y"], cwd=script.parent, capture_output=True, text=True
    )
    assert done.stdout == f"__main__ ['y'] {script.parent} {script}\n"


def test_code_has_its_own_arguments_name_and_path(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("import __main__\nvalue = __main__.value\n")
    code = """
        import sys
        value = 3
        def fail():
            raise ValueError(__name__, sys.argv, beside.value)
        import beside
        fail()
    """
    command = [sys.executable, "-c", textwrap.dedent(code), "-x", "é"]
    done = run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert '  File "<string>", line 5, in fail\n' in done.stderr
    assert done.stderr.endswith("\nValueError: ('__main__', ['-c', '-x', 'é'], 3)\n")


def test_the_environment_is_the_given_one_or_that_of_the_test(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import os\nprint(os.environ.get('A'), os.environ.get('B'), 'PATH' in os.environ)"
    monkeypatch.setenv("A", "1")
    assert ended(script, code).stdout == "1 None True\n"
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PYTHON", "L"))}
    assert ended(script, code, env={**kept, "B": "2"}).stdout == "None 2 False\n"
    assert ended(script, code).stdout == "1 None True\n"


def test_the_working_folder_is_the_given_one_or_that_of_the_test(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import os\nprint(os.getcwd())"
    other = tmp_path / "other"
    other.mkdir()
    assert ended(script, code, cwd=other).stdout == f"{other}\n"
    monkeypatch.chdir(tmp_path)
    assert ended(script, code).stdout == f"{tmp_path}\n"


def test_the_standard_streams_are_those_of_the_test(script: Path, tmp_path: Path) -> None:
    code = """
        import sys
        raw = sys.stdin.buffer.read()
        sys.stdout.buffer.write(raw[::-1])
        print("an error", file=sys.stderr)
    """
    done = ended(script, code, input=b"\x00\xffabc", text=False)
    assert (done.stdout, done.stderr) == (b"cba\xff\x00", b"an error\n")
    done = ended(script, code, input="x", capture_output=False, stdout=subprocess.PIPE,
                 stderr=subprocess.STDOUT)  # fmt: skip
    assert sorted(done.stdout) == sorted("an error\nx")
    path = tmp_path / "output"
    with path.open("wb") as file:
        ended(script, code, stdin=subprocess.DEVNULL, capture_output=False, stdout=file,
              stderr=file)  # fmt: skip
    assert path.read_bytes() == b"an error\n"


def test_output_larger_than_a_pipe_arrives_whole(script: Path) -> None:
    code = "import sys\nsys.stdout.write(sys.stdin.read() * 2)"
    text = "0123456789" * 50_000
    assert ended(script, code, input=text).stdout == text * 2


def test_no_program_inherits_the_pipes_of_another(script: Path) -> None:
    """The end of a pipe shows at once, although other programs still run."""
    with waiting(script) as first:
        script.write_text("import os\nprint(sorted(map(int, os.listdir('/proc/self/fd'))))")
        done = run([sys.executable, str(script)], capture_output=True, text=True, timeout=DEADLINE)
        # Three standard streams, and the folder that is listed.
        assert done.stdout == "[0, 1, 2, 3]\n"
        first.kill()
    assert first.returncode == -signal.SIGKILL


def test_a_program_has_a_session_of_its_own_and_its_own_group_is_killed(script: Path) -> None:
    code = """
        import os, signal, subprocess, sys
        assert os.getsid(0) == os.getpgid(0) == os.getpid()
        other = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
        print("ready", flush=True)
        other.wait()
    """
    with waiting(script, code) as process:
        assert os.getsid(process.pid) == process.pid != os.getsid(0)
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait(DEADLINE) == -signal.SIGKILL
        assert process.stdout is not None
        assert process.stdout.read() == ""  # the other process held the pipe, and is gone


def test_many_threads_wait_for_one_program_and_get_its_code(script: Path) -> None:
    codes: list[int] = []
    with waiting(script) as process:
        threads = [
            threading.Thread(target=lambda: codes.append(process.wait(DEADLINE))) for _ in range(5)
        ]
        threads += [threading.Thread(target=process.poll) for _ in range(5)]
        for each in threads:
            each.start()
        killer = threading.Thread(target=process.kill)
        killer.start()
        for each in (*threads, killer):
            each.join(DEADLINE)
    assert codes == [-signal.SIGKILL] * 5


def test_many_threads_start_programs_and_each_gets_its_own(script: Path) -> None:
    script.write_text("import sys\nprint(sys.argv[1])\nsys.exit(int(sys.argv[1]))")
    found: dict[int, tuple[int, str]] = {}

    def one(number: int) -> None:
        done = run([sys.executable, str(script), str(number)], capture_output=True, text=True)
        found[number] = done.returncode, done.stdout

    threads = [threading.Thread(target=one, args=(number,)) for number in range(12)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(DEADLINE)
    assert found == {number: (number, f"{number}\n") for number in range(12)}


def test_a_wait_that_is_too_short_raises_and_the_next_one_gets_the_code(script: Path) -> None:
    with waiting(script) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.terminate()
        assert process.wait(DEADLINE) == -signal.SIGTERM


def test_run_kills_a_program_that_takes_too_long_and_checks_the_code(script: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        ended(script, "import signal, sys\nsys.stdout.close()\nsignal.pause()\n", timeout=0.2)
    with pytest.raises(subprocess.CalledProcessError) as raised:
        ended(script, "print('out')\nraise SystemExit(2)", check=True)
    assert (raised.value.returncode, raised.value.stdout) == (2, "out\n")


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["-W", "error", "script.py"], {}),
        (["script.py"], {"preexec_fn": print}),
        (["script.py"], {"umask": 0o077}),
        (["script.py"], {"pass_fds": (2,)}),
        (["script.py"], {"env": {**os.environ, "TZ": "Asia/Tokyo"}}),
        (["script.py"], {"env": {**os.environ, "PYTHONWARNINGS": "error"}}),
        (["script.py"], {"env": {**os.environ, "LD_PRELOAD": "other.so"}}),
    ],
)
def test_unusual_commands_and_options_need_a_new_python(
    arguments: list[str], options: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match="cannot be forked"):
        Forked[str]([sys.executable, *arguments], **options)


def test_start_forks_a_program_or_starts_a_new_python(script: Path) -> None:
    script.write_text("import time\nprint(time.tzname)")
    with start([sys.executable, str(script)], stdout=subprocess.PIPE) as forked:
        pass
    assert isinstance(forked, Forked)
    environ = {**os.environ, "TZ": "JST-9"}
    with start(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environ
    ) as new:
        assert new.stdout is not None
        assert new.stdout.read() == "('JST', 'JST')\n"
    assert not isinstance(new, Forked)


def test_a_program_starts_with_the_modules_of_the_product(script: Path) -> None:
    code = "import sys\nprint('oplogd.cli' in sys.modules, 'tests.conftest' in sys.modules)"
    assert ended(script, code).stdout == "True False\n"


def test_a_program_imports_nothing_more_for_its_first_request(script: Path) -> None:
    code = """
        import asyncio, sys
        from oplogc.http.client import http_client
        async def ask():
            try:
                await http_client(None, trust_env=False).get(sys.argv[1])
            except Exception as error:
                return type(error).__name__
        known = set(sys.modules)
        print(asyncio.run(ask()), set(sys.modules) - known)
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        threading.Thread(target=lambda: server.accept()[0].close()).start()
        assert ended(script, code, url).stdout in (
            "RemoteProtocolError set()\n",
            "ReadError set()\n",
        )


@pytest.mark.parametrize(
    "end",
    [
        "raise SystemExit(0)",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os.kill(int(open(f'/proc/{process.pid}/stat').read().split()[3]), signal.SIGKILL)",
    ],
    ids=["end", "run is killed", "parent is killed"],
)
def test_the_end_of_a_run_ends_the_programs_that_it_has_started(tmp_path: Path, end: str) -> None:
    """Also if a process is killed. ``ready`` comes from a program, whose pipe then ends."""
    (tmp_path / "waiting.py").write_text(WAITING)
    code = f"""
        import os, signal, subprocess, sys
        from tests.kits.processes.forked import Forked
        process = Forked([sys.executable, {str(tmp_path / "waiting.py")!r}], stdout=subprocess.PIPE)
        print(process.stdout.readline(), process.pid, flush=True)
        sys.stdin.readline()
        {end}
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as test_run:  # fmt: skip
        assert test_run.stdin is not None
        assert test_run.stdout is not None
        ready, _, pid = test_run.stdout.readline().rpartition(" ")
        assert ready == "b'ready\\n'"
        program = os.pidfd_open(int(pid))
        test_run.stdin.close()
        # The parent of the forked programs has inherited this output, and ends last.
        assert test_run.stdout.read() == ""
    try:
        poll_ended(program)
    finally:
        os.close(program)


def poll_ended(descriptor: int) -> None:
    """Fail if the process of this descriptor has not ended before the deadline."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    assert poll.poll(DEADLINE * 1_000)
