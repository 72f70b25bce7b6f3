"""The parent of forked Python programs: ``python -m tests.kits.processes.parent DESCRIPTOR``.

It has imported the programs of this project, so a fork of it starts in a twentieth of the time of
a new Python. It has one thread and no open event loop, connection or database, because a fork
copies none of them properly. ``forked.py`` sends the requests over the socket ``DESCRIPTOR``. When
the socket ends, the parent kills the programs that still run, and ends.
"""

import asyncio
import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import sys
import threading
import time
import types
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

MAX_REQUEST = 1 << 18
# Standard input, output and error, and the pipe for the process id and the exit code.
DESCRIPTORS = 4
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
PACKAGES = ("oplogd", "oplogc", "oplog_kit", "oplog_relay", "oplog_pipe")
# Modules that programs, scripts of tests and libraries import when they run.
_LATE = ("argparse", "click._textwrap", "encodings.unicode_escape", "encodings.utf_8_sig", "uvloop")


class Program(NamedTuple):
    """``option`` -m: ``target`` is a module. -c: it is code. Empty: the path of a script.

    ``environ``: all variables.
    """

    option: str
    target: str
    arguments: list[str]
    cwd: str | None
    environ: dict[str, str]


def preload() -> None:
    """Import the programs and all that they import late, and prepare them for tests."""
    for name in PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    for name in _LATE:
        importlib.import_module(name)

    from oplogd.store.mongo.log import tail
    from oplogd.store.mongo.topics import news

    # Instead of 20 ms: an idle agent on MongoDB would take 3.5 % of a core, its server up to 19 %.
    tail.POLL_SECONDS = news._PACE_SECONDS = 0.06
    _share_dependencies()
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        loop.run_until_complete(_fill_caches())


def _share_dependencies() -> None:
    """Let the apps of all forks share what FastAPI finds out about the parameters of endpoints.

    A fork would spend a third of its start on that.
    """
    from fastapi.dependencies import utils

    find_out: Callable[..., Any] = utils.analyze_param
    found: dict[object, Any] = {}

    def analyze(*, param_name: str, annotation: Any, value: Any, path_param_names: set[str]) -> Any:
        given = {"param_name": param_name, "annotation": annotation, "value": value}
        if not isinstance(value, type | str | int | None):
            return find_out(**given, path_param_names=path_param_names)
        key = (param_name, id(annotation), type(value), repr(value), *sorted(path_param_names))
        if key not in found:  # it also holds the annotation: its id is not used again
            found[key] = find_out(**given, path_param_names=path_param_names), annotation
        return found[key][0]

    utils.analyze_param = analyze


async def _fill_caches() -> None:
    """Build an agent that opens nothing, and send a request with the client.

    The expressions of the agent's paths stay compiled. The client's libraries import half of their
    modules at the first request. All clients of a process share a TLS context.
    """
    from oplogc.http.client import http_client
    from oplogd import agent, http_server, server
    from oplogd.config.command import parse

    settings = parse([], {})
    http_server.HttpServer(settings, agent.Agent(settings, server.make_store(settings), ()))
    listener = await asyncio.start_server(_answer, "127.0.0.1", 0)
    async with listener, http_client(None, trust_env=False) as client:
        port = listener.sockets[0].getsockname()[1]
        (await client.get(f"http://127.0.0.1:{port}")).raise_for_status()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    writer.close()


class Parent:
    def __init__(self, requests: socket.socket, has_sessions: bool = True) -> None:
        """``has_sessions``: each program begins a session."""
        self._requests = requests
        self._has_sessions = has_sessions
        self._selector = selectors.DefaultSelector()
        self._selector.register(requests, selectors.EVENT_READ)
        # Descriptor of a running program -> its id, and the pipe for its exit code.
        self._running: dict[int, tuple[int, int]] = {}

    def serve(self) -> Program | None:
        """Fork for each request. Return the program in the child, and None at the end."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is not self._requests:
                    self._reap(key.fd)
                    continue
                raw, descriptors, _, _ = socket.recv_fds(self._requests, MAX_REQUEST, DESCRIPTORS)
                if not raw:
                    self._kill_all()
                    return None
                if program := self._fork(Program(**json.loads(raw)), descriptors):
                    return program

    def _fork(self, program: Program, descriptors: list[int]) -> Program | None:
        *standard, status = descriptors
        assert threading.active_count() == 1
        pid = os.fork()
        if pid == 0:
            self._become_child(standard, status)
            return program
        for each in standard:
            os.close(each)
        descriptor = os.pidfd_open(pid)
        self._running[descriptor] = (pid, status)
        self._selector.register(descriptor, selectors.EVENT_READ)
        _tell(status, pid)
        return None

    def _become_child(self, standard: list[int], status: int) -> None:
        if self._has_sessions:
            os.setsid()
        end_with_starter()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for target, each in enumerate(standard):
            os.dup2(each, target)
        self._selector.close()
        self._requests.close()
        others = (each for pair in self._running.items() for each in (pair[0], pair[1][1]))
        for each in (*standard, status, *others):
            os.close(each)
        self._running.clear()

    def _reap(self, descriptor: int) -> None:
        self._selector.unregister(descriptor)
        os.close(descriptor)
        pid, status = self._running.pop(descriptor)
        _tell(status, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        os.close(status)

    def _kill_all(self) -> None:
        for descriptor in list(self._running):
            os.kill(self._running[descriptor][0], signal.SIGKILL)
            self._reap(descriptor)


def end_with_starter() -> None:
    """Let the kernel kill this process when the process that started it ends or is killed."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _tell(pipe: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # the test has ended
        os.write(pipe, b"%d\n" % number)


def run(program: Program) -> None:
    """Run a program in this process, as a new Python would."""
    if program.cwd is not None:
        os.chdir(program.cwd)
    os.environ.clear()
    os.environ.update(program.environ)
    time.tzset()
    sys.argv = [program.target, *program.arguments]
    sys.path[0] = os.getcwd() if program.option else os.path.dirname(program.target)
    _open_standard_streams()
    if program.option == "-c":
        sys.argv[0] = "-c"
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(program.target, "<string>", "exec"), main.__dict__)
    elif program.option == "-m":
        if not hasattr(sys.modules.get(program.target), "__path__"):
            sys.modules.pop(program.target, None)  # runpy warns of a module that is imported
        runpy.run_module(program.target, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(program.target, run_name="__main__")


def run_to_end(program: Program) -> NoReturn:
    """Run a program and end the process as Python does, except that no object is freed.

    Python would free the objects of all preloaded modules. That takes ten times as long as a fork.
    An error that nothing handles still ends Python itself.
    """
    code: object = None
    try:
        run(program)
    except SystemExit as end:
        code = end.code
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined] # joins the threads
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        sys.exit(code)  # Python tells the failure
    os._exit(code or 0)


def _open_standard_streams() -> None:
    """Replace the standard streams: these have the state of the parent's."""

    def text(descriptor: int, mode: str, **options: Any) -> io.TextIOWrapper:
        raw = open(descriptor, mode, closefd=False)  # noqa: SIM115 - they stay open
        return io.TextIOWrapper(raw, encoding="utf-8", **options)

    sys.stdin = sys.__stdin__ = text(0, "rb")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = text(1, "wb", line_buffering=os.isatty(1))  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = text(  # type: ignore[misc]
        2, "wb", line_buffering=True, errors="backslashreplace"
    )


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the tests, and they end the parent
    preload()
    gc.collect()
    gc.freeze()  # a collection in a child would copy the pages of all these objects
    requests = socket.socket(fileno=int(sys.argv[1]))
    program = Parent(requests).serve()
    if program is not None:
        run_to_end(program)


if __name__ == "__main__":
    main()
