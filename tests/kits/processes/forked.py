"""Python programs as forks of a process that has imported them: see ``parent.py``.

``Forked`` and ``run`` are those of ``subprocess`` for the commands ``python -m MODULE …``,
``python -c CODE …`` and ``python SCRIPT …``. A test of the start itself, of memory, CPU time,
limits or the environment of Python (PYTHON…, LD_PRELOAD, TZ) starts a real Python with
``subprocess``.

A fork differs from a new Python in a few ways. It does not inherit the umask, the limits and the
ignored signals of a test. All forks share one hash seed. A missing script ends it with code 1.
Objects are not freed at its end. Agents look every 60 ms for what others wrote to MongoDB, instead
of every 20 ms. Its standard streams are strict UTF-8.
"""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, AnyStr

from tests.kits.paths import ROOT
from tests.kits.processes.parent import MAX_REQUEST, Program

# Options of Python before a program.
_OPTIONS = ("-m", "-c")
_OPTIONS_OF_NEW = {"preexec_fn", "user", "group", "umask", "pass_fds", "shell", "executable"}
# Beginnings of the names of variables.
_VARIABLES_OF_NEW = ("PYTHON", "LD_", "TZ", "LANG", "LC_", "FAKETIME")

# Variables of the parent: those of the process that begins the run.
_ENVIRON = dict(os.environ)

_lock = threading.Lock()
_parent: "tuple[subprocess.Popen[bytes], socket.socket] | None" = None


class Forked(subprocess.Popen[AnyStr]):
    """A process of ``subprocess`` that the parent of forked programs starts and reaps.

    It always has a session of its own. Raises ValueError for other commands and for options of
    ``subprocess`` that a fork does not have.
    """

    _status = -1  # the pipe of the exit code

    def __init__(self, args: Sequence[str | os.PathLike[str]], **options: Any) -> None:
        if reason := _needs_new(args, options):
            raise ValueError(f"this program cannot be forked: {reason}")
        super().__init__([os.fspath(each) for each in args], **options)

    # These are the parts of Popen that fork and wait. They are not public, but they are the
    # same from Python 3.11 to 3.14. tests/unit/kits/test_forked.py notices a change.

    def _execute_child(self, args: list[str], *options: Any) -> None:
        cwd, env = options[4:6]
        pipes = options[9:15]
        sys.audit("subprocess.Popen", args[0], args, cwd, env)
        program = _program(args, cwd, os.environ if env is None else env)
        self._status, write_end = os.pipe()
        try:
            for_child: Sequence[int] = (pipes[0], pipes[3], pipes[5])
            standard: list[int] = [at if each == -1 else each for at, each in enumerate(for_child)]
            _ask(program, [*standard, write_end])
        finally:
            os.close(write_end)
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]
        told = self._told()
        if not told:
            raise ChildProcessError("the parent of the forked programs was killed")
        self.pid = int(told)
        self._child_created = True

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        return self._wait(0)

    def _wait(self, timeout: float | None) -> int | None:
        if self.returncode is None and self._ends_within(timeout):
            with self._waitpid_lock:  # type: ignore[attr-defined]
                if self.returncode is None:  # no other thread was faster
                    # If the parent was killed, the kernel has killed its programs.
                    self.returncode = int(self._told() or -signal.SIGKILL)
                    os.close(self._status)
        if self.returncode is None and timeout:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def _ends_within(self, timeout: float | None) -> bool:
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        return bool(poll.poll(None if timeout is None else max(0.0, timeout) * 1_000))

    def _told(self) -> bytes:
        """Return the next number of the parent: the process id, then the exit code.

        Empty if the parent was killed.
        """
        line = b""
        while not line.endswith(b"\n"):
            byte = os.read(self._status, 1)
            if not byte:
                return b""
            line += byte
        return line


def run(
    args: Sequence[str | os.PathLike[str]],
    *,
    input: AnyStr | None = None,
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> "subprocess.CompletedProcess[AnyStr]":
    """Call ``subprocess.run`` with a fork."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options["stdout"] = options["stderr"] = subprocess.PIPE
    with Forked[AnyStr](args, **options) as process:
        try:
            out, err = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def start(args: Sequence[str | os.PathLike[str]], **options: Any) -> "subprocess.Popen[Any]":
    """Fork a program, or start a new process if a fork cannot have these options."""
    make = subprocess.Popen if _needs_new(args, options) else Forked
    return make(args, **options)


def _needs_new(args: Sequence[str | os.PathLike[str]], options: Mapping[str, Any]) -> str | None:
    """Return the reason why a program cannot be forked."""
    first = os.fspath(args[1])
    if os.fspath(args[0]) != sys.executable or (first.startswith("-") and first not in _OPTIONS):
        return "neither `python -m MODULE` nor `python -c CODE` nor `python SCRIPT`"
    if refused := options.keys() & _OPTIONS_OF_NEW:
        return f"a fork has no option {', '.join(sorted(refused))}"
    environ = os.environ if options.get("env") is None else options["env"]
    for name in {*environ, *_ENVIRON}:
        if name.startswith(_VARIABLES_OF_NEW) and environ.get(name) != _ENVIRON.get(name):
            return f"Python and its libraries read {name} at their start"
    texts = [*environ.keys(), *environ.values(), *(os.fspath(each) for each in args)]
    if sum(map(len, texts)) > MAX_REQUEST // 8:  # JSON writes some characters as six
        return "its request is too large"
    return None


def _program(args: list[str], cwd: Any, environ: Mapping[str, str]) -> Program:
    rest = args[1:]
    option = rest[0] if rest[0] in _OPTIONS else ""
    target, *arguments = rest[bool(option) :]
    folder = None if cwd is None else os.fspath(cwd)
    return Program(option, target, arguments, folder or os.getcwd(), dict(environ))


def _ask(program: Program, descriptors: list[int]) -> None:
    raw = json.dumps(program._asdict()).encode()
    assert len(raw) < MAX_REQUEST
    with _lock:
        socket.send_fds(_requests(), [raw], descriptors)


def _requests() -> socket.socket:
    """Return the socket of the parent. Start a parent if there is none, or it was killed."""
    global _parent
    if _parent is not None and _parent[0].poll() is not None:
        _parent[1].close()
        _parent = None
    if _parent is None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.kits.processes.parent", str(theirs.fileno())],
                cwd=ROOT,
                env=_ENVIRON,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_REQUEST)
        _parent = process, ours
    return _parent[1]


@atexit.register
def _end() -> None:
    if _parent is not None:
        process, requests = _parent
        requests.close()
        process.wait(30)
