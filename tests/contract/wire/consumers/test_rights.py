"""Rights to named consumers: all that a consumer gets must be readable."""

from collections.abc import Iterator

import pytest

from tests.contract.wire.consumers.consumers import CONSUMERS, OPLOG, ConsumerClient
from tests.contract.wire.store_kinds import EACH_DRIVER, StoreKind, kinds_of_store
from tests.kits.contract.passwords import READER, SESAME, WRITER, basic, sign_in
from tests.kits.contract.wire import JSON, SSE, Reply, Target, id_of

store_kind = kinds_of_store(EACH_DRIVER)

RIGHTS = f"""
[manager]
password_hash = "{SESAME}"
read = ["*"]
write = ["*"]
manage = ["*"]
[blind]
password_hash = "{SESAME}"
manage = ["*"]
[reader]
password_hash = "{SESAME}"
read = ["*"]
[videos]
password_hash = "{SESAME}"
read = ["system/oplog"]
types = ["video", "audio"]
[ada]
password_hash = "{SESAME}"
read = ["system/oplog"]
parents = ["user/ada"]
[shop]
password_hash = "{SESAME}"
read = ["shop/*"]
"""
MANAGER, BLIND, READS, VIDEOS, ADA, SHOP = (
    basic("sesame", name) for name in ("manager", "blind", "reader", "videos", "ada", "shop")
)


@pytest.fixture(scope="module")
def house(store_kind: StoreKind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("agent")
    file = folder / "rights.toml"
    file.write_text(RIGHTS)
    flags = ("--rights", str(file), "--password", READER, "--ingest-password", WRITER)
    with store_kind.agent(folder, *flags) as agent:
        target = Target.of(agent)
        for name in ("shop/orders", "other/t"):
            namespace, _, topic = name.partition("/")
            path = f"/v1/namespaces/{namespace}/topics/{topic}"
            assert target.request("PUT", path, b"{}", {**JSON, **MANAGER}).status == 200
        made = target.request(
            "POST", "/ops", b'{"event":"insert","type":"video","id":"a"}', {**JSON, **MANAGER}
        )
        assert made.status == 204
        yield target


def reading(consumer: ConsumerClient) -> list[Reply]:
    """Ask for all that a reader may do: whatever is refused is refused everywhere."""
    return [
        consumer.request("GET"),
        consumer.request("HEAD", "/stream", headers=SSE),
        consumer.acknowledging(1, "1"),
    ]


def managing(consumer: ConsumerClient, log: str) -> list[Reply]:
    return [
        consumer.put(log),
        consumer.seeking("now"),
        consumer.request("DELETE"),
    ]


@pytest.mark.parametrize(
    ("log", "members", "readers"),
    [
        (OPLOG, {}, [READS]),
        (OPLOG, {"types": ["video"]}, [READS, VIDEOS]),
        (OPLOG, {"types": ["audio", "video"]}, [READS, VIDEOS]),
        (OPLOG, {"types": ["video", "thing"]}, [READS]),
        (OPLOG, {"parents": ["user/ada"]}, [READS, ADA]),
        (OPLOG, {"parents": ["user/ada", "user/bob"]}, [READS]),
        (OPLOG, {"types": ["video"], "parents": ["user/ada"]}, [READS, VIDEOS, ADA]),
        ("shop/orders", {}, [READS, SHOP]),
        ("other/t", {}, [READS]),
    ],
)
def test_a_reader_must_be_allowed_all_that_the_consumer_gets(
    house: Target, log: str, members: dict[str, list[str]], readers: list[dict[str, str]]
) -> None:
    consumer = ConsumerClient(house, headers=MANAGER).create(log, **members)
    with consumer.follow() as stream:
        id_ = id_of(stream.block())
        for who in (READS, VIDEOS, ADA, SHOP, BLIND):
            replies = reading(consumer.at(house, who))
            listed = house.request("GET", CONSUMERS, None, who).json
            is_listed = consumer.name in [each["name"] for each in listed]
            opens = consumer.at(house, who)
            if who in readers:
                assert [each.status for each in replies[:2]] == [200, 200], who
                opens.acknowledge(stream, id_)
                assert is_listed
            else:
                assert [each.status for each in replies] == [403] * 3, who
                assert opens.acknowledging(stream.term, "1").status == 403
                assert log not in replies[0].problem()
                assert not is_listed
    assert consumer.request("DELETE").status == 204


def test_reading_alone_changes_no_consumer(house: Target) -> None:
    consumer = ConsumerClient(house, headers=MANAGER).create("shop/orders", start="copy")
    before = consumer.shown()
    for who in (READS, SHOP):
        assert [each.status for each in managing(consumer.at(house, who), "shop/orders")] == [
            403
        ] * 3
    assert consumer.shown() == before
    other = ConsumerClient(house, headers=READS)
    assert other.put("shop/orders").status == 403
    assert consumer.at(house, MANAGER).request("DELETE").status == 204


def test_managing_alone_moves_a_consumer_and_reads_nothing(house: Target) -> None:
    consumer = ConsumerClient(house, headers=BLIND)
    assert consumer.put("shop/orders").status == 201
    assert [each.status for each in reading(consumer)] == [403] * 3
    assert consumer.seeking("copy").status == 200
    assert consumer.request("DELETE").status == 204


def test_without_a_password_nothing_is_told(house: Target) -> None:
    consumer = ConsumerClient(house, headers=MANAGER).create()
    bad = basic("wrong", "manager")
    for headers in ({}, bad):
        nobody = consumer.at(house, headers)
        for reply in (*reading(nobody), *managing(nobody, OPLOG)):
            assert reply.status == 401, reply
        assert nobody.acknowledging(1, "").status == 401, "before the body is judged"
        assert house.request("GET", CONSUMERS, None, headers).status == 401
    assert ConsumerClient(house).request("GET").status == 401


def test_each_side_has_its_password(house: Target) -> None:
    reader, writer = basic(READER), basic(WRITER)
    consumer = ConsumerClient(house, headers=writer)
    assert consumer.at(house, reader).put().status == 401
    assert consumer.put(start="copy").status == 201
    assert consumer.request("GET").status == 401
    reads = consumer.at(house, reader)
    with reads.follow() as stream:
        live = stream.until("live")[-1]
        reads.acknowledge(stream, id_of(live))
        assert consumer.acknowledging(stream.term, id_of(live)).status == 401
        assert reads.seeking("now").status == 401
        assert reads.request("DELETE").status == 401
        assert reads.position() == id_of(live)
        assert consumer.seeking("now").status == 200
        stream.rest()
    assert consumer.request("DELETE").status == 204


def test_a_cookie_and_a_token_read_and_acknowledge_only(
    house: Target,
) -> None:
    manager = ConsumerClient(house, headers=MANAGER).create(start="copy")
    token = house.request("POST", "/token", b"", basic(READER)).json["token"]
    cookie = {"Cookie": sign_in(house)}
    for headers, query in ((cookie, ""), ({}, f"?token={token}")):
        reads = manager.at(house, headers)
        assert reads.request("GET", query).status == 200
        for method, path, body in (
            ("PUT", "", {"log": OPLOG}),
            ("POST", "/seek", {"position": "now"}),
            ("DELETE", "", None),
        ):
            assert reads.request(method, path + query, body).status == 401, (method, path)
        with reads.follow(query) as stream:
            live = stream.until("live")[-1]
            given = reads.request("POST", f"/position{query}", {"term": stream.term, "id": "1"})
            assert given.status == 204
    assert manager.position() == "0"
    assert manager.acknowledging(stream.term, id_of(live)).status == 204
