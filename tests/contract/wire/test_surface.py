"""Other endpoints: status, probes, metrics, documentation, dashboard; other methods and paths."""

import base64
import hashlib
import json
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.contract.wire.store_kinds import on_one_store
from tests.kits.contract.wire import Target, operation, said, wait_until

COMPAT = (
    "events_received",
    "events_sent",
    "events_ingested",
    "events_error",
    "events_discarded",
    "queue_size",
    "queue_max_size",
    "clients",
    "connections",
)
BROWSER = {"Accept": "text/html,application/xhtml+xml;q=0.9"}
JSON = {"Content-Type": "application/json"}
FENCE = "orders; term=7"
OTHER_HOST = re.compile(r"(?i)\bhttps?:|\bwss?:|[\"'(=]\s*//")


def test_status_has_the_members_of_the_contract(target: Target) -> None:
    reply = target.request("GET", "/status")
    assert (reply.status, reply.header("Content-Type")) == (200, "application/json")
    status = reply.json
    assert status["status"] == "OK"
    assert all(type(status[name]) is int for name in (*COMPAT, "events_dropped_kernel"))
    assert isinstance(status["version"], str)
    assert status["uptime_seconds"] >= 0
    assert {"kind", "ops", "states", "oldest_id", "newest_id", "lag"} <= status["store"].keys()
    assert {"operations", "max_operations"} <= status["ring"].keys()
    assert status["rates"]


def test_status_counts_operations_events_and_consumers(target: Target) -> None:
    assert wait_until(lambda: target.status()["clients"] == 0)
    before = target.status()
    with target.follow(types="counted") as one, target.follow() as two:
        during = target.status()
        assert during["clients"] == 2
        assert during["connections"] == before["connections"] + 2
        target.store(operation("insert", "a", "counted"), operation("insert", "a", "not counted"))
        target.post(b"{}")
        assert said(one.block()) == ("insert", "a")
        two.take(2)
        after = target.status()
    grown = {name: after[name] - before[name] for name in COMPAT if name.startswith("events_")}
    assert grown == {
        "events_received": 3,
        "events_ingested": 2,
        "events_error": 1,
        "events_discarded": 0,
        "events_sent": 3,
    }
    assert after["queue_size"] == 0
    assert after["store"]["ops"] == before["store"]["ops"] + 2
    assert after["store"]["newest_id"] > (before["store"]["newest_id"] or "")


def test_the_probes_answer_while_all_is_well(target: Target) -> None:
    for path in ("/live", "/ready"):
        reply = target.request("GET", path)
        assert reply.status == 200
        assert reply.body


def test_the_metrics_equal_the_status(target: Target) -> None:
    assert wait_until(lambda: target.status()["clients"] == 0)
    target.store(operation("insert", "a", "thing"))
    reply = target.request("GET", "/metrics")
    assert reply.status == 200
    assert (reply.header("Content-Type") or "").startswith("text/plain")
    families = {
        family.name: family for family in text_string_to_metric_families(reply.body.decode())
    }
    status = target.status()
    for name in (*COMPAT, "events_dropped_kernel"):
        family = families[f"oplog_{name}"]
        counts = name.startswith("events_") or name == "connections"
        assert family.type == ("counter" if counts else "gauge")
        assert [sample.value for sample in family.samples] == [status[name]]
        assert family.documentation
    assert families["oplog_store_ops"].samples[0].value == status["store"]["ops"]
    assert families["oplog_store_up"].samples[0].value == 1


@on_one_store
def test_every_get_has_a_head_with_the_same_headers(target: Target) -> None:
    html = target.request("GET", "/docs").body.decode()
    parts = set(re.findall(r"(?:src|href)=\"([^\"]+)\"", html))
    pages = [
        "/",
        "/docs",
        "/docs/oauth2-redirect",
        "/openapi.json",
        "/status",
        "/live",
        "/ready",
        "/metrics",
        "/session",
        "/v1/txns",
    ]
    for path in (*pages, *parts):
        head, get = (target.request(method, path, headers=BROWSER) for method in ("HEAD", "GET"))
        assert (head.status, get.status, head.body) == (200, 200, b""), path
        assert head.header("Content-Type") == get.header("Content-Type"), path


@on_one_store
def test_the_api_is_described(target: Target) -> None:
    reply = target.request("GET", "/openapi.json")
    assert (reply.status, reply.header("Content-Type")) == (200, "application/json")
    paths = reply.json["paths"]
    assert paths["/ops"].keys() == {"get", "post"}
    assert {"/status", "/live", "/ready", "/metrics", "/session", "/token"} <= paths.keys()
    assert paths["/v1/txns"].keys() == {"get", "post"}
    assert paths["/v1/txns/{txn}"].keys() == {"get"}
    assert paths["/v1/leases/{lease}"].keys() == {"post", "get", "delete"}
    ends = [paths[f"/v1/txns/{{txn}}/{end}"] for end in ("records", "commit", "abort")]
    assert [methods.keys() for methods in ends] == [{"post"}] * 3
    post = paths["/ops"]["post"]
    assert post["responses"].keys() == {
        "200",
        "204",
        "400",
        "401",
        "403",
        "408",
        "412",
        "413",
        "415",
        "429",
        "431",
        "503",
    }
    refused = post["responses"]["400"]["content"]["application/problem+json"]["example"]
    two = [operation(event, "a", "thing") for event in ("insert", "none")]
    assert refused == target.post(json.dumps(two).encode()).json | {"detail": "…"}
    examples = post["requestBody"]["content"]["application/json"]["examples"]
    for example in examples.values():
        assert target.post(json.dumps(example["value"]).encode()).status in (200, 204)
    ndjson = post["requestBody"]["content"]["application/x-ndjson"]["example"]
    assert target.post(ndjson.encode(), {"Content-Type": "application/x-ndjson"}).status == 200
    parameters = {parameter["name"] for parameter in paths["/ops"]["get"]["parameters"]}
    assert parameters == {
        "Last-Event-ID",
        "last_event_id",
        "since",
        "types",
        "parents",
        "ids",
        "events",
        "shard",
        "checkpoint",
        "name",
        "token",
    }
    topic = "/v1/namespaces/{namespace}/topics/{topic}"
    with_shards = [("get", "/ops"), ("get", f"{topic}/stream"), ("post", f"{topic}/poll")]
    for method, path in (*with_shards, ("get", "/objects")):
        described = paths[path][method]
        assert "shard" in {parameter["name"] for parameter in described["parameters"]}, path
        assert "Oplog-Shard" in described["responses"]["200"]["headers"], path
        is_stream = path in ("/ops", f"{topic}/stream")
        assert ("409" in described["responses"]) == is_stream, path


@on_one_store
def test_the_description_names_rights_and_types_and_no_answer_of_the_framework(
    target: Target,
) -> None:
    document = target.request("GET", "/openapi.json").json
    known = {
        f"#/components/schemas/{name}": schema
        for name, schema in document["components"]["schemas"].items()
    }
    text = json.dumps(document)
    assert {*re.findall(r'"\$ref": "([^"]+)"', text)} <= known.keys()
    assert "ValidationError" not in text
    operations = [each for methods in document["paths"].values() for each in methods.values()]
    assert {"422"} & {status for each in operations for status in each["responses"]} == set()
    assert all(len(each["tags"]) == 1 for each in operations)
    schemes = document["components"]["securitySchemes"].keys()
    for each in operations:
        rights = [*each.get("security", ())]
        assert ("401" in each["responses"]) == bool(rights) or each["operationId"] == "sign_in"
        assert {name for right in rights for name in right} <= schemes


@on_one_store
@pytest.mark.parametrize(
    ("method", "path", "field"),
    [
        ("GET", "/v1/txns?limit=hunter2", "limit"),
        ("GET", "/v1/txns?state=hunter2", "state"),
        ("GET", "/v1/txns?group=hunter2/", "group"),
        ("GET", "/v1/leases?after=hunter2", "after"),
        ("GET", "/v1/namespaces/n/topics/hunter2!", "topic"),
        ("POST", "/v1/pointers/hunter2/commit", "pointer"),
        ("POST", "/v1/namespaces/n/topics/t/rollback?force=hunter2", "force"),
    ],
)
def test_a_bad_parameter_is_named_and_not_repeated(
    target: Target, method: str, path: str, field: str
) -> None:
    body = b'{"topics":["n/t"]}' if method == "POST" else None
    reply = target.request(method, path, body, {"Content-Type": "application/json"})
    assert reply.status == 400
    assert reply.problem().startswith(f"{field}: ")
    assert b"hunter2" not in reply.body


@on_one_store
@pytest.mark.parametrize(
    ("path", "actions", "fence", "named"),
    [
        ("/v1", ["txns"], "none", "Oplog-Lease: "),
        ("/v1/txns/{txn}", ["records", "commit", "abort"], "none", "Oplog-Lease: "),
        ("/v1/txns/{txn}", ["records", "commit", "abort"], FENCE, "transaction {txn} was begun"),
        ("/v1/txns/1", ["records", "commit", "abort"], None, "there is no transaction 1"),
        ("/v1/pointers/x", ["commit", "abort"], None, "pointer: "),
        ("/v1/pointers/5", ["commit", "abort"], FENCE, "Oplog-Lease: "),
        ("/v1/namespaces/n/topics/x!", ["store", "rollback"], None, "topic: "),
        ("/v1/namespaces/n/topics/t", ["store", "rollback"], FENCE, "Oplog-Lease: "),
    ],
)
def test_a_bad_id_or_fence_is_named_before_a_bad_body(
    target: Target, path: str, actions: list[str], fence: str | None, named: str
) -> None:
    txn = target.request("POST", "/v1/txns", b"", {}).json["txn"]
    headers = JSON if fence is None else {**JSON, "Oplog-Lease": fence}
    for action in actions:
        reply = target.request("POST", f"{path.format(txn=txn)}/{action}", b"{", headers)
        assert reply.status in (400, 404, 409), action
        assert named.format(txn=txn) in reply.problem(), action


@on_one_store
def test_the_documentation_needs_no_other_host(target: Target) -> None:
    reply = target.request("GET", "/docs")
    assert (reply.status, reply.header("Content-Type")) == (200, "text/html; charset=utf-8")
    html = reply.body.decode()
    assert not OTHER_HOST.search(html)
    parts = re.findall(r"(?:src|href)=\"([^\"]+)\"|url: '([^']+)'", html)
    assert len(parts) >= 3
    for path in map("".join, parts):
        assert target.request("GET", path).status == 200, path


@on_one_store
@pytest.mark.parametrize("path", ["/docs", "/docs/oauth2-redirect"])
def test_the_documentation_runs_only_its_own_scripts(target: Target, path: str) -> None:
    reply = target.request("GET", path)
    (script,) = re.findall(rb"<script>(.*?)</script>", reply.body, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    policy = (reply.header("Content-Security-Policy") or "").split("; ")
    assert "default-src 'none'" in policy
    assert f"script-src 'self' 'sha256-{digest}'" in policy
    assert "frame-ancestors 'none'" in policy
    assert reply.header("X-Content-Type-Options") == "nosniff"


@on_one_store
def test_a_browser_gets_a_page_that_may_only_talk_to_its_agent(target: Target) -> None:
    reply = target.request("GET", "/", headers=BROWSER)
    assert (reply.status, reply.header("Content-Type")) == (200, "text/html; charset=utf-8")
    html = reply.body.decode()
    assert not OTHER_HOST.search(html)
    assert not re.search(r"(?i)\s(?:on[a-z]+|style)\s*=\s*[\"']", html), "the policy would stop it"
    policy = dict(
        part.strip().partition(" ")[::2]
        for part in (reply.header("Content-Security-Policy") or "").split(";")
    )
    assert policy == {
        "default-src": "'none'",
        "connect-src": "'self'",
        "script-src": _hashes(html, "script"),
        "style-src": _hashes(html, "style"),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    assert reply.header("X-Content-Type-Options") == "nosniff"
    assert reply.header("Referrer-Policy") == "no-referrer"


def _hashes(html: str, tag: str) -> str:
    blocks = re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", html, re.DOTALL)
    assert blocks
    return " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(block.encode()).digest()).decode()}'"
        for block in blocks
    )


@on_one_store
@pytest.mark.parametrize("path", ["/", "/ops", "/status", "/live", "/v1/txns", "/v1/txns/5"])
def test_a_preflight_grants_reading_and_no_writing(target: Target, path: str) -> None:
    asked = {
        "Origin": "http://example.com",
        "Access-Control-Request-Method": "GET",
        "Access-Control-Request-Headers": "last-event-id, authorization",
    }
    reply = target.request("OPTIONS", path, headers=asked)
    assert (reply.status, reply.body) == (204, b"")
    assert reply.header("Access-Control-Allow-Origin") == "*"
    assert reply.header("Access-Control-Allow-Methods") == "GET, HEAD"
    granted = {
        name.strip().lower()
        for name in (reply.header("Access-Control-Allow-Headers") or "").split(",")
    }
    assert {"last-event-id", "authorization"} <= granted
    assert "content-type" not in granted


@on_one_store
@pytest.mark.parametrize("path", ["/status", "/live", "/ready", "/metrics"])
def test_a_web_page_of_another_origin_may_read_the_answer(target: Target, path: str) -> None:
    reply = target.request("GET", path, headers={"Origin": "http://example.com"})
    assert reply.header("Access-Control-Allow-Origin") == "*"


@on_one_store
@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/", "GET, HEAD, OPTIONS, POST"),
        ("/ops", "GET, HEAD, OPTIONS, POST"),
        ("/status", "GET, HEAD, OPTIONS"),
        ("/docs", "GET, HEAD, OPTIONS"),
        ("/v1/txns/5", "GET, HEAD, OPTIONS"),
    ],
)
@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "POST"])
def test_another_method_is_answered_with_the_allowed_methods(
    target: Target, path: str, allowed: str, method: str
) -> None:
    reply = target.request(method, path, b"", {"Content-Type": "application/json"})
    if method in allowed:
        assert reply.status == 400
        return
    assert reply.status == 405
    assert reply.header("Allow") == allowed
    assert method in reply.problem()


@on_one_store
@pytest.mark.parametrize("path", ["/nowhere", "/ops/", "/ops/1", "//"])
def test_another_path_is_not_found(target: Target, path: str) -> None:
    for method in ("GET", "HEAD", "POST"):
        reply = target.request(method, path, b"" if method == "POST" else None)
        assert reply.status == 404
        if method != "HEAD":
            assert path in reply.problem()


@on_one_store
def test_the_sentence_about_another_path_names_those_that_exist(target: Target) -> None:
    problem = target.request("GET", "/v1/txns/").problem()
    for path in ("/ops", "/v1/namespaces/NAMESPACE/topics", "/v1/txns"):
        assert path in problem.partition(";")[2]
