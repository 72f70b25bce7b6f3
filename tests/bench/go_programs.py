"""The benchmarks' programs in Go, built once into the cache.

``load`` needs no network. ``nats`` downloads its modules. Its ``go.mod`` names the oldest Go.
"""

import os
from pathlib import Path

from tests.kits.servers.mongo import GO_FLAGS, build, go_program, run
from tests.kits.servers.room import UnavailableError

HERE = Path(__file__).resolve().parent


def go_build(name: str) -> Path:
    """Return the program of the folder ``name``. Raises UnavailableError."""

    def make(source: Path, target: Path) -> None:
        environ = {
            **os.environ, "GOFLAGS": GO_FLAGS, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local",
        }  # fmt: skip
        run([go_program(), "build", "-o", str(target / name), "."], source, environ)

    try:
        return build(f"bench-{name}", HERE / name, make) / name
    except (AssertionError, UnavailableError) as error:
        raise UnavailableError(f"tests/bench/{name} cannot be built: {error}") from None
