"""Plays scenarios of the table: each a client as a process against a scripted server, several at a
time.
"""

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
from tests.conformance.disk import Disk
from tests.conformance.server import Progress, Request, ScriptedServer
from tests.conformance.steps import Script, Signal
from tests.kits.agents.agent import DEADLINE
from tests.kits.processes.forked import start

AT_ONCE = 8


@dataclass
class Outcome:
    """All that could be seen of one run."""

    events: list[dict[str, Any]] = field(default_factory=list)
    junk: list[str] = field(default_factory=list)
    """Lines on stdout that are no JSON object."""
    stderr: str = ""
    exit: int | None = None
    """None: the client had to be killed."""
    requests: list[Request] = field(default_factory=list)
    standing: str = ""
    """The steps at which answers stood when the client had to be killed."""
    state: str | None = None
    state_mode: int = 0
    """Permission bits of the state file."""
    others: list[str] = field(default_factory=list)
    """Names of further files beside the state file."""

    def take(self, line: bytes) -> None:
        """A line of stdout."""
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
    role: str
    """``consumer`` or ``producer``."""
    answers: Sequence[Script] = ()
    """The nth for the nth request."""
    rest: Script | None = None
    """For all further requests; None: they are answered with 410 and make the scenario fail."""
    events: Sequence[Mapping[str, Any]] = ()
    """What the client must print, exactly."""
    exit: int = 0
    url: str = "http://127.0.0.1:%HERE%"
    flags: Mapping[str, str] = field(default_factory=dict)
    password: str | None = None
    input: bytes | None = None
    """Given to stdin; None: stdin is empty."""
    input_stays_open: bool = False
    """The input does not end; once the client has read it, it gets SIGTERM."""
    says: Sequence[str] = ()
    """Patterns that stderr must match, in any case."""
    hides: Sequence[str] = ()
    """Texts that must not appear on stdout or stderr."""
    prints_taken: bool = False
    """Stdout is for ``check``; it holds no events."""
    positions: Sequence[str | None] | None = None
    """``Last-Event-ID`` of every request, in order; this also says how many requests there must be.
    """
    batches: Sequence[Sequence[str]] | None = None
    """Ids of the operations in every request."""
    gaps: Mapping[int, float] = field(default_factory=dict)
    """Seconds that must lie between the answer to a request, counted from 0, and the next request,
    at least.
    """
    prepare: Callable[[Path], object] | None = None
    """Makes the state file, or something in its place, in a folder of this run."""
    state: str | None = None
    """Content of the state file at the end; None: not looked at."""
    locks_state: bool = False
    holder: str | None = None
    """Client that has the first request, with the same flags, before the client under test starts.
    """
    small_disk: bool = False
    interim: bytes = b""
    """Sent between the head and the body of every request."""
    reads_late: float = 0.0
    """Seconds for which nothing that the client prints is read: its handler is as slow."""
    check: Callable[[Outcome], object] | None = None
    """For what the fields above cannot say."""
    only: Sequence[str] | None = None
    """Clients that the scenario is about; None: all."""
    python_once: bool = False
    """Both ways of Python share the code that the scenario is about: it is played with one of them.
    """

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
    room = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, client: str, scenario: Scenario) -> tuple[tuple[str, str], Outcome]:
        async with room:
            mine = folder / str(number)
            mine.mkdir()
            return (client, scenario.name), await play(client, scenario, go_folder, mine)

    return dict(
        await asyncio.gather(
            *(one(number, client, scenario) for number, (client, scenario) in enumerate(runs))
        )
    )


async def play(client: str, scenario: Scenario, go_folder: Path, folder: Path) -> Outcome:
    outcome = Outcome()
    progress = Progress(folder=folder)
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            ScriptedServer(scenario.answers, scenario.rest, progress, scenario.interim)
        )
        prefix: list[str] = []
        if scenario.small_disk:
            disk = await stack.enter_async_context(Disk(folder))
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
        stdin, input_end = os.pipe()
        process = start(
            [*prefix, *command(client, scenario.role, go_folder), *arguments],
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
            outcome.standing = "; ".join(
                f"request {number}: {step!r}" for number, step in server.playing.items()
            )
        finally:
            process.kill()
            process.wait()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for pipe in (stdout, stderr):  # an unread pipe would stay open
                async with asyncio.timeout(DEADLINE):
                    await pipe.read()
        outcome.requests = server.requests
        with contextlib.suppress(OSError):
            outcome.state = (progress.folder / "state").read_text()
            outcome.state_mode = (progress.folder / "state").stat().st_mode & 0o777
        with contextlib.suppress(OSError):
            outcome.others = sorted(
                path.name for path in progress.folder.iterdir() if path.name != "state"
            )
    return outcome


@contextlib.asynccontextmanager
async def _holding(
    arguments: Sequence[str], folder: Path, server: ScriptedServer
) -> AsyncIterator[None]:
    """Another client, which has connected when this begins, and is killed at the end."""
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
    await asyncio.sleep(late)  # this is the slow handler
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
