"""Checks of passwords that wait for their turn, and requests that share one."""

import asyncio
import threading
from typing import Any

import pytest

from oplogd.web.access.carried import Given
from oplogd.web.access.checks import Checks
from oplogd.web.http.problem import Problem


class Judge:
    """Stands for credentials. ``free``: not set while its checks wait."""

    def __init__(self) -> None:
        self.checked: list[bytes] = []
        self.free = threading.Event()

    def check(self, _: str, password: bytes) -> None:
        self.free.wait(10)
        self.checked.append(password)

    def keep(self, attempt: bytes, caller: object) -> None:
        """Forget it."""


def run(checks: Checks, judge: Any, attempt: bytes, most: int = 100) -> "asyncio.Task[object]":
    def allow() -> None:
        if len(judge.checked) >= most:
            raise Problem(429, "too many")

    return asyncio.create_task(checks.run(judge, attempt, Given("ada", attempt), allow))


async def test_guesses_that_fail_while_others_wait_for_their_check_count() -> None:
    checks, judge = Checks(), Judge()
    tasks = [run(checks, judge, b"%d" % number, most=3) for number in range(20)]
    await asyncio.sleep(0)
    judge.free.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    refused = [each for each in outcomes if isinstance(each, Problem)]
    assert 3 <= len(judge.checked) <= 4, "two at a time"
    assert len(refused) == 20 - len(judge.checked)


async def test_a_guess_that_may_not_be_checked_does_not_wait() -> None:
    checks, judge = Checks(), Judge()
    waiting = run(checks, judge, b"a")
    await asyncio.sleep(0)
    with pytest.raises(Problem):
        await run(checks, judge, b"a", most=0)
    judge.free.set()
    await waiting


async def test_a_client_that_leaves_takes_the_check_from_no_other() -> None:
    checks, judge = Checks(), Judge()
    leaving, staying = (run(checks, judge, b"a") for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait({leaving})
    judge.free.set()
    assert await staying is None
    assert judge.checked == [b"a"]


async def test_new_credentials_check_for_themselves() -> None:
    checks, judges = Checks(), (Judge(), Judge())
    tasks = [run(checks, judge, b"a") for judge in judges]
    await asyncio.sleep(0)
    for judge in judges:
        judge.free.set()
    await asyncio.gather(*tasks)
    assert [judge.checked for judge in judges] == [[b"a"], [b"a"]]
