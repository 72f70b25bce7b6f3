"""Run the first screen of the README with installed packages: the demo, an agent, and curl."""

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SECONDS = 30
_VARYING = (
    (re.compile(r"\b[0-9a-f]{24}\b"), "<event id>"),
    (re.compile(r"\b[0-9]{13}\b"), "<milliseconds>"),
    (re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d\d\dZ"), "<time>"),
)


def try_first_screen(readme: Path, bin_: Path, folder: Path) -> None:
    """Raise AssertionError if a command of the README does something else than it shows."""
    snippets = re.findall(r"^```[^\n]*\n(.*?)^```$", readme.read_text(), re.DOTALL | re.MULTILINE)
    environ = {
        "HOME": str(folder),
        "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
        "PYTHONUNBUFFERED": "1",
    }
    _try_demo(folder, environ)
    (send,) = [each for each in snippets if "/dev/udp/" in each]
    (follow,) = [each for each in snippets if each.startswith("curl -sN ")]
    (shown,) = [each for each in snippets if each.startswith("id: ")]
    _try_agent(folder, environ, send, follow, shown)


def _try_demo(folder: Path, environ: dict[str, str]) -> None:
    with _started("exec python -m oplogd.demo --listen 127.0.0.1:0", folder, environ) as demo:
        said: list[str] = []
        while not said or "Ctrl-C" not in said[-1]:
            said += _lines(demo, 1)
        pasted = [line.strip() for line in said if line.startswith("    curl")]
        assert len(pasted) == 3, said
        send, *following = pasted
        _run(send, folder, environ)
        for command in following:
            with _started(f"exec {command}", folder, environ) as curl:
                assert _lines(curl, 1)[0].startswith("id: "), command


def _try_agent(folder: Path, environ: dict[str, str], send: str, follow: str, shown: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def here(command: str) -> str:
        for name in ("localhost/8042", "localhost:8042"):
            command = command.replace(name, f"127.0.0.1{name[-5]}{port}")
        return command.strip()

    environ = {**environ, "OPLOGD_LISTEN": f"127.0.0.1:{port}"}
    with _started("exec oplogd", folder, environ) as agent:
        while "store" not in _lines(agent, 1)[0]:
            pass
        commands = here(send).replace("\\\n", "").splitlines()  # one may have several lines
        for number, command in enumerate(commands, 1):
            _run(command, folder, environ)
            _wait_for(number, here("curl -s http://localhost:8042/status"), folder, environ)
        wanted = _alike(shown).splitlines()
        with _started(f"exec {here(follow)}", folder, environ) as curl:
            got = _alike("".join(_lines(curl, len(wanted)))).splitlines()
        assert got == wanted, f"the README shows\n{shown}\nthe agent sends\n{got}"
        os.killpg(agent.pid, signal.SIGINT)
        assert agent.wait(SECONDS) == 0


def _wait_for(count: int, command: str, folder: Path, environ: dict[str, str]) -> None:
    deadline = time.monotonic() + SECONDS
    while f'"events_ingested":{count},' not in _run(command, folder, environ).replace(" ", ""):
        assert time.monotonic() < deadline, f"the agent did not store operation {count}"
        time.sleep(0.01)


def _alike(text: str) -> str:
    """Replace everything that differs from run to run."""
    for pattern, name in _VARYING:
        text = pattern.sub(name, text)
    return "\n".join(line.rstrip() for line in text.splitlines())


def _run(command: str, folder: Path, environ: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-euc", command],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@contextmanager
def _started(
    command: str, folder: Path, environ: dict[str, str]
) -> Iterator["subprocess.Popen[str]"]:
    """Run a command in a process group of its own, as a terminal does."""
    with subprocess.Popen(
        ["bash", "-c", command],
        cwd=folder,
        env=environ,
        text=True,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # A shell starts background processes with SIGINT ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def _lines(process: "subprocess.Popen[str]", count: int) -> list[str]:
    assert process.stdout is not None
    found = [process.stdout.readline() for _ in range(count)]
    assert all(found), f"the program ended after {found}"
    return found
