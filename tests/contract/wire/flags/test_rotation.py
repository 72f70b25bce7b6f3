"""Passwords, principals and keys change under load, and no request with a valid one fails."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import jwt
import pytest

from tests.contract.wire.store_kinds import EACH_DRIVER, StoreKind, kinds_of_store
from tests.kits.contract.passwords import basic
from tests.kits.contract.wire import JSON, Target, operation, wait_until

store_kind = kinds_of_store(EACH_DRIVER)

# Of the passwords "old" and "new", cheap: of one block.
HASHES = {
    "old": "$scrypt$ln=4,r=1,p=1$c2FsdHNhbHQ$dhU+bLKE/qT0cGPJ+YY535G9An9fZmbtqzT4RigUEQk",
    "new": "$scrypt$ln=4,r=1,p=1$c2FsdHNhbHQ$mZvHyML0T3BCkxdnvXK6VZNFqyY7F64lKdB1DrOgWTs",
}
SECRETS = {name: f"{name} secret of more than 32 bytes for tests" for name in HASHES}


def rights(*names: str) -> str:
    hashes = json.dumps([HASHES[name] for name in names])
    return f'[shop]\npassword_hash = {hashes}\nwrite = ["system/oplog"]\nread = ["*"]\n'


def bearer(name: str) -> dict[str, str]:
    claims = {"exp": time.time() + 600, "oplog": {"read": ["*"], "write": ["system/oplog"]}}
    return {"Authorization": f"Bearer {jwt.encode(claims, SECRETS[name], 'HS256')}"}


CLIENTS: dict[str, Callable[[str], dict[str, str]]] = {
    "password": lambda name: basic(f"{name} password"),
    "principal": lambda name: basic(name, "shop"),
    "token": bearer,
}


class Files:
    """The files of an agent, with the old credentials, with both, or with the new ones."""

    def __init__(self, folder: Path) -> None:
        self.passwords, self.rights = folder / "passwords", folder / "rights.toml"
        self.keys = [folder / "key-1", folder / "key-2"]
        self.write("old")

    @property
    def flags(self) -> list[str]:
        files = [("--password-file", self.passwords), ("--ingest-password-file", self.passwords)]
        files += [("--rights", self.rights), *(("--token-key", key) for key in self.keys)]
        return [part for name, file in files for part in (name, str(file))]

    def write(self, *names: str) -> None:
        self.passwords.write_text("\n".join(f"{name} password" for name in names))
        self.rights.write_text(rights(*names))
        for key, name in zip(self.keys, (names[0], names[-1]), strict=True):
            key.write_text(SECRETS[name])


def accepts(target: Target, name: str) -> list[bool]:
    statuses = [
        target.request("GET", "/v1/namespaces", None, given(name)).status
        for given in CLIENTS.values()
    ]
    assert {*statuses} <= {200, 401}
    return [status == 200 for status in statuses]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_no_request_with_a_valid_credential_fails(
    store_kind: StoreKind, files: Files, tmp_path: Path
) -> None:
    with store_kind.agent(tmp_path, *files.flags) as agent:
        target = Target.of(agent)
        name, stop = "old", threading.Event()
        answers: Counter[tuple[str, int]] = Counter()

        def work(kind: str) -> None:
            body = json.dumps(operation("insert", kind, "thing")).encode()
            while not stop.is_set():
                given = CLIENTS[kind](name)
                reply = target.request("POST", "/ops", body, {**JSON, **given})
                answers[kind, reply.status] += 1
                reply = target.request("GET", "/v1/namespaces", None, given)
                answers[kind, reply.status] += 1

        threads = [threading.Thread(target=work, args=(kind,)) for kind in CLIENTS]
        for thread in threads:
            thread.start()
        files.write("old", "new")
        assert wait_until(lambda: all(accepts(target, "new")))
        name = "new"
        files.write("new")
        assert wait_until(lambda: not any(accepts(target, "old")))
        stop.set()
        for thread in threads:
            thread.join()
        assert {status for _, status in answers} == {200, 204}
        assert all(answers[kind, 204] > 10 for kind in CLIENTS)
