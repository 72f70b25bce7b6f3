"""Calls that share a work, one round at a time."""

import asyncio

import pytest

from oplogd.web.figures.rounds import Rounds


class Work:
    """Returns the number of its call when ``gate`` is opened for it."""

    def __init__(self) -> None:
        self.begun = 0
        self.gate = asyncio.Semaphore(0)

    async def __call__(self) -> int:
        self.begun += 1
        number = self.begun
        await self.gate.acquire()
        if number == 3:
            raise ValueError("broken")
        return number


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_calls_during_a_round_share_the_next_one_which_begins_after_it() -> None:
    work = Work()
    rounds = Rounds(work)
    first = [asyncio.create_task(rounds()) for _ in range(3)]
    await turns()
    second = [asyncio.create_task(rounds()) for _ in range(3)]
    await turns()
    assert work.begun == 1
    second[0].cancel()
    work.gate.release()
    assert await asyncio.gather(*first) == [1, 1, 1]
    await turns()
    assert work.begun == 2
    third = asyncio.create_task(rounds())
    work.gate.release()
    assert await asyncio.gather(*second[1:]) == [2, 2]
    work.gate.release()
    with pytest.raises(ValueError, match="broken"):
        await third
    work.gate.release()
    assert await rounds() == 4
