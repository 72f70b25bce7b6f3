import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.clients.examples import Example
from tests.clients.producers import Producers
from tests.conftest import ROOT
from tests.mongo.servers import go_program


@pytest.fixture(scope="session")
def go_example(tmp_path_factory: pytest.TempPathFactory) -> Example:
    go = go_program()
    folder = tmp_path_factory.mktemp("go")
    # It has no dependencies, so it needs no network.
    environ = {**os.environ, "GOPROXY": "off", "GOFLAGS": "-buildvcs=false", "CGO_ENABLED": "0"}
    for command in (
        ["vet", "./..."],
        ["test", "./..."],
        ["build", "-o", f"{folder}/", "./..."],
    ):
        done = subprocess.run(
            [go, *command], cwd=ROOT / "clients" / "go", env=environ, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    return Example([str(folder / "producer")], [str(folder / "consumer")], "-")


@pytest.fixture(scope="session")
def php_example() -> Example:
    php = shutil.which("php")
    assert php, "php is missing: install the package php-cli"
    folder = ROOT / "clients" / "php" / "bin"
    return Example([php, str(folder / "producer.php")], [php, str(folder / "consumer.php")], "--")


@pytest.fixture(params=["go_example", "php_example"])
def example(request: pytest.FixtureRequest) -> Example:
    chosen: Example = request.getfixturevalue(request.param)
    return chosen


@pytest.fixture(params=["threads", "asyncio"])
def produce(request: pytest.FixtureRequest) -> Iterator[Producers]:
    """``Producer`` and ``AsyncProducer``, both to be used from threads."""
    producers = Producers(request.param)
    yield producers
    producers.end()
