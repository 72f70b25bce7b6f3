"""The step ``fetch`` on real servers."""

import gzip
import json
import logging
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from oplog_pipe.deliver.fetch import Fetcher
from oplog_pipe.errors import TransformError
from oplog_pipe.message import Message
from oplog_pipe.model.settings import FetchStep
from tests.integration.pipe.made import message
from tests.kits.agents.agent import DEADLINE
from tests.kits.servers.request import Request
from tests.kits.servers.scripted import ScriptedServer, answer

Fetch = Callable[..., Fetcher]


@pytest.fixture
def fetch() -> Iterator[Fetch]:
    made = []

    def make(*, max_bytes: int = 1000, together: int = 10**6, **settings: Any) -> Fetcher:
        fetcher = Fetcher(FetchStep(**settings), max_bytes, together)
        made.append(fetcher)
        return fetcher

    yield make
    for fetcher in made:
        fetcher.close()


def refs(server: ScriptedServer, *paths: str) -> list[Message]:
    return [message(n, f"{n}", {"ref": server.url + path}) for n, path in enumerate(paths)]


def named(asked: Request) -> bytes:
    """Answer with the path."""
    return answer(200, json.dumps({"path": asked.target}).encode())


def test_objects_come_in_the_order_of_the_messages_and_requests_run_together(fetch: Fetch) -> None:
    together = threading.Barrier(3)

    def choose(asked: Request) -> bytes:
        together.wait(DEADLINE)  # passes only if three requests are open at a time
        return named(asked)

    with ScriptedServer(choose) as server:
        fetcher = fetch(concurrency=3)
        paths = [f"/{n}" for n in range(6)]
        found = fetcher(refs(server, *paths))
        again = fetcher(refs(server, *paths))
        fetcher.close()
    assert [each.data["path"] for each in found if each] == paths
    assert [each.data["path"] for each in again if each] == paths
    assert len(server.connections) == 3


def test_an_object_keeps_the_digits_of_its_numbers_on_one_line(fetch: Fetch) -> None:
    body = b'{"amount": 12345678901234567.890,\n "n": 1e5}\n'
    with ScriptedServer(lambda asked: answer(200, body)) as server:
        (found,) = fetch()(refs(server, "/"))
    assert found is not None
    assert found.json() == b'{"amount":12345678901234567.890,"n":1e5}'
    assert found.data == {"amount": float("12345678901234567.89"), "n": 1e5}


def test_one_request_at_a_time(fetch: Fetch) -> None:
    open_requests: list[str] = []

    def choose(asked: Request) -> bytes:
        open_requests.append(asked.target)
        assert len(open_requests) == 1
        open_requests.remove(asked.target)
        return named(asked)

    with ScriptedServer(choose) as server:
        fetcher = fetch(concurrency=1)
        fetcher(refs(server, "/c", "/a", "/b", "/a"))
        fetcher.close()
    assert [asked.target for asked in server.requests] == ["/c", "/a", "/b", "/a"]


def test_objects_that_are_gone_are_dropped_and_deletes_pass(fetch: Fetch) -> None:
    statuses = {"/a": answer(200, "{}"), "/b": answer(404), "/c": answer(410)}
    with ScriptedServer(lambda asked: statuses[asked.target]) as server:
        fetcher = fetch()
        delete = message(9, "d", op="delete")
        found = fetcher([*refs(server, "/a", "/b", "/c"), delete])
        fetcher.close()
    assert [each and (each.id, each.op) for each in found] == [
        ("0", "insert"), None, None, ("d", "delete"),
    ]  # fmt: skip
    assert delete.data["type"] == "video"
    assert len(server.requests) == 3


def test_an_object_is_asked_for_three_times_if_the_server_is_busy(fetch: Fetch) -> None:
    failures = {"/a": 2, "/b": 3}

    def choose(asked: Request) -> bytes:
        failures[asked.target] -= 1
        return answer(503, "{}") if failures[asked.target] >= 0 else named(asked)

    with ScriptedServer(choose) as server:
        fetcher = fetch(concurrency=1)
        (found,) = fetcher(refs(server, "/a"))
        with pytest.raises(TransformError, match="HTTP 503") as caught:
            fetcher(refs(server, "/b"))
        fetcher.close()
    assert found is not None
    assert found.data == {"path": "/a"}
    assert caught.value.transient
    assert [asked.target for asked in server.requests] == ["/a"] * 3 + ["/b"] * 3


def test_a_compressed_object_is_read_up_to_its_limit(fetch: Fetch) -> None:
    bodies = {"/small": gzip.compress(b'{"n":1}'), "/large": gzip.compress(bytes(1 << 24))}
    zipped = "Content-Encoding: gzip"
    with ScriptedServer(lambda asked: answer(200, bodies[asked.target], zipped)) as server:
        fetcher = fetch()
        (found,) = fetcher(refs(server, "/small"))
        tracemalloc.start()
        with pytest.raises(TransformError, match="more than 1000 bytes") as caught:
            fetcher(refs(server, "/large"))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        fetcher.close()
    assert found is not None
    assert found.data == {"n": 1}
    assert not caught.value.transient
    assert most < 1 << 22
    assert server.requests[0].headers["accept-encoding"] == "gzip"


@pytest.mark.parametrize("data", [{}, {"ref": None}, [], "text"])
def test_a_message_without_ref_names_the_flag_of_the_agent(fetch: Fetch, data: object) -> None:
    delete, without = message(0, op="delete"), message(1, "a", data)
    assert fetch()([delete, without]) == [delete]
    with pytest.raises(TransformError, match="--object-url") as caught:
        fetch()([without])
    assert (caught.value.transient, caught.value.index) == (False, 0)


@pytest.mark.parametrize(
    ("reply", "transient", "words"),
    [
        (answer(500, "{}"), True, "HTTP 500"),
        (answer(503, "{}"), True, "HTTP 503"),
        (answer(429, "{}"), True, "HTTP 429"),
        (answer(401, "{}"), False, "look at user and password of fetch"),
        (answer(400, "{}"), False, "HTTP 400"),
        (answer(204, "{}"), False, "HTTP 204"),
        (answer(200, "{}", "Content-Encoding: gzip"), False, "the answer is no gzip"),
        (answer(200, "", "Content-Encoding: gzip, gzip"), False, "encoding gzip, gzip"),
        (answer(200, b"<html>"), False, "the answer is no JSON"),
        (answer(200, b'"' + b"x" * 999 + b'"'), False, "more than 1000 bytes"),
        (answer(302, "", "Location: http://elsewhere.example/"), False, "another host"),
        (answer(302, "", "Location: /a"), False, "redirects without end"),
    ],
)
def test_failures_name_the_message_and_the_address(
    fetch: Fetch, reply: bytes, transient: bool, words: str
) -> None:
    with ScriptedServer(lambda asked: named(asked) if asked.target == "/good" else reply) as server:
        fetcher = fetch(concurrency=1)
        messages = refs(server, "/good", "/a?token=secret", "/good")
        assert fetcher(messages) == messages[:1]
        with pytest.raises(TransformError, match=words) as caught:
            fetcher(messages[1:])
        fetcher.close()
    error = caught.value
    assert (error.transient, error.of_object, error.index) == (transient, transient, 0)
    assert f"{server.url}/a" in str(error)
    assert "secret" not in str(error)


@pytest.mark.parametrize(
    "ref", ["ftp://host/a", "no address", "http://[::", "http://127.0.0.1:99999/"]
)
def test_an_address_of_no_use_is_refused_for_good(fetch: Fetch, ref: str) -> None:
    with pytest.raises(TransformError) as caught:
        fetch()([message(1, "a", {"ref": ref})])
    assert (caught.value.transient, caught.value.index) == (False, 0)


def test_a_server_that_is_away_or_silent_is_a_failure_that_passes(fetch: Fetch) -> None:
    release = threading.Event()

    def silent(asked: Request) -> bytes:
        release.wait(DEADLINE)
        return answer(200, "{}")

    with ScriptedServer(silent) as server:
        fetcher = fetch(timeout=0.05)
        with pytest.raises(TransformError, match=r"no answer within 0\.05 s") as slow:
            fetcher(refs(server, "/a"))
        release.set()
    with pytest.raises(TransformError) as away:
        fetch()(refs(server, "/a"))
    assert (slow.value.transient, slow.value.of_object) == (True, True)
    assert (away.value.transient, away.value.of_object) == (True, False)


def test_a_second_call_asks_only_for_what_is_missing(fetch: Fetch) -> None:
    failures = {"/2": 1, "/5": 2}

    def choose(asked: Request) -> bytes | None:
        if failures.get(asked.target, 0):
            failures[asked.target] -= 1
            return answer(400)
        return answer(404) if asked.target == "/3" else named(asked)

    with ScriptedServer(choose) as server:
        fetcher = fetch(concurrency=2)
        found: list[Message | None] = []
        for _ in range(5):
            with suppress(TransformError):
                found += fetcher(refs(server, *(f"/{n}" for n in range(7)))[len(found) :])
            if len(found) == 7:
                break
        fetcher.close()
    assert [each and each.data["path"] for each in found] == [
        "/0", "/1", "/2", None, "/4", "/5", "/6",
    ]  # fmt: skip
    asked = Counter(each.target for each in server.requests)
    assert asked == {"/0": 1, "/1": 1, "/2": 2, "/3": 1, "/4": 1, "/5": 3, "/6": 1}


def test_an_answer_that_was_no_json_is_asked_for_again(fetch: Fetch) -> None:
    with ScriptedServer(
        [answer(200, "<html>"), answer(200, b'"\xff"'), answer(200, "1")]
    ) as server:
        fetcher = fetch()
        for _ in range(2):
            with pytest.raises(TransformError, match="no JSON"):
                fetcher(refs(server, "/a"))
        (found,) = fetcher(refs(server, "/a"))
        fetcher.close()
    assert found is not None
    assert found.data == 1


def test_a_call_takes_objects_of_some_bytes_and_those_that_are_under_way(fetch: Fetch) -> None:
    with ScriptedServer(lambda asked: answer(200, '"' + "x" * 98 + '"')) as server:
        fetcher = fetch(concurrency=2, together=500)
        found = fetcher(refs(server, *["/a"] * 50))
        fetcher.close()
    assert 5 <= len(found) <= 6
    assert len(server.requests) == len(found)


@pytest.mark.parametrize("status", [401, 503])
def test_a_server_that_fails_for_all_is_asked_for_few_objects(fetch: Fetch, status: int) -> None:
    with ScriptedServer(lambda asked: answer(status)) as server:
        fetcher = fetch(concurrency=2)
        with pytest.raises(TransformError):
            fetcher(refs(server, *(f"/{n}" for n in range(50))))
        fetcher.close()
    assert len({asked.target for asked in server.requests}) <= 3


def test_redirects_within_the_host_are_followed_with_the_password(fetch: Fetch) -> None:
    def choose(asked: Request) -> bytes:
        return answer(307, "", "Location: /b") if asked.target == "/a" else named(asked)

    with ScriptedServer(choose) as server:
        fetcher = fetch(user="u", password="p")
        [found] = fetcher(refs(server, "/a"))
        fetcher.close()
    assert found is not None
    assert found.data == {"path": "/b"}
    assert [asked.headers["authorization"] for asked in server.requests] == ["Basic dTpw"] * 2


def test_the_password_goes_to_no_other_host_and_into_no_log(
    fetch: Fetch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with ScriptedServer(named) as other:
        target = f"Location: {other.url}/x"
        with ScriptedServer(lambda asked: answer(302, "", target)) as server:
            fetcher = fetch()
            address = server.url.replace("//", "//user:hidden@") + "/a?token=hidden"
            with pytest.raises(TransformError, match="redirects to another host") as caught:
                fetcher([message(1, "a", {"ref": address})])
            fetcher.close()
    assert other.requests == []
    assert "hidden" not in str(caught.value)
    assert "hidden" not in "".join(record.getMessage() for record in caplog.records
                                   if record.levelno >= logging.INFO)  # fmt: skip


def test_only_hosts_that_the_step_names_are_asked(fetch: Fetch) -> None:
    with ScriptedServer(named) as other, ScriptedServer(named) as server:
        ours = server.url.removeprefix("http://")
        fetcher = fetch(hosts=("api.example.com", ours), user="u", password="p")
        (found,) = fetcher(refs(server, "/a"))
        for ref in (f"{other.url}/x", f"http://{ours}@[::1]/", "http://127.0.0.1/"):
            with pytest.raises(TransformError, match="on none of the hosts of fetch") as caught:
                fetcher([message(1, "a", {"ref": ref})])
            assert (caught.value.transient, caught.value.index) == (False, 0)
        fetcher.close()
    assert found is not None
    assert found.data == {"path": "/a"}
    assert other.requests == []
