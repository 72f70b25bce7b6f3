"""Tokens of programs in Go, PHP and JavaScript, which read a file when their package wants one."""

import os
import re
import subprocess
import sys
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


def test_oplog_tail_reads_the_file_at_each_connection(issuer: Issuer, file: TokenFile) -> None:
    file.give()
    with issuer.agent() as agent, file.log.open("w") as log:
        assert agent.post(videos(0, 1), issuer.authorize()) == 200
        command = [sys.executable, "-m", "oplogc.tail", agent.url, "--replicate"]
        environ = {**os.environ, "OPLOG_PASSWORD": "geheim"}
        flags = ["--token-file", str(file.path)]
        following = Following([*command, *flags], stderr=log, env=environ)
        assert len(following.take(3)) == 3
        file.path.unlink()
        issuer.end_tokens()
        file.wait_log("no token: ValueError: cannot read '.*': No such file or directory; trying")
        assert agent.post(videos(1, 1), issuer.authorize()) == 200
        file.give()
        assert "video/ä/1" in following.take(1)[0]
        following.kill()
        assert issuer.shows_none(file.log.read_text())
        both = forked.run(
            [*command, *flags, "--password", "geheim"], capture_output=True, text=True
        )
        assert (both.returncode, both.stdout) == (2, "")
        assert "--password and --token-file exclude each other" in both.stderr


def test_oplogctl_sends_the_token_in_a_file(issuer: Issuer, file: TokenFile) -> None:
    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "oplogc.ctl", *arguments, "--token-file", str(file.path)]
        environ = {**os.environ, "OPLOGCTL_URL": agent.url, "OPLOG_PASSWORD": "geheim"}
        return forked.run(command, capture_output=True, text=True, env=environ)

    with issuer.agent() as agent:
        file.give()
        assert run("topic", "create", "t").returncode == 0
        assert run("topic", "publish", "t", "first").returncode == 0
        followed = run("topic", "follow", "t", "--from", "0", "--count", "1")
        assert (followed.returncode, followed.stdout.count("first")) == (0, 1)
        file.give(-1)
        for done in (run("topic", "list"), run("topic", "create", "u")):
            assert done.returncode == 1
            assert "the token was refused by the agent (HTTP 401)" in done.stderr
            assert issuer.shows_none(done.stderr)


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
