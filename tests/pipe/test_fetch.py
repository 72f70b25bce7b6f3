"""The step ``fetch`` on real servers."""

import gzip
import json
import logging
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from oplog_pipe.errors import TransformError
from oplog_pipe.fetch import Fetcher
from oplog_pipe.message import Message
from oplog_pipe.settings import FetchStep
from tests.pipe.answering import Answering, Asked, Reply
from tests.pipe.made import message

Fetch = Callable[..., Fetcher]
DEADLINE = 30.0


@pytest.fixture
def fetch() -> Iterator[Fetch]:
    made = []

    def make(*, max_bytes: int = 1000, **settings: Any) -> Fetcher:
        fetcher = Fetcher(FetchStep(**settings), max_bytes)
        made.append(fetcher)
        return fetcher

    yield make
    for fetcher in made:
        fetcher.close()


def refs(server: Answering, *paths: str) -> list[Message]:
    return [message(n, f"{n}", {"ref": server.url + path}) for n, path in enumerate(paths)]


def named(asked: Asked) -> Reply:
    """Answer with the path."""
    return Reply(body=json.dumps({"path": asked.path}).encode())


def test_objects_come_in_the_order_of_the_messages_and_requests_run_together(fetch: Fetch) -> None:
    together = threading.Barrier(3)

    def answer(asked: Asked) -> Reply:
        together.wait(DEADLINE)  # passes only if three requests are open at a time
        return named(asked)

    with Answering(answer) as server:
        fetcher = fetch(concurrency=3)
        paths = [f"/{n}" for n in range(6)]
        found = fetcher(refs(server, *paths))
        again = fetcher(refs(server, *paths))
        fetcher.close()
    assert [each.data["path"] for each in found if each] == paths
    assert [each.data["path"] for each in again if each] == paths
    assert len(server.connections) == 3


def test_one_request_at_a_time(fetch: Fetch) -> None:
    open_requests: list[str] = []

    def answer(asked: Asked) -> Reply:
        open_requests.append(asked.path)
        assert len(open_requests) == 1
        open_requests.remove(asked.path)
        return named(asked)

    with Answering(answer) as server:
        fetcher = fetch(concurrency=1)
        fetcher(refs(server, "/c", "/a", "/b", "/a"))
        fetcher.close()
    assert [asked.path for asked in server.asked] == ["/c", "/a", "/b", "/a"]


def test_objects_that_are_gone_are_dropped_and_deletes_pass(fetch: Fetch) -> None:
    statuses = {"/a": Reply(), "/b": Reply(404), "/c": Reply(410)}
    with Answering(lambda asked: statuses[asked.path]) as server:
        fetcher = fetch()
        delete = message(9, "d", op="delete")
        found = fetcher([*refs(server, "/a", "/b", "/c"), delete])
        fetcher.close()
    assert [each and (each.id, each.op) for each in found] == [
        ("0", "insert"), None, None, ("d", "delete"),
    ]  # fmt: skip
    assert delete.data["type"] == "video"
    assert len(server.asked) == 3


def test_an_object_is_asked_for_three_times_if_the_server_is_busy(fetch: Fetch) -> None:
    failures = {"/a": 2, "/b": 3}

    def answer(asked: Asked) -> Reply:
        failures[asked.path] -= 1
        return Reply(503) if failures[asked.path] >= 0 else named(asked)

    with Answering(answer) as server:
        fetcher = fetch(concurrency=1)
        (found,) = fetcher(refs(server, "/a"))
        with pytest.raises(TransformError, match="HTTP 503") as caught:
            fetcher(refs(server, "/b"))
        fetcher.close()
    assert found is not None
    assert found.data == {"path": "/a"}
    assert caught.value.transient
    assert [asked.path for asked in server.asked] == ["/a"] * 3 + ["/b"] * 3


def test_a_compressed_object_is_read_up_to_its_limit(fetch: Fetch) -> None:
    bodies = {"/small": gzip.compress(b'{"n":1}'), "/large": gzip.compress(bytes(1 << 24))}
    zipped = {"Content-Encoding": "gzip"}
    with Answering(lambda asked: Reply(200, bodies[asked.path], zipped)) as server:
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
    assert server.asked[0].headers["accept-encoding"] == "gzip"


@pytest.mark.parametrize("data", [{}, {"ref": None}, [], "text"])
def test_a_message_without_ref_names_the_flag_of_the_agent(fetch: Fetch, data: object) -> None:
    with pytest.raises(TransformError, match="--object-url") as caught:
        fetch()([message(0, op="delete"), message(1, "a", data)])
    assert (caught.value.transient, caught.value.index) == (False, 1)


@pytest.mark.parametrize(
    ("reply", "transient", "words"),
    [
        (Reply(500), True, "HTTP 500"),
        (Reply(503), True, "HTTP 503"),
        (Reply(429), True, "HTTP 429"),
        (Reply(401), False, "look at user and password of fetch"),
        (Reply(400), False, "HTTP 400"),
        (Reply(204), False, "HTTP 204"),
        (Reply(200, b"{}", {"Content-Encoding": "gzip"}), False, "the answer is no gzip"),
        (Reply(200, b"", {"Content-Encoding": "gzip, gzip"}), False, "encoding gzip, gzip"),
        (Reply(200, b"<html>"), False, "the answer is no JSON"),
        (Reply(200, b'"' + b"x" * 999 + b'"'), False, "more than 1000 bytes"),
        (Reply(302, b"", {"Location": "http://elsewhere.example/"}), False, "another host"),
        (Reply(302, b"", {"Location": "/a"}), False, "redirects without end"),
    ],
)
def test_failures_name_the_message_and_the_address(
    fetch: Fetch, reply: Reply, transient: bool, words: str
) -> None:
    with Answering(lambda asked: named(asked) if asked.path == "/good" else reply) as server:
        fetcher = fetch(concurrency=1)
        with pytest.raises(TransformError, match=words) as caught:
            fetcher(refs(server, "/good", "/a?token=secret", "/good"))
        fetcher.close()
    assert (caught.value.transient, caught.value.index) == (transient, 1)
    assert f"{server.url}/a" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert not any(asked.path == "/good" for asked in server.asked[1:])  # nothing after a failure


@pytest.mark.parametrize(
    "ref", ["ftp://host/a", "no address", "http://[::", "http://127.0.0.1:99999/"]
)
def test_an_address_of_no_use_is_refused_for_good(fetch: Fetch, ref: str) -> None:
    with pytest.raises(TransformError) as caught:
        fetch()([message(1, "a", {"ref": ref})])
    assert (caught.value.transient, caught.value.index) == (False, 0)


def test_a_server_that_is_away_or_silent_is_a_failure_that_passes(fetch: Fetch) -> None:
    release = threading.Event()

    def silent(asked: Asked) -> Reply:
        release.wait(DEADLINE)
        return Reply()

    with Answering(silent) as server:
        fetcher = fetch(timeout=0.05)
        with pytest.raises(TransformError, match=r"no answer within 0\.05 s") as slow:
            fetcher(refs(server, "/a"))
        release.set()
    with pytest.raises(TransformError) as away:
        fetcher(refs(server, "/a"))
    assert slow.value.transient
    assert away.value.transient


def test_redirects_within_the_host_are_followed_with_the_password(fetch: Fetch) -> None:
    def answer(asked: Asked) -> Reply:
        return Reply(307, b"", {"Location": "/b"}) if asked.path == "/a" else named(asked)

    with Answering(answer) as server:
        fetcher = fetch(user="u", password="p")
        [found] = fetcher(refs(server, "/a"))
        fetcher.close()
    assert found is not None
    assert found.data == {"path": "/b"}
    assert [asked.headers["authorization"] for asked in server.asked] == ["Basic dTpw"] * 2


def test_the_password_goes_to_no_other_host_and_into_no_log(
    fetch: Fetch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with Answering(named) as other:
        target = {"Location": f"{other.url}/x"}
        with Answering(lambda asked: Reply(302, b"", target)) as server:
            fetcher = fetch()
            address = server.url.replace("//", "//user:hidden@") + "/a?token=hidden"
            with pytest.raises(TransformError, match="redirects to another host") as caught:
                fetcher([message(1, "a", {"ref": address})])
            fetcher.close()
    assert other.asked == []
    assert "hidden" not in str(caught.value)
    assert "hidden" not in "".join(record.getMessage() for record in caplog.records
                                   if record.levelno >= logging.INFO)  # fmt: skip


def test_only_hosts_that_the_step_names_are_asked(fetch: Fetch) -> None:
    with Answering(named) as other, Answering(named) as server:
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
    assert other.asked == []
