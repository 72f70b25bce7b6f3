"""Requests of one client meet any worker: passwords, cookies, tokens and guesses are of all."""

from collections.abc import Callable
from http.cookies import SimpleCookie
from typing import Any

import httpx
import pytest

from oplog_kit.command.convert import Secret
from oplogd.agent import Agent
from oplogd.config.settings import Settings
from oplogd.server import make_store
from oplogd.web.access.guesses.attempts import ADDRESS
from oplogd.web.access.sides import WriteAuthenticator
from oplogd.web.app import create_web
from oplogd.web.http.plain import PlainRequest
from oplogd.workers.workers import Worker, Workers
from tests.kits.clock.virtual import VirtualClock
from tests.kits.web.keepers import keeper_of

READER = "gehéim"
BASIC = httpx.BasicAuth("", READER)
HERE, THERE = "192.0.2.1", "198.51.100.1"
MakeWorker = Callable[..., httpx.AsyncClient]


@pytest.fixture
async def make_worker() -> MakeWorker:
    """Make clients of a worker of two. Each call makes the worker anew, as after a kill."""
    workers, clock = Workers(2), VirtualClock()
    settings = Settings(password=(Secret(READER),), max_upload_memory=65536, max_body_size=10**6)

    def make(number: int, address: str = HERE) -> httpx.AsyncClient:
        worker = Worker(workers, number)
        agent = Agent(settings, make_store(settings, clock.clock), [], clock.clock, worker)
        transport = httpx.ASGITransport(create_web(agent).app, client=(address, 1))
        return httpx.AsyncClient(transport=transport, base_url="http://agent")

    return make


async def wrong(client: httpx.AsyncClient, password: object) -> int:
    answer = await client.post("/session", json={"password": f"{password}"})
    return answer.status_code


async def session(client: httpx.AsyncClient, **given: Any) -> bool:
    answer = await client.get("/session", **given)
    signed_in: bool = answer.json()["signed_in"]
    return signed_in


async def test_a_session_begun_at_one_worker_goes_on_at_the_other(make_worker: MakeWorker) -> None:
    one, other = make_worker(0), make_worker(1)
    answer = await one.post("/session", json={"password": READER})
    assert answer.status_code == 204
    cookie = SimpleCookie(answer.headers["set-cookie"])["oplog"].value
    headers = {"Cookie": f"oplog={cookie}"}
    assert not await session(other)
    assert await session(other, headers=headers)
    assert await session(make_worker(0), headers=headers)
    assert (await other.delete("/session", headers=headers)).status_code == 204


async def test_a_token_of_one_worker_is_good_at_the_other(make_worker: MakeWorker) -> None:
    one, other = make_worker(0), make_worker(1)
    answer = await one.post("/token", auth=BASIC)
    assert await session(other, params={"token": answer.json()["token"]})
    assert not await session(other, params={"token": "1.x"})


async def test_guesses_at_both_workers_and_at_a_successor_count_together(
    make_worker: MakeWorker,
) -> None:
    workers = [make_worker(0), make_worker(1)]
    guesses = [await wrong(workers[n % 2], n) for n in range(ADDRESS.burst)]
    assert guesses == [401] * ADDRESS.burst
    for each in (*workers, make_worker(0)):
        assert await wrong(each, "one more") == 429
        assert (await each.post("/token", auth=BASIC)).status_code == 429
        assert await wrong(each, 0) == 401  # the same wrong password is not another guess
    assert (await make_worker(1, THERE).post("/token", auth=BASIC)).status_code == 200


async def test_a_body_too_large_for_the_part_of_a_worker_is_refused_with_the_reason(
    make_worker: MakeWorker,
) -> None:
    answer = await make_worker(0).post("/ops", json=[{"id": "x" * 70_000}])
    assert answer.status_code == 413
    assert "the 65,536 bytes of a worker's part of --max-upload-memory" in answer.json()["detail"]


def test_a_plain_request_is_judged_by_the_limits_of_all_workers() -> None:
    workers, clock = Workers(2), VirtualClock()
    one, other = (
        WriteAuthenticator(
            keeper_of("secret", clock.clock, Worker(workers, number)),
            (),
            clock.clock,
            workers=workers,
        )
        for number in range(2)
    )

    def plain(credentials: bytes) -> PlainRequest:
        return PlainRequest({b"authorization": b"Basic " + credentials}, bytearray(), HERE)

    right, guess = plain(b"OnNlY3JldA=="), plain(b"Ondyb25n")
    assert [each.plain_caller(guess) for each in (one, other)] == [None, None]
    assert [each.plain_caller(right) is None for each in (one, other)] == [False, False]
    limiter: Any = other._limiter
    for number in range(ADDRESS.burst):
        assert limiter.judge(HERE, b"%d" % number, is_right=False) == 0
    assert one.plain_caller(right) is None


def test_a_secret_is_the_same_for_all_workers_and_another_for_each_purpose_and_run() -> None:
    workers = Workers(2)
    assert workers.secret_of("a") == workers.secret_of("a")
    assert len({workers.secret_of("a"), workers.secret_of("b"), Workers(2).secret_of("a")}) == 3
