"""Scenarios, and the processes of the clients that play them against a scripted server."""

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import struct
import subprocess
import termios
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.conformance.clients import ENVIRONMENT, EVERY_CLIENT, command
from tests.conformance.node_host import Hosted, NodeHost
from tests.conformance.server import Progress, Request, ScriptedServer
from tests.conformance.steps import Script, Signal
from tests.kits.agents.agent import DEADLINE
from tests.kits.processes.disk import SmallDisk
from tests.kits.processes.forked import start

AT_ONCE = 8
# Runs that wait for a time-out, and compute little.
WAITING_AT_ONCE = 24


@dataclass
class Outcome:
    """All visible effects of one run.

    ``junk``: lines of stdout that are not JSON objects. ``exit``: None if the client was killed at
    the deadline, ``standing`` are the current steps of the answers then. ``state_mode``: permission
    bits of the state file. ``others``: names of further files beside it.
    """

    events: list[dict[str, Any]] = field(default_factory=list)
    junk: list[str] = field(default_factory=list)
    stderr: str = ""
    exit: int | None = None
    requests: list[Request] = field(default_factory=list)
    standing: str = ""
    state: str | None = None
    state_mode: int = 0
    others: list[str] = field(default_factory=list)

    def take(self, line: bytes) -> None:
        """Add a line of stdout."""
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if isinstance(event, dict):
            self.events.append(event)
        else:
            self.junk.append(line.decode(errors="replace"))

    def __str__(self) -> str:
        lines = [
            f"exit code {self.exit}"
            if self.exit is not None
            else f"killed; the server stood at: {self.standing}"
        ]
        lines += [f"printed: {json.dumps(event)[:300]}" for event in self.events[:20]]
        lines += [f"no JSON: {line[:300]}" for line in self.junk[:5]]
        for request in self.requests[:20]:
            position = request.headers.get("last-event-id")
            lines.append(
                f"request: {request.port} {request.method} {request.target[:80]} {position} "
                f"{request.body[:200]!r}"
            )
        return "\n".join([*lines, f"state file: {self.state!r}", "stderr:", self.stderr[:3000]])


@dataclass(frozen=True)
class Scenario:
    """A script, flags, and the one outcome that every client must show."""

    name: str
    role: str  # consumer or producer
    # The nth request gets the nth answer, and all later ones get ``rest``. None: 410, which fails.
    answers: Sequence[Script] = ()
    rest: Script | None = None
    # Exactly the lines that the client prints.
    events: Sequence[Mapping[str, Any]] = ()
    exit: int = 0
    url: str = "http://127.0.0.1:%HERE%"
    flags: Mapping[str, str] = field(default_factory=dict)
    password: str | None = None
    # Input of the client. If it stays open, SIGTERM follows once the client has read it.
    input: bytes | None = None
    input_stays_open: bool = False
    # Patterns in stderr, in any case, and texts that stdout and stderr must not show.
    says: Sequence[str] = ()
    hides: Sequence[str] = ()
    # Stdout has no events. ``check`` reads it.
    prints_taken: bool = False
    # Last-Event-ID of each request, and ids of the operations in each request.
    positions: Sequence[str | None] | None = None
    batches: Sequence[Sequence[str]] | None = None
    # Number of a request -> minimum seconds between its answer and the next request.
    gaps: Mapping[int, float] = field(default_factory=dict)
    # Prepares the folder of the state file.
    prepare: Callable[[Path], object] | None = None
    # Content of the state file at the end. None: any.
    state: str | None = None
    locks_state: bool = False
    # A client with the same flags that sends the first request, before the tested client starts.
    holder: str | None = None
    small_disk: bool = False
    # Sent between the head and the body of each request.
    interim: bytes = b""
    # Seconds during which stdout is not read, as with a slow handler.
    reads_late: float = 0.0
    check: Callable[[Outcome], object] | None = None
    # The clients that play it. None: all.
    only: Sequence[str] | None = None
    # Both ways of Python share the tested code, so only one of them plays it.
    python_once: bool = False

    def __str__(self) -> str:
        return self.name

    def clients(self) -> list[str]:
        """Return the clients that play it."""
        return [
            client
            for client in self.only or EVERY_CLIENT
            if not (self.python_once and client == "python-async")
        ]


async def play_all(
    runs: Sequence[tuple[str, Scenario]], go_folder: Path, folder: Path
) -> dict[tuple[str, str], Outcome]:
    room, waiting_room = asyncio.Semaphore(AT_ONCE), asyncio.Semaphore(WAITING_AT_ONCE)
    stack = contextlib.AsyncExitStack()
    host: NodeHost | None = None

    async def one(number: int, client: str, scenario: Scenario) -> tuple[tuple[str, str], Outcome]:
        async with waiting_room if _waits(scenario) else room:
            mine = folder / str(number)
            mine.mkdir()
            hosted = host if _is_hosted(client, scenario) else None
            return (client, scenario.name), await play(client, scenario, go_folder, mine, hosted)

    async with stack:
        if any(_is_hosted(client, scenario) for client, scenario in runs):
            host = await stack.enter_async_context(NodeHost())
        return dict(
            await asyncio.gather(
                *(one(number, client, scenario) for number, (client, scenario) in enumerate(runs))
            )
        )


def _waits(scenario: Scenario) -> bool:
    return not scenario.flags.keys().isdisjoint(("timeout", "heartbeat-timeout"))


def _is_hosted(client: str, scenario: Scenario) -> bool:
    """Return whether one process plays this run with others: it is not about a process."""
    steps = [step for script in scenario.answers for step in script]
    about_process = scenario.small_disk or scenario.reads_late or scenario.holder
    signalled = scenario.input_stays_open or any(isinstance(step, Signal) for step in steps)
    return client == "javascript" and not (about_process or signalled)


async def play(
    client: str, scenario: Scenario, go_folder: Path, folder: Path, host: NodeHost | None
) -> Outcome:
    outcome = Outcome()
    progress = Progress(folder=folder)
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            ScriptedServer(scenario.answers, scenario.rest, progress, scenario.interim)
        )
        prefix: list[str] = []
        if scenario.small_disk:
            disk = stack.enter_context(SmallDisk(folder, "size=16k"))
            prefix, progress.folder = disk.prefix, disk.folder
        if scenario.prepare:
            scenario.prepare(progress.folder)
        if scenario.locks_state:
            lock = stack.enter_context((folder / "state.lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        url = server.filled_in(scenario.url)
        arguments = [
            f"--{name}={value}" if value else f"--{name}"
            for name, value in _flags(scenario, url).items()
        ]
        environment = {
            **ENVIRONMENT,
            **({"OPLOG_PASSWORD": scenario.password} if scenario.password else {}),
        }
        if scenario.holder:
            holder = [*command(scenario.holder, scenario.role, go_folder), *arguments]
            await stack.enter_async_context(_holding(holder, folder, server))
        if host:
            given = scenario.input or b""
            run = host.start(scenario.role, arguments, folder, scenario.password, given)
            await _follow(run, outcome, progress, server)
        else:
            whole = [*prefix, *command(client, scenario.role, go_folder), *arguments]
            await _run(whole, environment, folder, scenario, outcome, progress, server)
        outcome.requests = server.requests
        with contextlib.suppress(OSError):
            outcome.state = (progress.folder / "state").read_text()
            outcome.state_mode = (progress.folder / "state").stat().st_mode & 0o777
        with contextlib.suppress(OSError):
            outcome.others = sorted(
                path.name for path in progress.folder.iterdir() if path.name != "state"
            )
    return outcome


async def _follow(
    run: Hosted, outcome: Outcome, progress: Progress, server: ScriptedServer
) -> None:
    try:
        async with asyncio.timeout(DEADLINE):
            await asyncio.gather(
                _read_stdout(run.stdout, outcome, progress, 0),
                _read_stderr(run.stderr, outcome, progress),
            )
            outcome.exit = await run.exit
    except TimeoutError:
        outcome.standing = server.standing()


async def _run(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    scenario: Scenario,
    outcome: Outcome,
    progress: Progress,
    server: ScriptedServer,
) -> None:
    stdin, input_end = os.pipe()
    process = start(
        command,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd=folder,
    )
    os.close(stdin)
    assert process.stdout
    assert process.stderr
    stdout, stderr = await _reader(process.stdout), await _reader(process.stderr)
    async with progress.changed:
        progress.signal = process.send_signal
        progress.changed.notify_all()
    tasks = [
        asyncio.create_task(_read_stdout(stdout, outcome, progress, scenario.reads_late)),
        asyncio.create_task(_read_stderr(stderr, outcome, progress)),
        asyncio.create_task(_write_stdin(process, input_end, scenario)),
    ]
    try:
        async with asyncio.timeout(DEADLINE):
            await asyncio.gather(*tasks[:2])
            outcome.exit = await asyncio.to_thread(process.wait)
    except TimeoutError:
        outcome.standing = server.standing()
    finally:
        process.kill()
        process.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for pipe in (stdout, stderr):  # an unread pipe would stay open
            async with asyncio.timeout(DEADLINE):
                await pipe.read()


@contextlib.asynccontextmanager
async def _holding(
    arguments: Sequence[str], folder: Path, server: ScriptedServer
) -> AsyncIterator[None]:
    """Run another client that is connected. Kill it at the end."""
    nothing = subprocess.DEVNULL
    process = start(
        arguments, stdin=nothing, stdout=nothing, stderr=nothing, env=ENVIRONMENT, cwd=folder
    )
    try:
        async with asyncio.timeout(DEADLINE):
            while not server.requests:
                await asyncio.sleep(0.001)
        yield
    finally:
        process.kill()
        process.wait()


async def _reader(pipe: IO[bytes]) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader


_DEFAULT_FLAGS: Mapping[str, Mapping[str, str]] = {
    "consumer": {"json": "", "backoff": "0.02,0.08", "timeout": "20", "heartbeat-timeout": "20"},
    "producer": {"backoff": "0.02,0.08", "timeout": "20"},
}


def _flags(scenario: Scenario, url: str) -> dict[str, str]:
    flags = {"url": url, **_DEFAULT_FLAGS[scenario.role], **scenario.flags}
    signalled = any(isinstance(step, Signal) for script in scenario.answers for step in script)
    operations = sum("object" in event for event in scenario.events)
    if scenario.role == "consumer" and scenario.exit == 0 and operations and not signalled:
        flags.setdefault("count", str(operations))
    return flags


async def _read_stdout(
    stdout: asyncio.StreamReader, outcome: Outcome, progress: Progress, late: float
) -> None:
    await asyncio.sleep(late)  # like a slow handler
    partial = b""
    while raw := await stdout.read(65536):
        *lines, partial = (partial + raw).split(b"\n")
        for line in lines:
            outcome.take(line)
        async with progress.changed:
            progress.printed = len(outcome.events)
            progress.changed.notify_all()
    if partial:
        outcome.junk.append(partial.decode(errors="replace"))


async def _read_stderr(stderr: asyncio.StreamReader, outcome: Outcome, progress: Progress) -> None:
    while raw := await stderr.read(65536):
        outcome.stderr += raw.decode(errors="replace")
        async with progress.changed:
            progress.stderr = outcome.stderr
            progress.changed.notify_all()


async def _write_stdin(process: "subprocess.Popen[bytes]", pipe: int, scenario: Scenario) -> None:
    try:
        os.set_blocking(pipe, False)
        left = scenario.input or b""
        while left:
            with contextlib.suppress(BlockingIOError):
                left = left[os.write(pipe, left) :]
            await asyncio.sleep(0 if left else 0.001)
        if scenario.input_stays_open:
            while _bytes_in(pipe):
                await asyncio.sleep(0.001)
            process.send_signal(signal.SIGTERM)
            await asyncio.Event().wait()
    except BrokenPipeError:
        return  # the client has ended before it read all
    finally:
        os.close(pipe)


def _bytes_in(pipe: int) -> int:
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0])
