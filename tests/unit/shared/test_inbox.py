"""Messages between processes: questions, notices, silent processes and full inboxes."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import pytest

from oplogd.shared import inbox as inbox_module
from oplogd.shared.inbox import Inbox, Mailboxes
from tests.kits.clock.virtual import VirtualClock
from tests.kits.processes.logged import DEADLINE

LONG = bytes(3_000_000)
KIND = "echo"


async def echo(question: bytes) -> bytes:
    return question


@pytest.fixture
def mailboxes() -> Iterator[Mailboxes]:
    boxes = Mailboxes(3)
    yield boxes
    boxes.close()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def inboxes(mailboxes: Mailboxes, clock: VirtualClock) -> AsyncIterator[list[Inbox]]:
    made = [Inbox(mailboxes, number, clock.clock) for number in range(3)]
    for each in made:
        each.answer(KIND, echo)
        each.start()
    yield made
    for each in made:
        await each.stop()


def files_of_messages() -> int:
    """The number of files in memory that are open, and not of descriptors.

    Descriptors of other tests may be closed meanwhile.
    """
    found = 0
    for each in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found += "/memfd:message" in os.readlink(f"/proc/self/fd/{each}")
    return found


async def turns() -> None:
    """Let the loop read sockets and run tasks a few times."""
    for _ in range(10):
        await asyncio.sleep(0)


async def silence(clock: VirtualClock, asking: "asyncio.Task[dict[int, bytes]]") -> None:
    await turns()
    assert not asking.done()
    clock.move(inbox_module.ANSWER_SECONDS)


@pytest.mark.parametrize("body", [b"", b"short", LONG], ids=["empty", "short", "long"])
async def test_every_other_process_answers(inboxes: list[Inbox], body: bytes) -> None:
    before = files_of_messages()
    assert await inboxes[1].ask(KIND, body) == {0: body, 2: body}
    assert await inboxes[0].ask(KIND, body, [2]) == {2: body}
    assert files_of_messages() == before


async def test_answers_of_several_questions_are_told_apart(inboxes: list[Inbox]) -> None:
    bodies = [b"%d" % number for number in range(20)]
    answers = await asyncio.gather(*(inboxes[0].ask(KIND, body) for body in bodies))
    assert answers == [{1: body, 2: body} for body in bodies]


async def test_a_silent_process_is_missing_and_its_late_answer_is_dropped(
    inboxes: list[Inbox], clock: VirtualClock
) -> None:
    before = files_of_messages()
    await inboxes[2].stop()
    asking = asyncio.create_task(inboxes[0].ask(KIND, LONG))
    await silence(clock, asking)
    assert await asking == {1: LONG}
    inboxes[2].start()  # it finds the old question, and answers
    assert await inboxes[0].ask(KIND, b"next") == {1: b"next", 2: b"next"}
    assert files_of_messages() == before


async def test_an_answer_to_an_earlier_process_in_the_same_place_does_not_fit(
    mailboxes: Mailboxes, inboxes: list[Inbox], clock: VirtualClock
) -> None:
    gate = asyncio.Event()

    async def slow(question: bytes) -> bytes:
        await gate.wait()
        return b"to " + question

    inboxes[1].answer("slow", slow)
    asking = asyncio.create_task(inboxes[0].ask("slow", b"earlier", [1]))
    await turns()
    asking.cancel()
    await inboxes[0].stop()
    later = Inbox(mailboxes, 0, clock.clock)
    later.start()
    asking = asyncio.create_task(later.ask("slow", b"later", [1]))
    await turns()
    gate.set()
    assert await asking == {1: b"to later"}
    await later.stop()


async def test_a_failing_answer_leaves_the_process_silent_and_alive(
    inboxes: list[Inbox], clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: bytes) -> bytes:
        raise ValueError("broken")

    inboxes[1].answer("broken", fail)
    asking = asyncio.create_task(inboxes[0].ask("broken", b"", [1]))
    await silence(clock, asking)
    assert await asking == {}
    assert caplog.messages == ["a question of another process failed"]
    assert await inboxes[0].ask(KIND, b"next", [1]) == {1: b"next"}


async def test_questions_beyond_those_answered_at_a_time_are_dropped(
    inboxes: list[Inbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox_module, "_MAX_ANSWERING", 2)
    begun, gate = 0, asyncio.Event()

    async def slow(question: bytes) -> bytes:
        nonlocal begun
        begun += 1
        await gate.wait()
        return question

    inboxes[1].answer("slow", slow)
    asking = [asyncio.create_task(inboxes[0].ask("slow", b"", [1])) for _ in range(3)]
    await turns()
    assert begun == 2
    gate.set()
    await turns()
    assert [each.done() for each in asking] == [True, True, False]
    assert await inboxes[0].ask("slow", b"next", [1]) == {1: b"next"}
    asking[2].cancel()


async def test_a_full_inbox_takes_no_room_and_delays_nobody(
    inboxes: list[Inbox], mailboxes: Mailboxes
) -> None:
    await inboxes[2].stop()
    before = files_of_messages()
    heard = 0

    def hear(sender: int, body: bytes) -> None:
        nonlocal heard
        assert (sender, body) == (0, LONG)
        heard += 1

    inboxes[1].on("guess", hear)
    sent = 0
    while inboxes[0]._send(2, inbox_module._Message("notice", "guess", 0, 0, b"x")):
        sent += 1
    assert sent > 0
    for _ in range(5):
        inboxes[0].broadcast("guess", LONG)  # the other one hears of it
        await turns()
    assert heard == 5
    mailboxes.empty(2)
    assert files_of_messages() == before


def fill(inbox: Inbox, other: int) -> None:
    while inbox._send(other, inbox_module._Message("notice", "guess", 0, 0, b"x")):
        pass


async def test_a_question_to_a_full_inbox_waits_for_room(
    inboxes: list[Inbox], mailboxes: Mailboxes
) -> None:
    await inboxes[1].stop()
    fill(inboxes[2], 1)
    asking = asyncio.create_task(inboxes[0].ask(KIND, b"late", [1]))
    await turns()
    mailboxes.empty(1)
    inboxes[1].start()
    assert await asking == {1: b"late"}


async def test_an_answer_to_a_full_inbox_waits_for_room(inboxes: list[Inbox]) -> None:
    await inboxes[0].stop()
    asking = asyncio.create_task(inboxes[0].ask(KIND, b"late", [1]))
    fill(inboxes[2], 0)
    await turns()
    inboxes[0].start()
    assert await asking == {1: b"late"}


async def test_alone_nothing_is_asked(clock: VirtualClock) -> None:
    alone = Inbox(Mailboxes(1), 0, clock.clock)
    alone.start()
    alone.broadcast("guess", b"")
    assert await alone.ask(KIND) == {}
    await alone.stop()


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_answers_and_is_replaced_in_its_place(mailboxes: Mailboxes) -> None:
    def fork() -> int:
        if not (pid := os.fork()):
            try:
                asyncio.run(asyncio.wait_for(serve(), DEADLINE))
            finally:
                os._exit(0)
        return pid

    async def serve() -> None:
        own, ended = Inbox(mailboxes, 1), asyncio.Event()

        async def pid(_: bytes) -> bytes:
            return b"%d" % os.getpid() + LONG

        own.answer("pid", pid)
        own.on("end", lambda sender, body: ended.set())
        own.start()
        await ended.wait()

    async def talk(pid: int, *, end: bool) -> None:
        own = Inbox(mailboxes, 0)
        own.start()
        assert await own.ask("pid", b"", [1], DEADLINE) == {1: b"%d" % pid + LONG}
        if end:
            own.broadcast("end", b"")
        await own.stop()

    first = fork()
    asyncio.run(talk(first, end=False))
    os.kill(first, 9)
    os.waitpid(first, 0)
    second = fork()
    asyncio.run(talk(second, end=True))
    assert os.waitstatus_to_exitcode(os.waitpid(second, 0)[1]) == 0
