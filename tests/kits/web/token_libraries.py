"""Libraries of other languages that sign tokens, built once into the cache.

They are downloaded by npm and Go. A process of each library makes all its tokens.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from tests.kits.agents.agent import DEADLINE
from tests.kits.servers.mongo import GO_FLAGS, build, go_program, run
from tests.kits.servers.room import UnavailableError
from tests.kits.web.token_keys import KINDS, private, private_pem

HERE = Path(__file__).resolve().parent / "tokenmakers"


class Made(NamedTuple):
    """Tokens by name. ``jwks``: the library's own keys, None without any."""

    tokens: dict[str, str]
    jwks: dict[str, Any] | None


def made_by(language: str, secret: str, **claims: Any) -> Made:
    """Return the tokens of a library. Raises UnavailableError if it cannot be had.

    ``claims``: the right, the subject and the audience.
    """
    given = {
        "secret": secret,
        "keys": {kind: private_pem(private(kind)).decode() for kind in KINDS},
        **claims,
    }
    done = subprocess.run(
        _program(language),
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return Made(found["tokens"], found.get("jwks"))


def _program(language: str) -> list[str]:
    try:
        if language == "go":
            return [str(build("tokens-go", HERE / "golang", _go_build) / "tokens")]
        folder = build("tokens-js", HERE / "jose", _npm_install)
    except AssertionError as error:
        raise UnavailableError(f"the tokens of {language} cannot be made: {error}") from None
    return [_found("node"), str(folder / "tokens.js")]


def _go_build(source: Path, target: Path) -> None:
    environ = {**os.environ, "GOFLAGS": GO_FLAGS, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    run([go_program(), "build", "-o", str(target / "tokens"), "."], source, environ)


def _npm_install(source: Path, target: Path) -> None:
    for path in source.iterdir():
        shutil.copy(path, target)
    flags = ("--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--silent")
    run([_found("npm"), "install", *flags], target, os.environ)


def _found(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise UnavailableError(f"{program} is missing: install the packages nodejs and npm")
    return path
