"""Pages of objects: the order of the reads, and their bounds."""

import asyncio
import json
from typing import Any, cast

import pytest
from starlette.requests import ClientDisconnect, Request

from oplogd.model.event_id import Mark, format_id
from oplogd.store import Store
from oplogd.store.objects import ObjectsPage, ObjectState, Selection
from oplogd.stream.ring.frames import Framer
from oplogd.web.access.caller import Caller
from oplogd.web.access.right_bodies import right_of
from oplogd.web.access.rights import READ_ALL
from oplogd.web.access.sides import ReadAuthenticator
from oplogd.web.http.cursors import NEXT, cursor
from oplogd.web.http.problem import Problem
from oplogd.web.oplog.objects import POSITION, Objects
from tests.kits.models.operations import operation

HEAD = Mark(7, 1_700_000_000_123)


class _Readers:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.right = READ_ALL

    async def caller(self, request: Request) -> Caller:
        self.asked.append(request.url.path)
        if request.url.path.endswith("/secret"):
            raise Problem(401, "no")
        return Caller("user:ada", self.right)


class _Bounds:
    first_offset = 1


class _Store:
    """Objects in memory. ``looked_at``: states that a read looks at, whether asked or not."""

    def __init__(self, count: int, bytes_: int = 10) -> None:
        made = [
            operation(id_=f"{number:05}", parents=["x", "x" * bytes_]) for number in range(count)
        ]
        self.states = [
            ObjectState(each.key, Mark(offset, 1), False, each.data.decode())
            for offset, each in enumerate(made, 1)
        ]
        self.calls: list[str] = []
        self.limits: list[int] = []
        self.passes = True
        self.hidden: set[str] = set()
        self.objects = self

    async def checkpoint(self) -> Mark:
        self.calls.append("checkpoint")
        return HEAD

    async def locate(self, offset: int) -> _Bounds:
        assert offset == HEAD.offset
        self.calls.append("locate")
        return _Bounds()

    async def page(self, after: str, limit: int, selection: Selection) -> ObjectsPage:
        self.calls.append("page")
        self.limits.append(limit)
        past = [state for state in self.states if state.key > after]
        found, rest = past[:limit], past[limit:]
        passing = [each for each in found if self.passes and each.key not in self.hidden]
        return ObjectsPage(passing, found[-1].key if rest else None)

    async def find(self, type_: str, id_: str) -> ObjectState | None:
        self.calls.append("find")
        return next((each for each in self.states if each.key == f"{type_}/{id_}"), None)


class _HeldStore(_Store):
    """Reads no page before ``held`` is set. ``most``: reads at a time."""

    def __init__(self) -> None:
        super().__init__(5)
        self.held = asyncio.Event()
        self.reading = self.most = 0

    async def page(self, after: str, limit: int, selection: Selection) -> ObjectsPage:
        self.reading += 1
        self.most = max(self.most, self.reading)
        try:
            await self.held.wait()
        finally:
            self.reading -= 1
        return await super().page(after, limit, selection)


class _Answers:
    def __init__(self, store: _Store) -> None:
        self.store = store
        self.readers = _Readers()
        self.objects = Objects(
            cast(Store, store), Framer(), cast(ReadAuthenticator, self.readers), 10
        )

    async def page(self, query: str) -> tuple[int, str | None, str]:
        """Return the number of objects, the next cursor, and the position."""
        answer = await self.objects.page(_request("/objects", query))
        lines = bytes(answer.body).decode().splitlines()
        assert all(json.loads(line)["type"] == "video" for line in lines)
        return len(lines), answer.headers.get(NEXT), answer.headers[POSITION]


def _request(path: str, query: str = "", **parts: str) -> Request:
    scope: dict[str, Any] = {
        "type": "http", "method": "GET", "path": path, "query_string": query.encode(),
        "headers": [], "server": ("localhost", 80), "scheme": "http", "path_params": parts,
    }  # fmt: skip
    return Request(scope)


async def test_the_position_is_read_before_the_first_page_and_by_no_other() -> None:
    answers = _Answers(_Store(5))
    count, after, position = await answers.page("limit=3")
    assert (count, after) == (3, cursor([format_id(HEAD), "video/00002"]))
    assert position == format_id(HEAD)
    assert answers.store.calls == ["checkpoint", "locate", "page"]
    answers.store.calls.clear()
    assert await answers.page(f"limit=3&after={after}") == (2, None, format_id(HEAD))
    assert answers.store.calls == ["page"]


async def test_an_object_is_read_behind_the_checkpoint() -> None:
    answers = _Answers(_Store(5))
    found = await answers.objects.find(_request("/x", type="VIDEO", id="00003"))
    assert json.loads(bytes(found.body))["position"] == format_id(Mark(4, 1))
    assert answers.store.calls == ["checkpoint", "locate", "find"]
    with pytest.raises(Problem, match="there is no such object"):
        await answers.objects.find(_request("/x", type="video", id="9"))


async def test_an_object_outside_of_the_right_of_its_reader_is_not_there() -> None:
    answers = _Answers(_Store(5))
    request = _request("/x", type="video", id="00003")
    assert (await answers.objects.find(request)).status_code == 200
    answers.readers.right = right_of({"parents": ["y"]})
    with pytest.raises(Problem, match=r"^there is no such object$"):
        await answers.objects.find(request)


async def test_the_cursor_of_a_narrow_reader_names_only_objects_that_it_sees() -> None:
    store = _Store(25_000)
    seen = ["video/00007", "video/22000", "video/24000"]
    store.hidden = {state.key for state in store.states} - set(seen)
    answers = _Answers(store)
    count, after, position = await answers.page("limit=2")
    assert count == 1
    assert after not in (None, *(cursor([position, key]) for key in seen)), "a bounded look"
    answers.readers.right = right_of({"parents": ["x"]})
    place = cursor([position, seen[1]])
    assert await answers.page("limit=2") == (2, place, position)
    assert await answers.page(f"limit=2&after={place}") == (1, None, position)


async def test_nothing_is_read_for_who_may_not_read() -> None:
    answers = _Answers(_Store(5))
    for call in (answers.objects.find, answers.objects.page):
        with pytest.raises(Problem, match="no"):
            await call(_request("/secret", "limit=x", type="video", id="1"))
    assert answers.store.calls == []
    assert answers.readers.asked == ["/secret", "/secret"]


async def test_a_page_is_read_in_parts_up_to_its_limit() -> None:
    answers = _Answers(_Store(1_200))
    count, after, _ = await answers.page("limit=1100")
    assert (count, after) == (1_100, cursor([format_id(HEAD), "video/01099"]))
    assert answers.store.limits == [500, 500, 100]
    assert await answers.page("limit=1200") == (1_200, None, format_id(HEAD))


async def test_a_narrow_filter_looks_at_more_than_it_is_asked_for() -> None:
    answers = _Answers(_Store(1_200))
    count, after, _ = await answers.page("limit=3&parents=x")
    assert (count, after) == (3, cursor([format_id(HEAD), "video/00002"]))
    assert answers.store.limits == [500]


async def test_a_page_that_finds_nothing_ends_after_some_reads_and_goes_on() -> None:
    answers = _Answers(_Store(25_000))
    answers.store.passes = False
    count, after, _ = await answers.page("parents=none")
    assert (count, after) == (0, cursor([format_id(HEAD), "video/19999"]))
    assert answers.store.limits == 40 * [500]
    assert (await answers.page(f"parents=none&after={after}"))[:2] == (0, None)


async def test_a_page_ends_at_a_megabyte() -> None:
    answers = _Answers(_Store(1_500, bytes_=2_000))
    count, after, _ = await answers.page("limit=1500")
    assert (count, after) == (500, cursor([format_id(HEAD), "video/00499"]))


async def test_few_reads_run_at_a_time() -> None:
    store = _HeldStore()
    answers = _Answers(store)
    pages = [asyncio.create_task(answers.page("")) for _ in range(10)]
    await asyncio.wait(pages, timeout=0.01)
    store.held.set()
    assert [count for count, _, _ in await asyncio.gather(*pages)] == [5] * 10
    assert store.most == 2


async def test_the_read_of_a_narrow_reader_ends_with_its_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oplogd.web.http.gone._LOOK_SECONDS", 0.001)
    store = _HeldStore()
    answers = _Answers(store)
    answers.readers.right = right_of({"parents": ["x"]})

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    asked = answers.objects.page(Request(_request("/objects").scope, receive))
    with pytest.raises(ClientDisconnect):
        await asyncio.wait_for(asked, 10)
    assert (store.most, store.reading) == (1, 0)
