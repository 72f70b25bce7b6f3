"""Each endpoint asks for its right: nothing, a wrong, an expired, a narrow and a full one."""

import json
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from oplogd.web.access.keys.signing import ExpiringSigner, Purpose, signing_key
from tests.contract.wire.store_kinds import EACH_DRIVER, StoreKind, kinds_of_store
from tests.kits.contract.passwords import READER, SESAME, WRITER, basic
from tests.kits.contract.wire import JSON, SSE, Reply, Target, wait_until
from tests.kits.paths import ROOT

store_kind = kinds_of_store(EACH_DRIVER)

RIGHTS = f"""
[full]
password_hash = "{SESAME}"
read = ["*"]
write = ["*"]
manage = ["*"]
leases = ["*"]
[narrow]
password_hash = "{SESAME}"
read = ["mine/*"]
write = ["mine/*"]
manage = ["mine/*"]
leases = ["mine*"]
[second]
password_hash = "{SESAME}"
write = ["mine/*", "system/oplog"]
[powerless]
password_hash = "{SESAME}"
"""
FULL, NARROW, SECOND, POWERLESS = (
    basic("sesame", name) for name in ("full", "narrow", "second", "powerless")
)

MESSAGES = {"messages": [{"payload": "a"}]}
OPERATION = {"event": "insert", "type": "thing", "id": "a"}
TOPIC = "/v1/namespaces/{namespace}/topics/{topic}"
LEASE = {"holder": "h", "ttl_ms": 60_000}


class Row(NamedTuple):
    """An endpoint. ``full``, ``narrow``: the status for each client, at the things of others.

    ``own``: that for the narrow client at its own things. None: it has none there. ``path``: with
    ``{of}`` for the owner. ``guarded``: without a right the answer is 401.
    """

    full: int
    narrow: int
    own: int | None = None
    body: Any = None
    path: str = ""
    guarded: bool = True
    headers: Mapping[str, str] = MappingProxyType({})


def topic(action: str, full: int, narrow: int, own: int | None = None, **others: Any) -> Row:
    path = "/v1/namespaces/{of}/topics/t" + (f"/{action}" if action else "")
    return Row(full, narrow, own, path=path, **others)


def consumer(action: str, status: int, **others: Any) -> Row:
    return Row(status, 403, status, path=f"/v1/consumers/{{of}}{action}", **others)


def public(status: int = 200, **others: Any) -> Row:
    return Row(status, status, guarded=False, **others)


POINTED = {"transactionWritePointer": 9, **MESSAGES}
STREAM = {"Accept": "text/event-stream"}
ROWS: dict[str, Row] = {
    "GET /": Row(200, 403, headers=STREAM),
    "GET /ops": Row(200, 403, headers=STREAM),
    "GET /objects": Row(200, 403),
    "GET /objects/{type}/{id}": Row(404, 403, path="/objects/thing/none"),
    "POST /": Row(204, 403, body=OPERATION),
    "POST /ops": Row(204, 403, body=OPERATION),
    f"PUT {TOPIC}": topic("", 409, 403, 409, body={}),
    f"GET {TOPIC}": topic("", 200, 403, 200),
    f"PUT {TOPIC}/properties": topic("properties", 200, 403, 200, body={}),
    f"POST {TOPIC}/publish": topic("publish", 200, 403, 200, body=MESSAGES),
    f"POST {TOPIC}/poll": topic("poll", 200, 403, 200, body={}),
    f"GET {TOPIC}/stream": topic("stream", 200, 403, 200, headers=STREAM),
    f"POST {TOPIC}/store": topic("store", 200, 403, 200, body=POINTED),
    f"POST {TOPIC}/rollback": topic(
        "rollback", 200, 403, 200, body={"transactionWritePointer": 7, "rollbackKeys": []}
    ),
    f"GET {TOPIC}/pointers": topic("pointers", 200, 403, 200),
    f"GET {TOPIC}/entries": topic("entries", 200, 403, 200),
    "GET /v1/namespaces/{namespace}/topics": Row(200, 200, 200, path="/v1/namespaces/{of}/topics"),
    "GET /v1/namespaces": Row(200, 200),
    "POST /v1/pointers/{pointer}/commit": Row(
        200, 403, 200, body={"topics": ["{of}/t"]}, path="/v1/pointers/5/commit"
    ),
    "POST /v1/pointers/{pointer}/abort": Row(
        200, 403, 200, body={"topics": ["{of}/t"]}, path="/v1/pointers/6/abort"
    ),
    "GET /v1/pointers": Row(200, 200),
    "POST /v1/txns": Row(201, 403, 201, body={"topic": "{of}/t"}),
    "POST /v1/txns/{txn}/records": Row(
        200,
        404,
        200,
        body={"records": [{"topic": "{of}/t", "lsn": 0, "payload": "a"}]},
        path="/v1/txns/{txn}/records",
    ),
    "POST /v1/txns/{txn}/commit": Row(
        200, 404, 200, body={"records": 1}, path="/v1/txns/{txn}/commit"
    ),
    "POST /v1/txns/{txn}/abort": Row(409, 404, 409, body={}, path="/v1/txns/{txn}/abort"),
    "GET /v1/txns/{txn}": Row(200, 404, 200, path="/v1/txns/{txn}"),
    "GET /v1/txns": Row(200, 200),
    "GET /v1/once/{key}": Row(200, 404, 200, path="/v1/once/{of}"),
    "GET /v1/once": Row(200, 200),
    "DELETE /v1/once/{key}": Row(204, 404, 204, path="/v1/once/{of}"),
    "POST /v1/leases/{lease}": Row(200, 403, 200, body=LEASE, path="/v1/leases/{of}"),
    "GET /v1/leases/{lease}": Row(200, 403, 200, path="/v1/leases/{of}"),
    "GET /v1/leases": Row(200, 200),
    "DELETE /v1/leases/{lease}": Row(
        200, 403, 200, body={"holder": "h", "term": 1}, path="/v1/leases/{of}"
    ),
    "PUT /v1/consumers/{name}": consumer("", 200, body={"log": "{of}/t"}),
    "GET /v1/consumers/{name}": consumer("", 200),
    "GET /v1/consumers": Row(200, 200),
    "GET /v1/consumers/{name}/stream": consumer("/stream", 200, headers=STREAM),
    "POST /v1/consumers/{name}/position": consumer("/position", 412, body={"term": 9, "id": "1"}),
    "POST /v1/consumers/{name}/seek": consumer("/seek", 200, body={"position": "now"}),
    "DELETE /v1/consumers/{name}": consumer("", 204),
    f"DELETE {TOPIC}": topic("", 200, 403, 200),
    "POST /token": Row(200, 200),
    "POST /session": public(401, body={"password": "wrong"}),
    "GET /session": public(),
    "DELETE /session": public(204),
    "GET /status": public(),
    "GET /metrics": public(),
    "GET /live": public(),
    "GET /ready": public(),
    "GET /v1/schemas/{name}": public(path="/v1/schemas/PollRequest"),
    "GET /openapi.json": public(),
    "GET /docs": public(),
    "GET /docs/oauth2-redirect": public(),
}


class House(NamedTuple):
    """An agent with things of two owners. ``txns``: an open transaction of each."""

    target: Target
    txns: dict[str, str]

    def ask(self, key: str, headers: dict[str, str], of: str = "theirs", query: str = "") -> Reply:
        """Send the request of a row."""
        row, (method, path) = ROWS[key], key.split(" ")
        path = (row.path or path).format(of=of, txn=self.txns[of])
        body = None
        if row.body is not None or method not in ("GET", "DELETE"):
            text = "" if row.body is None else json.dumps(row.body).replace("{of}", of)
            body = text.encode()
        if row.headers == STREAM:
            method = "HEAD"
        typed = JSON if body else {}
        return self.target.request(method, path + query, body, {**typed, **row.headers, **headers})


@pytest.fixture(scope="module")
def house(store_kind: StoreKind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("agent")
    file = folder / "rights.toml"
    file.write_text(RIGHTS)
    flags = ("--rights", str(file), "--password", READER, "--ingest-password", WRITER)
    with store_kind.agent(folder, *flags) as agent:
        target = Target.of(agent)
        yield House(target, {of: furnish(target, of) for of in ("theirs", "mine")})


def furnish(target: Target, of: str) -> str:
    """Make the things of an owner, and return its open transaction."""
    owner = {**JSON, **(FULL if of == "theirs" else NARROW)}

    def make(method: str, path: str, body: Any, status: int = 200) -> Reply:
        reply = target.request(method, path, json.dumps(body).encode(), owner)
        assert reply.status == status, (path, reply.body)
        return reply

    path = f"/v1/namespaces/{of}/topics/t"
    make("PUT", path, {})
    for pointer in (5, 6, 7):
        make("POST", f"{path}/publish", {"transactionWritePointer": pointer, **MESSAGES})
    make("POST", f"/v1/leases/{of}", LEASE)
    make("PUT", f"/v1/consumers/{of}", {"log": f"{of}/t"}, 201)
    once = {"key": of, "number": 1}
    records = [{"topic": f"{of}/t", "payload": "a"}]
    make("POST", "/v1/txns", {"topic": f"{of}/t", "once": once, "records": records})
    txn: str = make("POST", "/v1/txns", {"topic": f"{of}/t"}, 201).json["txn"]
    return txn


def expired(purpose: Purpose) -> str:
    return ExpiringSigner(signing_key(READER)).sign(purpose, 1_700_000_000)


def test_every_endpoint_has_a_row_here_and_in_the_reference(house: House) -> None:
    document = house.target.request("GET", "/openapi.json").json
    described = {
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        for method in methods
    }
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            takes_tokens = {"bearer": []} in operation.get("security", ())
            assert takes_tokens == ROWS[f"{method.upper()} {path}"].guarded, (method, path)
    # The pages, and the paths of the first server.
    pages = {"GET /", "POST /", "GET /openapi.json", "GET /docs", "GET /docs/oauth2-redirect"}
    assert set(ROWS) == described | pages
    text = (ROOT / "docs/reference/rights.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `((?:GET|POST|PUT|DELETE) [^`]+)` \|", text, re.MULTILINE)) == set(
        ROWS
    )


def test_each_endpoint_asks_for_its_right(house: House) -> None:
    cookie = {"Cookie": f"oplog={expired(Purpose.COOKIE)}"}
    token = f"?token={expired(Purpose.TOKEN)}"
    for key, row in ROWS.items():
        refused = 401 if row.guarded else row.full
        assert house.ask(key, {}).status == refused, key
        assert house.ask(key, basic("wrong", "full")).status == refused, key
        assert house.ask(key, basic("sesame", "nobody")).status == refused, key
        assert house.ask(key, cookie).status == refused, key
        if row.guarded or key.startswith("GET "):
            assert house.ask(key, {}, query=token).status == refused, key
        reply = house.ask(key, NARROW)
        assert reply.status == row.narrow, (key, reply.body)
        if row.guarded and reply.status == 200:
            assert "theirs" not in reply.body.decode(), key
        powerless = house.ask(key, POWERLESS)
        assert powerless.status == row.narrow, (key, powerless.body)
        if row.own is not None:
            own = house.ask(key, NARROW, "mine")
            assert own.status == row.own, (key, own.body)
        assert "mine" not in powerless.body.decode(), key
        reply = house.ask(key, FULL)
        assert reply.status == row.full, (key, reply.body)


def test_a_lease_is_no_condition_for_a_client_that_may_not_use_it(house: House) -> None:
    fence = {**SECOND, "Oplog-Lease": "mine; term=1"}
    for key in (
        "POST /ops",
        f"POST {TOPIC}/publish",
        "POST /v1/txns",
        "POST /v1/txns/{txn}/records",
        "POST /v1/txns/{txn}/commit",
        "POST /v1/txns/{txn}/abort",
    ):
        reply = house.ask(key, fence, "mine")
        said = "the right to use the lease mine is missing"
        assert (reply.status, reply.json.get("detail")) == (403, said), key


def test_a_key_belongs_to_its_client_until_one_that_manages_all_takes_it(house: House) -> None:
    def commit(number: int, headers: dict[str, str]) -> Reply:
        records = [{"topic": "mine/keys", "payload": "a"}]
        body = json.dumps({"once": {"key": "taken", "number": number}, "records": records})
        return house.target.request("POST", "/v1/txns", body.encode(), {**JSON, **headers})

    def owner() -> object:
        return house.target.request("GET", "/v1/once/taken", None, FULL).json["owner"]

    def refuses(number: int, headers: dict[str, str]) -> None:
        reply = commit(number, headers)
        said = "the key taken belongs to another client"
        assert (reply.status, reply.json["detail"]) == (409, said)

    house.target.request("PUT", "/v1/namespaces/mine/topics/keys", b"{}", {**JSON, **FULL})
    first = commit(1, NARROW)
    assert (first.status, owner()) == (200, "user:narrow")
    assert commit(1, NARROW).json == commit(1, FULL).json == first.json
    for number in (0, 1, 2):
        refuses(number, SECOND)
    assert (commit(2, NARROW).status, owner()) == (200, "user:narrow")
    assert (commit(3, FULL).status, owner()) == (200, None)
    for number in (2, 3, 4):
        refuses(number, NARROW)


def test_numbers_are_shown_to_all_and_names_to_full_readers(house: House) -> None:
    def names(path: str, headers: dict[str, str]) -> bool:
        return b"a-consumer" in house.target.request("GET", path, None, headers).body

    with house.target.follow(None, {**SSE, **basic(READER)}, name="a-consumer"):
        for path in ("/status", "/metrics"):
            for headers in ({}, NARROW, POWERLESS, basic(WRITER), basic("wrong", "full")):
                assert not names(path, headers), (path, headers)
            for headers in (FULL, basic(READER)):
                assert names(path, headers), (path, headers)
    for headers in ({}, NARROW):
        status = house.target.request("GET", "/status", None, headers).json
        assert {"consumers", "reason", "credential_errors"}.isdisjoint(status)
        text = house.target.request("GET", "/metrics", None, headers).body.decode()
        assert "theirs" not in text
        assert "oplog_events_received_total" in text
    assert house.target.request("GET", "/status", None, FULL).json["credential_errors"] == []


def test_a_session_tells_whether_its_client_reads_operations(house: House) -> None:
    for headers, reads in ((FULL, True), (basic(READER), True), (NARROW, False), (SECOND, False)):
        session = house.target.request("GET", "/session", None, headers).json
        assert (session["signed_in"], session["reads_operations"]) == (True, reads)
    assert house.target.request("GET", "/session").json["reads_operations"] is False


LISTS = (
    "/v1/namespaces",
    "/v1/namespaces/theirs/topics",
    "/v1/namespaces/mine/topics",
    "/v1/leases",
    "/v1/pointers",
    "/v1/txns",
    "/v1/once",
)


def pages(target: Target, path: str, headers: dict[str, str]) -> Iterator[tuple[list[Any], str]]:
    """Yield all pages of one item: their items, and what the header says of the next one."""
    after = ""
    while True:
        reply = target.request("GET", f"{path}?limit=1&after={after}", None, headers)
        assert reply.status == 200
        after = reply.header("Oplog-Next") or ""
        yield [lasting(each) for each in reply.json], after
        if not after:
            return


def lasting(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name != "expires_in_ms"}


def test_no_page_of_a_list_tells_of_hidden_items(
    store_kind: StoreKind, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("agent")
    file = folder / "rights.toml"
    file.write_text(RIGHTS)
    with store_kind.agent(folder, "--rights", str(file)) as agent:
        target = Target.of(agent)
        for of in ("theirs", "mine"):
            furnish(target, of)
        for path in LISTS:
            assert list(pages(target, path, POWERLESS)) == [([], "")], path
            whole = [*map(lasting, target.request("GET", path, None, NARROW).json)]
            found = [*pages(target, path, NARROW)]
            assert [item for items, _ in found for item in items] == whole, path
            assert len(found) == max(1, len(whole)), path
            assert "theirs" not in json.dumps(whole), path


def test_rights_are_asked_again_when_a_transaction_commits(
    store_kind: StoreKind, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("agent")
    file = folder / "rights.toml"
    file.write_text(RIGHTS)
    with store_kind.agent(folder, "--rights", str(file)) as agent:
        target = Target.of(agent)
        txn = furnish(target, "mine")
        owner = {**JSON, **NARROW}
        records = json.dumps({"records": [{"topic": "mine/t", "lsn": 0, "payload": "a"}]})
        reply = target.request("POST", f"/v1/txns/{txn}/records", records.encode(), owner)
        assert reply.status == 200
        file.write_text(RIGHTS.replace('write = ["mine/*"]', 'write = ["mine/other"]'))
        agent.wait_log("have changed")
        reply = target.request("POST", f"/v1/txns/{txn}/commit", b'{"records": 1}', owner)
        assert (reply.status, reply.problem()) == (403, "the right to write mine/t is missing")
        assert target.request("POST", f"/v1/txns/{txn}/abort", b"{}", owner).status == 200
        force = "/v1/namespaces/mine/topics/t/rollback?force=true"
        body = b'{"transactionWritePointer": 7, "rollbackKeys": []}'
        file.write_text(RIGHTS.replace('manage = ["mine/*"]', ""))
        missing = b"the right to manage mine/t is missing"
        assert wait_until(lambda: missing in target.request("POST", force, body, owner).body)
