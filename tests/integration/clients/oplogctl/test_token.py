"""A token of ``oplogctl token create`` opens a real agent for exactly its right."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.contract.wire import JSON, SSE, Target, operation, said
from tests.kits.processes import forked
from tests.kits.web.token_keys import private, private_pem, public_pem

SECRET = "a secret of more than 32 bytes, for tests"
ADA = "user/ada"


class House(NamedTuple):
    """An agent with the secret in a file, and a public key in another one."""

    target: Target
    secret: Path
    private: Path

    def status(self, method: str, path: str, token: str, body: object = None) -> int:
        raw = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}", **(JSON if raw else {})}
        return self.target.request(method, path, raw, headers).status


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("agent")
    secret, public, own = (folder / name for name in ("secret", "public.pem", "private.pem"))
    secret.write_text(f"{SECRET}\n")
    public.write_bytes(public_pem(private("ES256")))
    own.write_bytes(private_pem(private("ES256")))
    flags = ("--token-key", str(secret), "--token-key", str(public), "--token-audience", "shop")
    with Agent(folder, *flags) as agent:
        yield House(Target.of(agent), secret, own)


def oplogctl(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
    done = forked.run(
        [sys.executable, "-m", "oplogc.ctl", "token", *arguments],
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=DEADLINE,
    )
    return done.returncode, done.stdout, done.stderr


def create(key: Path, *arguments: str) -> str:
    code, token, err = oplogctl("create", "--key", str(key), "--audience", "shop", *arguments)
    assert (code, err) == (0, "")
    return token.removesuffix("\n")


@pytest.mark.parametrize("key", ["secret", "private"])
def test_a_created_token_grants_what_it_names_and_nothing_else(house: House, key: str) -> None:
    token = create(
        getattr(house, key),
        *("--write", "system/oplog,shop/orders", "--manage", "shop/orders", "--read", "shop/*"),
        *("--leases", "orders*", "--types", "video", "--sub", "ada"),
    )
    topics = "/v1/namespaces/shop/topics"
    message = {"messages": [{"payload": "a"}]}
    taken = [
        ("PUT", f"{topics}/orders", {}, (200, 201, 409)),
        ("PUT", f"{topics}/others", {}, (403,)),
        ("POST", f"{topics}/orders/publish", message, (200,)),
        ("POST", f"{topics}/others/publish", message, (403,)),
        ("POST", f"{topics}/orders/poll", {}, (200,)),
        ("POST", "/v1/namespaces/system/topics/oplog/poll", {}, (403,)),
        ("POST", "/v1/leases/orders-1", {"holder": "a", "ttl_ms": 1_000}, (200,)),
        ("POST", "/v1/leases/others", {"holder": "a", "ttl_ms": 1_000}, (403,)),
        ("POST", "/ops", operation("insert", "1", "video", ADA), (204,)),
        ("POST", "/ops", operation("insert", "1", "user", ADA), (403,)),
    ]
    for method, path, body, expected in taken:
        assert house.status(method, path, token, body) in expected, (method, path)


def test_a_created_token_reads_the_operations_of_its_parents(house: House) -> None:
    writer = create(house.secret, "--write", "system/oplog")
    for number, parent in enumerate((ADA, "user/bob", ADA)):
        body = operation("insert", f"p{number}", "photo", parent)
        assert house.status("POST", "/ops", writer, body) == 204
    reader = create(house.secret, "--parents", ADA, "--types", "photo")
    headers = {**SSE, "Authorization": f"Bearer {reader}"}
    with house.target.follow("0", headers) as stream:
        found = [said(each) for each in stream.until("live")[1:-1]]
    assert sorted(found) == [("insert", "p0"), ("insert", "p2")]
    assert house.status("POST", "/ops", reader, operation("insert", "1", "photo", ADA)) == 403


def test_a_token_for_another_audience_or_of_another_key_is_refused(
    house: House, tmp_path: Path
) -> None:
    other = tmp_path / "key"
    other.write_text("another secret of more than 32 bytes")
    assert house.status("GET", "/v1/namespaces", create(house.secret, "--read", "*")) == 200
    for token in (
        create(other, "--read", "*"),
        create(house.secret, "--read", "*", "--audience", "mall"),
    ):
        assert house.status("GET", "/v1/namespaces", token) == 401


def test_a_token_of_the_agent_is_shown(house: House) -> None:
    """An agent with a key for HMAC signs its tokens with it."""
    maker = create(house.secret, "--read", "shop/*,system/oplog", "--sub", "ada")
    reply = house.target.request(
        "POST",
        "/token",
        json.dumps({"parents": [ADA], "seconds": 60}).encode(),
        {**JSON, "Authorization": f"Bearer {maker}"},
    )
    given = reply.json
    code, out, err = oplogctl(
        "show", "--json", "--key", str(house.secret), stdin=f"{given['token']}\n"
    )
    assert (code, err) == (0, "")
    shown = json.loads(out)
    assert shown["verified"] is True
    assert shown["right"] == given["right"]
    assert (shown["expires"], shown["sub"], shown["aud"]) == (given["expires"], "ada", ["shop"])


def test_a_token_made_with_a_password_is_shown(tmp_path: Path) -> None:
    with Agent(tmp_path, "--password", "hunter2") as agent:
        target = Target.of(agent)
        headers = {**JSON, "Authorization": "Basic eDpodW50ZXIy"}
        body = json.dumps({"parents": [ADA], "seconds": 60}).encode()
        narrowed = target.request("POST", "/token", body, headers).json
        plain = target.request("POST", "/token", None, headers).json
    for given, right in ((narrowed, narrowed["right"]), (plain, None)):
        code, out, err = oplogctl("show", "--json", given["token"])
        assert (code, err) == (0, "")
        shown = json.loads(out)
        assert (shown["right"], shown["expires"]) == (right, given["expires"])
        assert (shown["kind"], shown["verified"], shown["refused"]) == ("agent", None, None)
