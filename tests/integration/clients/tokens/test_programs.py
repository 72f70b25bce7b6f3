"""Tokens of programs in Go, PHP and JavaScript, which read a file when their package wants one."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clients.examples import FAST, Example, shown, videos
from tests.kits.clients.following import Following
from tests.kits.clients.tokens import Issuer
from tests.kits.contract.wire import wait_until
from tests.kits.paths import ROOT
from tests.kits.processes import forked


class TokenFile:
    """The file with a program's token, and the file with its messages."""

    def __init__(self, folder: Path, issuer: Issuer) -> None:
        self.path = folder / "token"
        self.log = folder / "log"
        self._issuer = issuer

    def give(self, *planned: float) -> None:
        self._issuer.plan(*planned)
        new = self.path.with_suffix(".new")
        new.write_text(f"{self._issuer()}\n")
        new.replace(self.path)

    def wait_log(self, pattern: str) -> None:
        assert wait_until(lambda: re.search(pattern, self.log.read_text()) is not None)


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path)


@pytest.fixture
def file(tmp_path: Path, issuer: Issuer) -> TokenFile:
    return TokenFile(tmp_path, issuer)


def check_stream(command: Callable[[str], list[str]], issuer: Issuer, file: TokenFile) -> None:
    """Follow with a program. Its token ends, there is none, one that has ended, and a good one."""
    file.give()
    with issuer.agent() as agent, file.log.open("w") as log:
        assert agent.post(videos(0, 3), issuer.authorize()) == 200
        following = Following(command(agent.url), stderr=log)
        assert following.take(5) == ["reset", *shown(0, 3), "live"]
        file.path.unlink()
        issuer.end_tokens()
        file.wait_log(r"no token: .*; trying again in 0\.0 s\n")
        assert agent.post(videos(3, 3), issuer.authorize()) == 200
        file.give(-1)
        file.wait_log("the token was refused: .*the token is invalid .*; trying again")
        file.give()
        assert following.take(3) == shown(3, 3)
        following.kill()
    told = file.log.read_text()
    assert "the agent ended the stream; trying again" in told.splitlines()[0]
    assert issuer.shows_none(told)


def test_a_stream_goes_on_with_the_next_token_and_loses_nothing(
    example: Example, issuer: Issuer, file: TokenFile
) -> None:
    flags = {"start": "0", "token-file": str(file.path), **FAST}
    check_stream(lambda url: [*example.consumer, *example.flags(url=url, **flags)], issuer, file)


_JS = """
import { readFile } from "node:fs/promises";
import { Consumer } from "./oplog.js";
const [url, path] = process.argv.slice(1);
const token = () => readFile(path, "utf8");
const log = (line) => line.startsWith("following") || console.error(line);
for await (const event of new Consumer(url, { start: "0", token, log, backoff: [0.01, 0.02] })) {
  const { event: name, id, parents } = event;
  console.log(id ? `${name} video/${id} [${parents.join(" ")}]` : name);
}
"""


def test_a_stream_in_javascript_goes_on_with_the_next_token_and_loses_nothing(
    node: str, issuer: Issuer, file: TokenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT / "clients" / "js")
    command = [node, "--input-type=module", "-e", _JS]
    check_stream(lambda url: [*command, url, str(file.path)], issuer, file)


def stored(agent: Agent, issuer: Issuer) -> int:
    answer = agent.request("GET", "/status", headers=issuer.authorize())
    count: int = answer.json["events_ingested"]
    return count


def test_a_producer_asks_for_a_token_again_after_a_failure_and_a_refusal(
    example: Example, issuer: Issuer, file: TokenFile
) -> None:
    with issuer.agent() as agent, file.log.open("w") as log:
        flags = example.flags(url=agent.url, **{"token-file": str(file.path)}, **FAST)
        process = forked.start(
            [*example.producer, *flags], stdin=subprocess.PIPE, stderr=log, text=True
        )
        with process:
            assert process.stdin
            process.stdin.write('{"event":"insert","type":"video","id":"a"}\n')
            process.stdin.flush()
            file.wait_log("no token: .*; trying again")
            file.give()
            assert wait_until(lambda: stored(agent, issuer) == 1)
            issuer.end_tokens()
            file.give()
            process.stdin.write('{"event":"insert","type":"video","id":"b"}\n')
            process.stdin.close()
            assert process.wait(DEADLINE) == 0
        assert stored(agent, issuer) == 2
        assert "401" not in file.log.read_text()
        file.give(-1)
        done = example.produce(agent.url, videos(0, 1), **{"token-file": str(file.path)})
        assert done.returncode == 1
        assert "the agent refuses: the token was refused: HTTP 401" in done.stderr
        assert issuer.shows_none(done.stderr + file.log.read_text())


_PHP = """
require 'clients/php/src/autoload.php';
function no_function(): string { return 'x'; }
foreach ([
    fn () => new Oplog\\Consumer('http://localhost:1', password: 'b', token: 'a'),
    fn () => new Oplog\\Producer('http://:b@localhost:1', token: fn () => 'a'),
    fn () => new Oplog\\Consumer('http://localhost:1', token: 'two words'),
    fn () => new Oplog\\Producer('http://localhost:1', token: ''),
    fn () => new Oplog\\Producer('http://localhost:1', token: 'no_function'),
] as $make) {
    try {
        $make();
        echo "made\\n";
    } catch (InvalidArgumentException $error) {
        echo $error->getMessage(), "\\n";
    }
}
"""


def test_the_arguments_of_php_are_checked(php_example: Example) -> None:
    php = php_example.consumer[0]
    done = subprocess.run(
        [php, "-r", _PHP], cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE
    )
    assert done.stdout.splitlines() == [
        "a token and a password exclude each other: give one of them",
        "a token and a password exclude each other: give one of them",
        "the token must be printable ASCII text without a space",
        "the token must be printable ASCII text without a space",
        "made",  # text is a token, also if it is the name of a function
    ]
