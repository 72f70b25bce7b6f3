"""The endpoints of the short way: each leaves what it does not know, and counts nothing then."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from oplogd.clock import SYSTEM
from oplogd.decode.faults import FaultyError
from oplogd.decode.media_types import JSON, NDJSON
from oplogd.decode.pieces import at_once
from oplogd.errors import StoreUnavailableError
from oplogd.ingest.appends import Appends
from oplogd.ingest.budget import Budgets
from oplogd.ingest.counters import IngestCounters
from oplogd.ingest.ignored import IgnoredMembers
from oplogd.ingest.operations import decoding
from oplogd.ingest.queue import IngestQueue, Intake
from oplogd.model.message import Message
from oplogd.store.transactions import RecordLimits
from oplogd.topics.codec.codec import reading_publish
from oplogd.topics.codec.json_codec import JsonCodec
from oplogd.topics.transactions.begin import Begin, parsing_begin
from oplogd.watch.health import Health
from oplogd.web.access.authentication import Authenticator
from oplogd.web.access.caller import Caller
from oplogd.web.access.guesses.attempts import ADDRESS, AttemptLimiter
from oplogd.web.access.right_bodies import right_of
from oplogd.web.access.sides import ReadAuthenticator, WriteAuthenticator
from oplogd.web.http.bodies import BodyReader
from oplogd.web.http.plain import PlainRequest
from oplogd.web.http.problem import Problem
from oplogd.web.oplog.ingest import Ingest
from oplogd.web.v1.plain import PlainMessages, PlainTransactions, find_of_topic
from oplogd.web.v1.requests import committing_whole
from tests.kits.web.keepers import keeper_of

ONE = b'{"event":"insert","type":"video","id":"1"}'
UNKNOWN = ONE[:-1] + b',"more":1}'
WHOLE = b'{"records":[{"topic":"shop/a","payload":"a"}]}'
RIGHT, WRONG = b"Basic OnNlY3JldA==", b"Basic Ondyb25n"
TOPIC = b"/v1/namespaces/shop/topics/a"


def plain(body: bytes, headers: Mapping[bytes, bytes] | None = None) -> PlainRequest:
    given = {b"content-type": b"application/json"} | dict(headers or {})
    return PlainRequest(given, bytearray(body), "192.0.2.1")


class Bench:
    def __init__(self, password: str | None = None) -> None:
        self.counters = IngestCounters()
        self.is_stopping = False
        self.budgets = Budgets.of(1 << 20, 30.0)
        self.queue = IngestQueue(100, 1 << 20)
        keeper = keeper_of(password)
        self.writers = WriteAuthenticator(keeper, (), SYSTEM)
        self.readers = ReadAuthenticator(keeper, (), SYSTEM)
        bodies = self.bodies = BodyReader(self.budgets, 1_000)
        intake = Intake(self.queue, self.queue, self.counters, Health().part("writer"))
        ignored = IgnoredMembers(self.counters)
        self.ingest = Ingest(self.writers, intake, ignored, bodies, lambda: self.is_stopping)
        unused: Any = None
        publisher: Any = type("Publisher", (), {"max_messages": 10})()
        self.messages = PlainMessages(
            publisher, unused, bodies, self.readers, self.writers, lambda: self.is_stopping
        )

    def leaves(self, body: bytes, headers: Mapping[bytes, bytes] | None = None) -> bool:
        """Return whether /ops leaves a request, and check that nothing was counted then."""
        work = self.ingest.begin(plain(body, headers))
        if work is None:
            assert self.counters == IngestCounters()
            assert (self.queue.count, self.writers.refused) == (0, 0)
        return work is None

    def leaves_whole(self, body: bytes) -> bool:
        service: Any = type("Service", (), {"limits": RecordLimits(2)})()
        unused: Any = None
        whole = PlainTransactions(
            service, unused, self.bodies, self.writers, unused, lambda: self.is_stopping
        )
        return whole.begin(plain(body)) is None

    def leaves_message(self, path: bytes, body: bytes) -> bool:
        actions = {b"publish": self.messages.publish, b"poll": self.messages.poll}
        begin = find_of_topic(TOPIC + path, actions)
        return begin is None or begin(plain(body)) is None


@pytest.mark.parametrize("body", [ONE, b"[" + ONE + b"]", b" " + ONE])
async def test_operations_are_taken(body: bytes) -> None:
    bench = Bench()
    assert not bench.leaves(body)
    assert (bench.counters.received, bench.queue.count) == (1, 1)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{}", b"[]", UNKNOWN, b"[" + ONE + b"," + UNKNOWN + b"]", b"[" + ONE + b",1]",
        ONE.replace(b'"1"', b'"' + b"1" * 1_000 + b'"'), b"[" + b",".join([ONE] * 101) + b"]",
    ],
)  # fmt: skip
async def test_operations_that_would_be_refused_or_reported_are_left(body: bytes) -> None:
    assert Bench().leaves(body)


@pytest.mark.parametrize("type_", [b"", b"text/plain", b"application/json; charset=utf-8"])
async def test_other_media_types_are_left(type_: bytes) -> None:
    assert Bench().leaves(ONE, {b"content-type": type_})


async def test_all_writes_are_left_while_the_agent_stops() -> None:
    bench = Bench()
    bench.is_stopping = True
    assert bench.leaves(ONE)
    assert bench.leaves_message(b"/publish", b'{"messages":["a"]}')
    assert bench.leaves_whole(WHOLE)


@pytest.mark.parametrize("kind", ["writes", "polls"])
async def test_bodies_are_left_while_others_use_up_the_memory(kind: str) -> None:
    bench = Bench()
    budget = getattr(bench.budgets, kind)
    budget.used = budget.total
    assert bench.leaves(ONE) is (kind == "writes")
    assert bench.leaves_message(b"/poll", b'{"limit":0}')


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (b"/publish", b'{"messages":[]}'),
        (b"/publish", b'{"messages":["a",1]}'),
        (b"/publish", b'{"messages":["a"],"transactionWritePointer":1}'),
        (b"/publish", b'{"messages":["%s"]}' % (b"a" * 1_000)),
        (b"/poll", b""),
        (b"/poll", b'{"limit":0}'),
        (b"/poll", b'{"transaction":{"transactionId":5,"readPointer":5}}'),
        (b"/poll/", b"{}"),
        (b"%2F/poll", b"{}"),
    ],
)
async def test_messages_that_would_be_refused_and_snapshots_are_left(
    path: bytes, body: bytes
) -> None:
    assert Bench().leaves_message(path, body)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{}", b'{"group":"g"}', b'{"records":[]}', WHOLE[:-1] + b',"more":1}',
        WHOLE.replace(b'"a"', b"1"), WHOLE.replace(b"shop/a", b"a"), b"[" + WHOLE + b"]",
        b'{"records":[{"topic":"system/oplog","payload":%s}]}' % UNKNOWN,
        b'{"records":[%s]}' % b",".join([b'{"topic":"shop/a","payload":"a"}'] * 3),
        WHOLE.replace(b'"a"', b'"%s"' % (b"a" * 1_000)),
    ],
)  # fmt: skip
async def test_begins_and_whole_transactions_that_would_be_refused_or_reported_are_left(
    body: bytes,
) -> None:
    assert Bench().leaves_whole(body)


@pytest.mark.parametrize(
    ("once", "then"),
    [
        ({"key": "k", "number": 1}, "a repeated request continues"),
        (None, "a repeated request may commit the records twice"),
    ],
)
async def test_an_unconfirmed_whole_transaction_tells_what_a_repeat_does(
    once: dict[str, Any] | None, then: str
) -> None:
    class Service:
        async def commit_whole(self, _: Begin) -> None:
            raise StoreUnavailableError("away")

    service: Any = Service()
    body = msgspec.json.decode(WHOLE) | ({"once": once} if once else {})
    asked = at_once(parsing_begin(msgspec.json.encode(body), "", 10))
    with pytest.raises(Problem, match=f"not confirmed; {then}: away"):
        await committing_whole(service, Appends(Health()), asked)


@pytest.mark.parametrize("name", [b"system", b"..", b"n" * 250, b"a b"])
def test_reserved_and_invalid_names_are_left(name: bytes) -> None:
    actions: Any = {b"publish": object()}
    assert find_of_topic(b"/v1/namespaces/%s/topics/a/publish" % name, actions) is None


async def test_only_the_right_password_is_admitted_and_others_are_not_counted_here() -> None:
    for given in ({}, {b"authorization": WRONG}, {b"authorization": b"Bearer a"}):
        assert Bench("secret").leaves(ONE, given)
    assert not Bench("secret").leaves(ONE, {b"authorization": RIGHT})


@pytest.mark.parametrize(
    ("right", "taken"),
    [
        ({"write": ["shop/a", "system/oplog"], "read": ["shop/a"]}, (True, True, True, True)),
        ({"write": ["shop/a", "system/oplog"], "types": ["user"]}, (False, True, True, False)),
        ({"write": ["shop/b"], "manage": ["*"]}, (False, False, False, False)),
        ({"read": ["*"], "manage": ["*"]}, (False, False, False, True)),
    ],
)
async def test_what_a_right_does_not_grant_is_left(
    right: dict[str, Any], taken: tuple[bool, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = Caller("user:ada", right_of(right))
    monkeypatch.setattr(Authenticator, "plain_caller", lambda *_: caller)
    bench = Bench()
    assert taken == (
        not bench.leaves(ONE),
        not bench.leaves_message(b"/publish", b'{"messages":[{"payload":"a"}]}'),
        not bench.leaves_whole(WHOLE),
        not bench.leaves_message(b"/poll", b"{}"),
    )


async def test_the_right_password_is_left_to_the_app_while_its_address_must_wait() -> None:
    bench = Bench("secret")
    for number in range(ADDRESS.burst):
        bench.writers._limiter.judge("192.0.2.1", b"%d" % number, is_right=False)
    assert bench.leaves(ONE, {b"authorization": RIGHT})


async def test_an_address_with_the_right_password_becomes_known() -> None:
    bench = Bench("secret")
    assert not bench.leaves(ONE, {b"authorization": RIGHT})
    limiter = bench.writers._limiter
    assert isinstance(limiter, AttemptLimiter)
    assert list(limiter.known) == ["192.0.2.1"]


@pytest.mark.parametrize(("body", "type_"), [(b"1\n2\n", NDJSON), (b"[1,2]", JSON)])
def test_a_brief_look_ends_at_the_first_fault(body: bytes, type_: str) -> None:
    with pytest.raises(FaultyError):
        at_once(decoding(body, type_, "", 10, is_brief=True))


def test_a_brief_look_at_messages_ends_at_the_first_fault() -> None:
    looked_at = 0

    def check(given: Any) -> Message:
        nonlocal looked_at
        looked_at += 1
        return JsonCodec().message(given, None)

    with pytest.raises(FaultyError):
        at_once(reading_publish(JsonCodec(), b'{"messages":[1,2]}', check, 10, is_brief=True))
    assert looked_at == 1
