"""Two agents on one MongoDB: what one has answered, the next request at the other sees."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kits.contract.passwords import SESAME, basic
from tests.kits.contract.wire import JSON, Reply, Target
from tests.kits.servers.stores import new_place

RIGHTS = f"""
[ada]
password_hash = "{SESAME}"
read = ["shop/*", "system/oplog"]
write = ["shop/*", "system/oplog"]
manage = ["shop/*"]
leases = ["ada*"]
[bob]
password_hash = "{SESAME}"
read = ["system/oplog"]
write = ["shop/*"]
parents = ["user/bob"]
"""
ADA, BOB = basic("sesame", "ada"), basic("sesame", "bob")
TOPIC = "/v1/namespaces/shop/topics/orders"


@pytest.fixture
def agents(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Target]]:
    place = new_place(request, "mongo-plain").create()
    file = tmp_path / "rights.toml"
    file.write_text(RIGHTS)
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    flags = ("--rights", str(file))
    with place.agent(folders[0], *flags) as one, place.agent(folders[1], *flags) as two:
        yield [Target.of(one), Target.of(two)]


def ask(target: Target, method: str, path: str, headers: dict[str, str], body: Any = None) -> Reply:
    raw = None if body is None else json.dumps(body).encode()
    return target.request(method, path, raw, {**(JSON if raw else {}), **headers})


@pytest.mark.mongo
def test_the_next_request_at_another_agent_sees_what_one_has_answered(
    agents: list[Target],
) -> None:
    one, two = agents
    assert ask(one, "PUT", TOPIC, ADA, {}).status == 200
    assert ask(two, "GET", TOPIC, ADA).status == 200
    begun = ask(one, "POST", "/v1/txns", ADA, {"topic": "shop/orders"}).json["txn"]
    path = f"/v1/txns/{begun}"
    records = {"records": [{"topic": "shop/orders", "lsn": 0, "payload": "a"}]}
    assert ask(two, "POST", f"{path}/records", BOB, records).status == 404
    assert ask(two, "POST", f"{path}/records", ADA, records).status == 200
    assert [each["txn"] for each in ask(one, "GET", "/v1/txns", ADA).json] == [begun]
    assert ask(two, "GET", "/v1/txns", BOB).json == []
    assert ask(one, "POST", f"{path}/commit", ADA, {"records": 1}).status == 200
    once = {"key": "import", "number": 1}
    whole = {"once": once, "records": [{"topic": "shop/orders", "payload": "b"}]}
    assert ask(one, "POST", "/v1/txns", ADA, whole).status == 200
    refused = ask(two, "POST", "/v1/txns", BOB, {**whole, "once": {**once, "number": 2}})
    assert (refused.status, refused.problem()) == (
        409,
        "the key import belongs to another client",
    )
    polled = ask(two, "POST", f"{TOPIC}/poll", ADA, {}).json
    assert [each["payload"] for each in polled] == ["a", "b"]


@pytest.mark.mongo
def test_a_token_and_a_look_up_are_good_at_every_agent(agents: list[Target]) -> None:
    one, two = agents
    token = ask(one, "POST", "/token", BOB).json["token"]
    for id_, parent in (("mine", "user/bob"), ("other", "user/ada")):
        body = {"event": "insert", "type": "note", "id": id_, "parents": [parent]}
        assert ask(one, "POST", "/ops", ADA, body).status == 204
        found = ask(two, "GET", f"/objects/note/{id_}?token={token}", {})
        assert found.status == (200 if id_ == "mine" else 404)
        assert ask(two, "GET", f"/objects/note/{id_}", ADA).status == 200
    lines = ask(two, "GET", f"/objects?token={token}", {}).body.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["mine"]
