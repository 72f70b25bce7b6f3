"""Look-ups of objects: one, and pages of all live ones, from which a client follows on."""

import json
import queue
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from tests.contract.wire.store_kinds import StoreKind, on_one_store
from tests.kits.contract.shards import SHARDS, shard_of, spread_type
from tests.kits.contract.wire import (
    HEX_ID,
    RawStream,
    Reply,
    Target,
    data_of,
    event_of,
    fresh_type,
    id_of,
    operation,
    said,
)

ABSENT = "there is no such object"
COMMON = {
    "Content-Type": "application/x-ndjson",
    "Cache-Control": "no-cache, no-store, must-revalidate",
    "Vary": "Authorization, Cookie",
    "Access-Control-Allow-Origin": "*",
}


class Page(NamedTuple):
    objects: list[dict[str, Any]]
    position: str
    next: str | None


def page_of(target: Target, query: str, after: str | None = None) -> Page:
    path = f"/objects?{query}" + (f"&after={after}" if after else "")
    reply = target.request("GET", path)
    assert reply.status == 200, reply.body
    position = reply.header("Oplog-Position")
    assert position is not None
    assert reply.body == b"" or reply.body.endswith(b"\n")
    lines = reply.body.decode().split("\n")[:-1]
    return Page([json.loads(line) for line in lines], position, reply.header("Oplog-Next"))


def pages_of(target: Target, query: str) -> Iterator[Page]:
    page = page_of(target, query)
    yield page
    while page.next:
        page = page_of(target, query, page.next)
        yield page


def ids(page: Page) -> list[str]:
    return [each["id"] for each in page.objects]


def all_ids(pages: Iterable[Page]) -> list[str]:
    return [id_ for page in pages for id_ in ids(page)]


def look_up(target: Target, type_: str, id_: str) -> Reply:
    return target.request("GET", f"/objects/{type_}/{quote(id_, safe='')}")


def test_an_object_is_shown_with_its_last_operation(target: Target) -> None:
    type_ = fresh_type()
    given = operation("update", "a", type_, "x", "y") | {"timestamp": "2025-11-20T10:00:00Z"}
    target.store(operation("insert", "a", type_), given, operation("insert", "b", type_))
    reply = look_up(target, type_, "a")
    assert (reply.status, reply.header("Content-Type")) == (200, "application/json")
    assert reply.header("Vary") == "Authorization, Cookie"
    shown = reply.json
    position = shown.pop("position")
    assert shown == {
        "type": type_,
        "id": "a",
        "parents": ["x", "y"],
        "timestamp": "2025-11-20T10:00:00.000Z",
        "deleted": False,
    }
    with target.follow(position, types=type_) as stream:
        assert said(stream.block()) == ("insert", "b")


def test_a_deleted_object_is_shown_as_deleted(target: Target) -> None:
    type_ = fresh_type()
    target.store(operation("insert", "a", type_), operation("delete", "a", type_, "x"))
    shown = look_up(target, type_.upper(), "a").json
    assert (shown["deleted"], shown["parents"]) == (True, ["x"])


@pytest.mark.parametrize(
    "id_", ["a/b", "/a", "a/", "//", "a b?c#d&e=f%2F+", "\N{OCTOPUS}", "x" * 1024, "\x01", ";a"]
)
def test_an_id_may_hold_any_character(target: Target, id_: str) -> None:
    type_ = fresh_type()
    target.store(operation("insert", id_, type_))
    assert look_up(target, type_, id_).json["id"] == id_
    assert ids(page_of(target, f"types={type_}&ids={quote(id_, safe='')}&ids=")) == [id_]


@on_one_store
def test_an_id_with_slashes_needs_no_escape(target: Target) -> None:
    type_ = fresh_type()
    target.store(operation("insert", "a/b/c", type_))
    assert target.request("GET", f"/objects/{type_}/a/b/c").json["id"] == "a/b/c"


@on_one_store
@pytest.mark.parametrize("path", ["a", "%FF", "a%00b", "x" * 2000, "", "a/", "%ED%A0%80"])
def test_an_object_that_never_was_is_not_found(target: Target, path: str) -> None:
    reply = target.request("GET", f"/objects/{fresh_type()}/{path}")
    assert (reply.status, reply.problem()) == (404, ABSENT)


def test_pages_hold_the_live_objects_in_the_order_of_their_keys(target: Target) -> None:
    a = fresh_type()
    b = a + "-b"  # before a: '-' is before '/'
    target.store(
        *(operation("insert", str(number), a, "even" if number % 2 == 0 else "odd")
          for number in range(10)),
        operation("delete", "3", a),
        operation("insert", "z", b),
    )  # fmt: skip
    query = f"types={a},{b}"
    found = [*pages_of(target, f"{query}&limit=4")]
    assert [ids(page) for page in found][:2] == [["z", "0", "1", "2"], ["4", "5", "6", "7"]]
    assert all_ids(found) == ["z", *"012456789"]
    assert {page.position for page in found} == {found[0].position}
    assert set(found[0].objects[1]) == {"type", "id", "parents", "timestamp"}
    assert ids(page_of(target, query)) == ["z", *"012456789"]
    assert ids(page_of(target, f"{query}&parents=even")) == [*"02468"]
    assert ids(page_of(target, f"types={a}&ids=3,5,z,7")) == ["5", "7"]
    assert ids(page_of(target, f"types={a}&parents=odd&limit=10000")) == [*"1579"]
    assert page_of(target, f"types={fresh_type()}").objects == []


def test_pages_of_a_shard_hold_its_objects_alone(target: Target) -> None:
    names = [*map(str, range(40)), "é", "a/b"]
    type_ = spread_type(names, 5)
    target.store(*(operation("insert", name, type_) for name in names))
    target.store(operation("delete", "7", type_))
    names.remove("7")
    pages = {shard: [*pages_of(target, f"types={type_}&shard={shard}&limit=3")] for shard in SHARDS}
    for shard, found in pages.items():
        wanted = sorted(name for name in names if shard_of(f"{type_}/{name}") == shard)
        assert all_ids(found) == wanted
        assert {len(page.objects) for page in found[:-1]} == {3}
        with target.follow(found[0].position, types=type_, shard=shard) as stream:
            target.store(*(operation("update", name, type_) for name in names))
            assert [said(block)[1] for block in stream.take(len(wanted))] == [
                name for name in names if name in wanted
            ]
    number = (int(shard_of(f"{type_}/0", 256).partition("/")[0]) + 1) % 256
    empty = page_of(target, f"types={type_}&ids=0&shard={number}/256")
    assert (empty.objects, empty.next) == ([], None)


@on_one_store
def test_a_page_of_long_objects_ends_early(target: Target) -> None:
    type_ = fresh_type()
    for number in range(40):
        target.store(operation("insert", f"{number:02}", type_, "x" * 60_000))
    found = [*pages_of(target, f"types={type_}")]
    assert len(found) > 1
    assert all_ids(found) == [f"{number:02}" for number in range(40)]


@on_one_store
def test_a_rare_parent_among_many_objects_is_found(target: Target) -> None:
    type_ = fresh_type()
    target.store(*(operation("insert", f"{number:04}", type_) for number in range(600)))
    target.store(operation("insert", "rare", type_, "only"))
    (found,) = pages_of(target, f"types={type_}&parents=only&limit=1")
    assert ids(found) == ["rare"]


@on_one_store
def test_a_page_has_a_thousand_objects_unless_another_limit_is_asked_for(target: Target) -> None:
    type_ = fresh_type()
    target.store(*(operation("insert", f"{number:04}", type_) for number in range(1_001)))
    assert [len(page.objects) for page in pages_of(target, f"types={type_}")] == [1_000, 1]
    assert [len(page.objects) for page in pages_of(target, f"types={type_}&limit=9000")] == [1_001]


def test_a_snapshot_and_what_follows_it_are_the_fold_while_others_write(target: Target) -> None:
    type_ = fresh_type()
    numbers = [f"{number:03}" for number in range(100)]
    target.store(*(operation("insert", number, type_, "first") for number in numbers))
    expected: dict[str, list[str]] = {number: ["first"] for number in numbers}
    # A batch is written for each page that is read: a slow store would not keep up with more.
    turns: queue.Queue[int | None] = queue.Queue()

    def write() -> None:
        while (turn := turns.get()) is not None:
            made = []
            for each in range(turn % 11, 105, 11):
                number = f"{each:03}"
                if (turn + each) % 3:
                    made.append(operation("update", number, type_, str(turn)))
                    expected[number] = [str(turn)]
                else:
                    made.append(operation("delete", number, type_))
                    expected.pop(number, None)
            target.store(*made)

    pages: list[Page] = []
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        turns.put(1_000)
        for turn, page in enumerate(pages_of(target, f"types={type_}&limit=5")):
            pages.append(page)
            turns.put(turn)
        turns.put(None)
        writing.result()
    target.store(operation("insert", "end", type_, "end"))
    assert len(pages) > 10
    assert {page.position for page in pages} == {pages[0].position}
    assert HEX_ID.fullmatch(pages[0].position.encode())
    objects = {each["id"]: each["parents"] for page in pages for each in page.objects}
    with target.follow(pages[0].position, types=type_) as stream:
        while "end" not in objects:
            apply(stream, objects)
    assert objects == expected | {"end": ["end"]}


def apply(stream: RawStream, objects: dict[str, Any]) -> None:
    block = stream.block()
    event = event_of(block)
    assert event != "reset", "the position cannot be resumed"
    if event in ("insert", "update"):
        objects[data_of(block)["id"]] = data_of(block)["parents"]
    elif event == "delete":
        objects.pop(data_of(block)["id"], None)


def test_a_snapshot_of_an_empty_log_can_be_followed(store_kind: StoreKind, tmp_path: Path) -> None:
    with store_kind.agent(tmp_path) as agent:
        target = Target.of(agent)
        page = page_of(target, "limit=10")
        assert (page.objects, page.next, len(page.position) <= 13) == ([], None, True)
        target.store(operation("insert", "a", "thing", "x"), operation("delete", "b", "thing"))
        objects: dict[str, Any] = {}
        with target.follow(page.position) as stream:
            while "a" not in objects:
                apply(stream, objects)
        shown = look_up(target, "thing", "a").json
        with target.follow() as stream:
            target.store(operation("insert", "c", "thing"))
            here = id_of(stream.block())
        assert HEX_ID.fullmatch(shown["position"].encode())
        assert page_of(target, "limit=10").position == here


@on_one_store
@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("limit=0", "limit: must be a whole number from 1 to 10,000"),
        ("limit=10001", "limit: must be a whole number from 1 to 10,000"),
        ("limit=", "limit: must be a whole number from 1 to 10,000"),
        ("limit=%D9%A1", "limit: must be a whole number from 1 to 10,000"),
        ("after=x", "after: must be what Oplog-Next of a page says"),
        ("after=WyIxMiJd", "after: must be what Oplog-Next of a page says"),
        ("after=WyJ4IiwiYSJd", "after: must be what Oplog-Next of a page says"),
        ("after=" + "A" * 12_001, "after: must be what Oplog-Next of a page says"),
        ("type=video", "type: there is no such parameter; the name is types"),
        ("ids=" + "x" * 1025, "ids: a value has 1,025 bytes; no id has more than 1,024"),
    ],
)
def test_an_invalid_parameter_is_refused_by_name(target: Target, query: str, sentence: str) -> None:
    reply = target.request("GET", f"/objects?{query}")
    assert (reply.status, reply.problem()) == (400, sentence)


@on_one_store
def test_a_page_has_the_headers_of_a_private_answer(target: Target) -> None:
    type_ = fresh_type()
    target.store(operation("insert", "a", type_))
    for method in ("GET", "HEAD"):
        reply = target.request(method, f"/objects?types={type_}")
        assert (reply.status, reply.body == b"") == (200, method == "HEAD")
        assert {name: reply.header(name) for name in COMMON} == COMMON
        assert reply.header("Oplog-Position")
        assert target.request(method, f"/objects/{type_}/a").status == 200
    exposed = reply.header("Access-Control-Expose-Headers")
    assert exposed == "Oplog-Next, Oplog-Position, Oplog-Shard, Oplog-Store, Oplog-Term"
    for path in ("/objects", f"/objects/{type_}/a"):
        preflight = target.request("OPTIONS", path)
        assert preflight.status == 204
        assert preflight.header("Access-Control-Allow-Methods") == "GET, HEAD"
        refused = target.request("POST", path, b"{}")
        assert (refused.status, refused.header("Allow")) == (405, "GET, HEAD, OPTIONS")


@on_one_store
def test_look_ups_need_the_password(guarded: Target) -> None:
    for path in ("/objects", "/objects?limit=x", "/objects/video/x"):
        reply = guarded.request("GET", path)
        assert (reply.status, reply.header("Cache-Control")) == (
            401,
            "no-cache, no-store, must-revalidate",
        )
        assert reply.header("WWW-Authenticate")
