import logging
import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.kits.clients.examples import Example
from tests.kits.clients.producers import Producers
from tests.kits.clients.topics_of import TopicsOf
from tests.kits.paths import ROOT
from tests.kits.servers.mongo import GO_FLAGS, go_program


@pytest.fixture(scope="session")
def go_example(tmp_path_factory: pytest.TempPathFactory) -> Example:
    go = go_program()
    folder = tmp_path_factory.mktemp("go")
    # It has no dependencies, so it needs no network.
    environ = {**os.environ, "GOPROXY": "off", "GOFLAGS": GO_FLAGS, "CGO_ENABLED": "0"}
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


@pytest.fixture(scope="session")
def node() -> str:
    found = shutil.which("node")
    assert found, "node is missing: install the package nodejs (20 or newer)"
    version = subprocess.run(
        [found, "--version"], capture_output=True, text=True, check=True
    ).stdout
    assert int(version.lstrip("v").split(".")[0]) >= 20, (
        f"node is {version.strip()}, 20 or newer is needed"
    )
    return found


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


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """Restore the log level after ``main`` of a command. Other tests count log records."""
    logger = logging.getLogger("oplogc")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.fixture(params=["threads", "asyncio"])
def topics_of(request: pytest.FixtureRequest) -> Iterator[TopicsOf]:
    """``Topics`` and ``AsyncTopics``, both to be used from threads."""
    topics = TopicsOf(request.param)
    yield topics
    topics.end()
