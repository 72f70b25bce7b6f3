"""Shared look-ups: each caller gets the answer to its own question."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from oplogd.errors import TopicNotFoundError
from tests.kits.models.operations import operation
from tests.kits.store.held_thread import held_thread
from tests.kits.store.messages import named, publish
from tests.kits.store.sqlite_files import opened

pytestmark = pytest.mark.usefixtures("no_fsync")


async def test_questions_that_wait_together_are_told_apart(path: Path) -> None:
    async with opened(path) as store:
        a = await store.topics.create(named("a"), None)
        b = await store.topics.create(named("b"), None)
        await publish(store.topics, a, "one", "two")
        await publish(store.topics, b, "one")
        await store.append([operation(id_="1"), operation(id_="2")])
        logs = [store.topics.log(each) for each in (a, b)]
        places = [(0, 0), *((each.ms, each.sequence) for each in await logs[0].read(0, 10))]
        questions: list[Callable[[], Awaitable[object]]] = [
            *(partial(store.topics.find, named(name)) for name in "abc"),
            *(partial(logs[0].locate, *place) for place in places),
            logs[1].locate,
            *(partial(store.locate, offset) for offset in range(2)),
        ]
        alone = [repr(await ask()) for ask in questions]
        async with held_thread(store._lookups):
            asking = [asyncio.ensure_future(ask()) for ask in 2 * questions]
        together = [repr(each) for each in await asyncio.gather(*asking)]
        assert [without_now(each) for each in together] == [without_now(each) for each in 2 * alone]
        assert len(set(map(without_now, alone))) == len(questions)


def without_now(text: str) -> str:
    return re.sub(r"now_ms=\d+", "", text)


async def test_the_error_of_a_deleted_topic_names_it(path: Path) -> None:
    async with opened(path) as store:
        topic = await store.topics.create(named("a"), None)
        await store.topics.delete(topic.name)
        with pytest.raises(TopicNotFoundError, match=f"there is no topic {topic.name}$"):
            await store.topics.log(topic).locate()
