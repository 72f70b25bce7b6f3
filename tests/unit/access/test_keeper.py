"""All workers have the same credentials at once, and each costly check runs once."""

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.requests import HTTPConnection

from oplogd.config.command import parse
from oplogd.errors import StoreUnavailableError
from oplogd.web.access.authentication import Authenticator
from oplogd.web.access.caller import Caller
from oplogd.web.access.credentials import (
    COOKIE_SECONDS,
    MAX_SECONDS,
    TOKEN_SECONDS,
    Credentials,
)
from oplogd.web.access.guesses.attempts import ADDRESS
from oplogd.web.access.keeper import LOOK_SECONDS, Keeper
from oplogd.web.access.keys.scrypt import Hash
from oplogd.web.access.keys.signing import Purpose
from oplogd.web.access.sides import ReadAuthenticator, WriteAuthenticator
from oplogd.web.access.sources import Sources
from oplogd.web.http.plain import PlainRequest
from oplogd.web.http.problem import Problem
from oplogd.workers.workers import Worker, Workers
from tests.kits.clock.virtual import VirtualClock

# Of the passwords "ada's" and "bob's", cheap: of one block.
ADA = "$scrypt$ln=4,r=1,p=1$c2FsdHNhbHQ$eZrN9+Lobgu+oFGuitRRHArZSn9Kn/Z9aIz3/C4UQsc"
BOB = "$scrypt$ln=4,r=1,p=1$c2FsdHNhbHQ$jWNAjTfF16W5iPjWo3g/Ww6baXZf3jHZjBR/w7LHu2U"
RIGHTS = f"""
[ada]
password_hash = "{ADA}"
read = ["shop/*"]
[bob]
password_hash = ["{BOB}", "{ADA}"]
write = ["shop/*"]
"""


class Bench:
    """The access of an agent with a file of principals and the shared password ``shared``."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.file = folder / "rights.toml"
        self.file.write_text(RIGHTS)
        self.clock = VirtualClock()
        self.settings = parse(["--rights", str(self.file), *flags], {})
        self.secret: bytes | None = b"of the store"
        self.keeper = self.worker(None)

    def worker(self, worker: Worker | None) -> Keeper:
        return Keeper(Sources(self.settings), self.clock.clock, worker, lambda: self.secret)

    def readers(self, keeper: Keeper | None = None) -> ReadAuthenticator:
        return ReadAuthenticator(keeper or self.keeper, (), self.clock.clock)

    def writers(self, keeper: Keeper | None = None) -> WriteAuthenticator:
        return WriteAuthenticator(keeper or self.keeper, (), self.clock.clock)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, "--password", "shared")


def basic(user: str, password: str) -> bytes:
    return b"Basic " + base64.b64encode(f"{user}:{password}".encode())


def request(user: str, password: str, address: str = "192.0.2.1") -> HTTPConnection:
    headers = [(b"authorization", basic(user, password))]
    return HTTPConnection(
        {"type": "http", "headers": headers, "query_string": b"", "client": (address, 1)}
    )


def plain(user: str, password: str) -> PlainRequest:
    return PlainRequest({b"authorization": basic(user, password)}, bytearray(), "192.0.2.1")


async def name_of(side: Authenticator, user: str, password: str, **given: Any) -> str | int | None:
    """Return the name of the client, or the status of its refusal."""
    try:
        return (await side.caller(request(user, password, **given))).name
    except Problem as problem:
        return problem.status


async def test_the_user_name_chooses_the_password(bench: Bench) -> None:
    readers, writers = bench.readers(), bench.writers()
    for user, password, reading, writing in (
        ("ada", "ada's", "user:ada", "user:ada"),
        ("bob", "bob's", "user:bob", "user:bob"),
        ("bob", "ada's", "user:bob", "user:bob"),
        ("anybody", "shared", "password", 401),
        ("", "shared", "password", 401),
        ("ada", "shared", 401, 401),
        ("anybody", "ada's", 401, 401),
        ("Ada", "ada's", 401, 401),
    ):
        assert await name_of(readers, user, password) == reading, (user, password)
        assert await name_of(writers, user, password) == writing, (user, password)


async def test_a_password_is_checked_once_and_then_goes_the_short_way(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[tuple[str, bytes]] = []
    check = Credentials.check

    def counting(self: Credentials, name: str, password: bytes) -> Any:
        checked.append((name, password))
        return check(self, name, password)

    monkeypatch.setattr(Credentials, "check", counting)
    readers, writers = bench.readers(), bench.writers()
    assert readers.plain_caller(plain("ada", "ada's")) is None
    names = await asyncio.gather(*(name_of(readers, "ada", "ada's") for _ in range(20)))
    assert names == ["user:ada"] * 20
    assert await name_of(writers, "ada", "ada's") == "user:ada"
    caller = readers.plain_caller(plain("ada", "ada's"))
    assert caller is not None
    assert caller.name == "user:ada"
    assert checked == [("ada", b"ada's")]
    for _ in range(3):
        assert await name_of(readers, "ada", "wrong") == 401
        assert await name_of(readers, "nobody", "wrong") == 401
    assert readers.plain_caller(plain("ada", "wrong")) is None
    assert checked[1:] == [("ada", b"wrong"), ("nobody", b"wrong")], "a name that is none as well"
    assert await name_of(readers, "nobody", "shared") == "password"
    assert len(checked) == 3, "the shared password costs no check"


async def test_guesses_are_limited_before_they_are_checked(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = bench.readers()
    checked: list[bytes] = []

    def refusing(_: Credentials, __: str, password: bytes) -> None:
        checked.append(password)

    monkeypatch.setattr(Credentials, "check", refusing)
    statuses = [await name_of(readers, "ada", f"{n}") for n in range(ADDRESS.burst + 3)]
    assert statuses == [401] * ADDRESS.burst + [429] * 3
    assert len(checked) == ADDRESS.burst
    assert await name_of(readers, "ada", "one more", address="198.51.100.1") == 401


async def test_too_many_waiting_checks_are_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = asyncio.Event()
    most = 0
    running = 0

    async def to_thread(*_: object) -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await held.wait()
        running -= 1

    monkeypatch.setattr(asyncio, "to_thread", to_thread)
    monkeypatch.setattr("oplogd.web.access.checks._MAX_WAITING", 14)
    readers = bench.readers()
    asked = [
        asyncio.create_task(name_of(readers, "ada", f"{n}", address=f"10.{n}.0.1"))
        for n in range(20)
    ]
    done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result() for task in done] == [503] * 6
    held.set()
    await asyncio.gather(*asked)
    assert most == 2, "at a time"


async def test_a_verdict_ends_with_the_credentials_it_was_made_with(bench: Bench) -> None:
    async with running(bench.keeper, bench.clock) as look:
        readers = bench.readers()
        caller = await readers.caller(request("ada", "ada's"))
        assert readers.is_valid(caller.credential)
        value, _ = readers.sign(caller, Purpose.TOKEN, 60)
        bench.file.write_text(RIGHTS.replace('read = ["shop/*"]', 'read = ["shop/orders"]'))
        await look()
        await look()
        assert not readers.is_valid(caller.credential)
        now = readers.plain_caller(plain("ada", "ada's"))
        assert now is not None, "the password is as it was"
        assert now.right != caller.right
        signed = bench.keeper.credentials.signed(Purpose.TOKEN, value, bench.clock.now_ms() / 1000)
        assert signed is not None
        assert signed.right == now.right, "a token has the present right of its maker"
        bench.file.write_text(RIGHTS.replace(f'"{ADA}"\nread', f'"{BOB}"\nread'))
        await look()
        await look()
        assert (
            bench.keeper.credentials.signed(Purpose.TOKEN, value, bench.clock.now_ms() / 1000)
            is None
        )
        assert await name_of(readers, "ada", "ada's") == 401
        assert await name_of(readers, "ada", "bob's") == "user:ada"


def test_signed_values_of_a_principal_name_it_and_nobody_else(bench: Bench) -> None:
    credentials = bench.keeper.credentials
    ada, bob = (credentials.check(name, f"{name}'s".encode()) for name in ("ada", "bob"))
    assert ada is not None
    assert bob is not None
    for purpose in Purpose:
        value = credentials.sign(ada, purpose, 100)
        found = credentials.signed(purpose, value, 99)
        assert found is not None
        assert (found.name, found.until, found.right) == ("user:ada", 100, ada.right)
        assert found.life == {Purpose.COOKIE: COOKIE_SECONDS, Purpose.TOKEN: TOKEN_SECONDS}[purpose]
        longest = {Purpose.COOKIE: COOKIE_SECONDS, Purpose.TOKEN: MAX_SECONDS}[purpose] + 60
        assert credentials.signed(purpose, credentials.sign(ada, purpose, longest), 0) is not None
        assert credentials.signed(purpose, credentials.sign(ada, purpose, longest + 1), 0) is None
        assert credentials.signed(purpose, value, 100) is None
        assert credentials.signed(purpose, value.replace(".ada.", ".bob."), 99) is None
        assert credentials.signed(purpose, value.replace(".ada.", "."), 99) is None
        assert credentials.signed(purpose, value.replace(".ada.", "..ada."), 99) is None
        assert credentials.sign(bob, purpose, 100) != value


def test_the_file_of_principals_is_not_enough_to_sign(tmp_path: Path) -> None:
    benches = [Bench(tmp_path), Bench(tmp_path)]
    benches[1].secret = b"of another store"
    callers = [each.keeper.credentials.check("ada", b"ada's") for each in benches]
    value = benches[0].keeper.credentials.sign(cast(Caller, callers[0]), Purpose.COOKIE, 100)
    signed = [each.keeper.credentials.signed(Purpose.COOKIE, value, 99) for each in benches]
    assert [each is None for each in signed] == [False, True]
    early = Bench(tmp_path)
    early.secret = None
    assert early.keeper.credentials.signed(Purpose.COOKIE, value, 99) is None
    with pytest.raises(StoreUnavailableError):
        early.keeper.credentials.sign(cast(Caller, callers[0]), Purpose.COOKIE, 100)
    early.secret = b"of the store"
    assert early.keeper.credentials.signed(Purpose.COOKIE, value, 99) is not None


async def test_a_change_that_one_worker_has_seen_holds_at_all_at_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "--password", "shared")
    workers = Workers(2)
    one, other = (bench.worker(Worker(workers, number)) for number in range(2))
    async with running(one, bench.clock) as look:
        bench.file.write_text(RIGHTS.replace("[bob]", "[eve]"))
        await look()
        await look()
        assert one.credentials.is_principal("eve")
        assert other.credentials.is_principal("eve"), "without a look of its own"
        assert not other.credentials.is_principal("bob")
        late = bench.worker(Worker(workers, 1))
        assert late.credentials.is_principal("eve"), "its settings are older"
        assert one.digest(b"x") == other.digest(b"x") == late.digest(b"x")


async def test_a_change_and_an_error_are_told(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    changes: list[int] = []
    async with running(bench.keeper, bench.clock, lambda: changes.append(1)) as look:
        await look()
        assert (changes, caplog.messages) == ([], [])
        bench.file.write_text("")
        for _ in range(3):
            await look()
        error = "--rights: 'rights.toml' names no principal; the content before it stays in use"
        assert caplog.messages == [error]
        assert bench.keeper.credentials.errors == [error]
        assert bench.keeper.credentials.is_principal("ada")
        bench.file.write_text(RIGHTS.replace("[bob]", "[eve]"))
        for _ in range(3):
            await look()
        assert caplog.messages[1:] == ["passwords and rights have changed"]
        assert not bench.keeper.credentials.errors
        assert changes == [1, 1]


@asynccontextmanager
async def running(
    keeper: Keeper, clock: VirtualClock, changed: Callable[[], None] = lambda: None
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Run a keeper. Yield a function that lets it look once."""
    looked = asyncio.Event()
    own = keeper._look

    async def noting() -> None:
        await own()
        looked.set()

    keeper._look = noting  # type: ignore[method-assign]
    task = asyncio.create_task(keeper.run(changed))
    await asyncio.sleep(0)

    async def look() -> None:
        looked.clear()
        clock.move(LOOK_SECONDS)
        await looked.wait()
        await asyncio.sleep(0)

    try:
        yield look
    finally:
        task.cancel()


async def test_a_worker_that_takes_the_role_keeps_the_content_in_use(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "--password", "shared")
    workers = Workers(2)
    first = bench.worker(Worker(workers, 0))
    async with running(first, bench.clock) as look:
        bench.file.write_text(RIGHTS.replace("[bob]", "[eve]"))
        await look()
        await look()
        bench.file.write_text("")
    successor = bench.worker(Worker(workers, 0))  # with the settings of the start
    async with running(successor, bench.clock) as look:
        for _ in range(3):
            await look()
        assert successor.credentials.errors
        for keeper in (first, successor):
            assert keeper.credentials.is_principal("eve")
            assert not keeper.credentials.is_principal("bob")
        bench.file.write_text(RIGHTS)
        for _ in range(2):
            await look()
        assert first.credentials.is_principal("bob"), "what the file says, also if it was so before"


async def test_a_credential_that_ends_during_a_slow_body_is_refused(bench: Bench) -> None:
    async with running(bench.keeper, bench.clock) as look:
        writers = bench.writers()
        bob = await writers.caller(request("bob", "bob's"))
        writers.require_still(bob)
        ending = bob._replace(until=bench.clock.now_ms() / 1000 + 5)
        writers.require_still(ending)
        bench.clock.move(5)
        with pytest.raises(Problem) as expired:
            writers.require_still(ending)
        bench.file.write_text(RIGHTS.replace("[bob]", "[eve]"))
        await look()
        await look()
        with pytest.raises(Problem) as gone:
            writers.require_still(bob)
        assert (expired.value.status, gone.value.status) == (401, 401)


async def test_principals_that_stay_need_no_second_check(bench: Bench) -> None:
    async with running(bench.keeper, bench.clock) as look:
        readers = bench.readers()
        for name in ("ada", "bob"):
            assert await name_of(readers, name, f"{name}'s") == f"user:{name}"
        assert await name_of(readers, "bob", "wrong") == 401
        bench.file.write_text(RIGHTS.replace('write = ["shop/*"]', 'write = ["other/*"]'))
        await look()
        await look()
        for name in ("ada", "bob"):
            assert readers.plain_caller(plain(name, f"{name}'s")) is not None
        bob = await readers.caller(request("bob", "bob's"))
        assert [*bob.right.write.namespaces] == ["other"]
        bench.file.write_text("")
        await look()
        await look()
        assert bench.keeper.credentials.errors
        assert readers.plain_caller(plain("ada", "ada's")) is not None


async def test_each_name_of_a_guess_is_a_guess(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs: list[int] = []
    fits = Hash.fits

    def counting(self: Hash, password: bytes) -> bool:
        costs[-1] += self.cost
        return fits(self, password)

    monkeypatch.setattr(Hash, "fits", counting)
    readers = bench.readers()
    for number in range(ADDRESS.burst):
        costs.append(0)
        name = ("ada", "bob", f"nobody-{number}")[number % 3]
        assert await name_of(readers, name, f"wrong-{number // 3}") == 401
    assert len(set(costs)) == 1, "the work does not tell a principal from another name"
    for name in ("nobody-x", "ada"):
        assert await name_of(readers, name, "wrong-x") == 429
