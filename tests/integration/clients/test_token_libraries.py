"""An agent accepts tokens of the libraries that applications in other languages use."""

import json
from collections.abc import Iterator
from functools import cache

import pytest

from tests.kits.agents.agent import Agent
from tests.kits.contract.wire import JSON, Target, operation
from tests.kits.servers.room import UnavailableError
from tests.kits.web.token_keys import KINDS, private, public_pem
from tests.kits.web.token_libraries import Made, made_by

SECRET = "a secret of more than 32 bytes, for tests"
RIGHT = {"write": ["system/oplog"], "types": ["video"]}
OF_PEM = ("HS256", *KINDS)
OF_JWKS = (
    "JWKS HS256",
    *(f"JWKS {kind}{end}" for kind in KINDS for end in ("", " without kid")),
)
# jose, github.com/golang-jwt/jwt
NAMES = {"js": (*OF_PEM, *OF_JWKS), "go": OF_PEM}


@cache
def tokens_of(language: str) -> Made:
    try:
        return made_by(language, SECRET, right=RIGHT, subject="ada", audience="shop")
    except UnavailableError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module", params=NAMES)
def language(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture(scope="module")
def target(language: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """An agent with the secret, the public keys in PEM, and the JWKS that the library made."""
    folder = tmp_path_factory.mktemp("agent")
    files = {"secret": SECRET.encode()}
    files |= {f"{kind}.pem": public_pem(private(kind)) for kind in KINDS}
    jwks = tokens_of(language).jwks
    if jwks is not None:
        files["jwks"] = json.dumps(jwks).encode()
    flags = ["--token-audience", "shop"]
    for name, content in files.items():
        (folder / name).write_bytes(content)
        flags += ["--token-key", str(folder / name)]
    with Agent(folder, *flags) as agent:
        yield Target.of(agent)


def test_its_tokens_grant_their_right_and_nothing_else(target: Target, language: str) -> None:
    tokens = tokens_of(language).tokens
    assert sorted(tokens) == sorted(NAMES[language])
    for name, token in tokens.items():
        headers = {**JSON, "Authorization": f"Bearer {token}"}
        for type_, status in (("video", 204), ("user", 403)):
            assert target.post(operation("insert", "a", type_), headers).status == status, name
        poll = "/v1/namespaces/system/topics/oplog/poll"
        assert target.request("POST", poll, b"{}", headers).status == 403, name
        begun = target.request("POST", "/v1/txns", b'{"topic": "system/oplog"}', headers)
        assert begun.status == 201, name
        shown = target.request("GET", f"/v1/txns/{begun.json['txn']}", headers=headers)
        assert shown.json["owner"] == "sub:ada", name


def test_its_tokens_with_another_signature_are_refused(target: Target, language: str) -> None:
    tokens = [*tokens_of(language).tokens.values()]
    for token, other in zip(tokens, [*tokens[1:], tokens[0]], strict=True):
        changed = f"{token.rpartition('.')[0]}.{other.rpartition('.')[2]}"
        headers = {**JSON, "Authorization": f"Bearer {changed}"}
        assert target.post(operation("insert", "a", "video"), headers).status == 401
