"""An agent with --object-url adds ``ref`` to operations."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.contract.wire.old_client import read
from tests.contract.wire.store_kinds import StoreKind, on_one_store
from tests.kits.contract.wire import Target, frame, id_of, operation

TIME = "2014-11-06T11:04:39.041Z"


@pytest.fixture(scope="module")
def referring(store_kind: StoreKind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    template = "http://a.b/{{type}}/{{id}}?t={{type}}&i={{id}}"
    with store_kind.agent(tmp_path_factory.mktemp("agent"), "--object-url", template) as agent:
        yield Target.of(agent)


@on_one_store
@pytest.mark.parametrize(
    ("type_", "id_", "ref"),
    [
        ("video", "xekw", "http://a.b/video/xekw?t=video&i=xekw"),
        ("a b", "c/d?e#f", "http://a.b/a%20b/c%2Fd%3Fe%23f?t=a%20b&i=c%2Fd%3Fe%23f"),
        (
            "é",
            '50%"é"&+',
            "http://a.b/%C3%A9/50%25%22%C3%A9%22%26%2B?t=%C3%A9&i=50%25%22%C3%A9%22%26%2B",
        ),
        (
            "t",
            "{{type}}{{id}}",
            "http://a.b/t/%7B%7Btype%7D%7D%7B%7Bid%7D%7D?t=t&i=%7B%7Btype%7D%7D%7B%7Bid%7D%7D",
        ),
    ],
)
def test_ref_is_the_url_of_the_object_live_resumed_and_replicated(
    referring: Target, type_: str, id_: str, ref: str
) -> None:
    with referring.follow() as live:
        referring.store({**operation("insert", "first", "thing"), "timestamp": TIME})
        first = live.block()
        referring.store({**operation("update", id_, type_), "timestamp": TIME})
        block = live.block()
        assert [event.event for event in read(bytes(live.received))] == ["insert", "update"]
    quoted = id_.replace('"', '\\"')
    data = f'{{"timestamp":"{TIME}","parents":[],"type":"{type_}","id":"{quoted}","ref":"{ref}"}}'
    assert block == frame(id_of(block), "update", data)
    with referring.follow(id_of(first)) as resumed:
        assert resumed.block() == block
    (path,) = {ref.removeprefix("http://a.b/").partition("?")[0]}
    assert referring.request("GET", f"/objects/{path}").json["ref"] == ref
    page = referring.request("GET", f"/objects?types={quote(type_)}")
    assert page.body.decode() == f"{data}\n"
    with referring.follow("0", types=type_) as replicated:
        state = replicated.take(2)[1]
        assert state == frame(id_of(state), "insert", data)
