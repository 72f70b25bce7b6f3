"""A PHP producer that is not closed delivers at its end, or warns."""

import subprocess
from pathlib import Path

import pytest

from tests.kits.agents.agent import DEADLINE
from tests.kits.clients.examples import Example
from tests.kits.paths import ROOT
from tests.kits.servers.scripted import ScriptedServer, answer

STORED = answer("200 OK", "%COUNT%")
SCRIPT = """<?php
require '%s/clients/php/src/autoload.php';
$log = function (string $line): void {};
$producer = new Oplog\\Producer($argv[1], log: $log);
%%s
echo "end\\n";
"""
SEND = "$producer->send('insert', 'video', 'a');"
WARNING = "Warning: a producer was not closed: "


@pytest.fixture
def php(php_example: Example) -> str:
    return php_example.producer[0]


def play(php: str, folder: Path, steps: str, *answers: bytes) -> tuple[int, str, list[bytes]]:
    """Run a script. Return its exit code, its output and the bodies of its requests."""
    script = folder / "script.php"
    script.write_text(SCRIPT % ROOT % steps)
    command = [php, "-d", "display_errors=1", "-d", "html_errors=0", str(script)]
    with ScriptedServer([*answers]) as server:
        done = subprocess.run(
            [*command, server.url], capture_output=True, text=True, timeout=DEADLINE
        )
        return done.returncode, done.stdout, server.bodies


@pytest.mark.parametrize(
    "steps",
    [SEND, f"{SEND} $producer = null;", f"{SEND} exit(0);", f"{SEND} $producer->flush(); {SEND}"],
    ids=["at the end", "when it is destroyed", "at an exit", "after a flush"],
)
def test_what_waits_is_sent_without_a_close(php: str, tmp_path: Path, steps: str) -> None:
    code, out, bodies = play(php, tmp_path, steps, STORED, STORED)
    assert (code, "Warning" in out) == (0, False)
    assert len(bodies) == steps.count(SEND)
    assert all(b'"id":"a"' in body for body in bodies)


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (answer("401 Unauthorized", '{"detail":"needs the password"}'), "needs the password"),
        (
            answer("503 Service Unavailable", '{"detail":"busy"}', "Retry-After: 3000"),
            "busy",
        ),
    ],
    ids=["refused", "busy"],
)
def test_what_cannot_be_sent_is_a_warning_and_no_wait(
    php: str, tmp_path: Path, refusal: bytes, reason: str
) -> None:
    code, out, bodies = play(php, tmp_path, SEND, refusal)
    assert (code, len(bodies)) == (0, 1)
    assert WARNING in out
    assert reason in out
    assert "1 operations are not delivered" in out


def test_a_loss_that_was_told_is_not_told_again(php: str, tmp_path: Path) -> None:
    steps = f"{SEND} try {{ $producer->close(); }} catch (Oplog\\RefusedException) {{ }}"
    code, out, bodies = play(php, tmp_path, steps, answer("401 Unauthorized"))
    assert (code, out, len(bodies)) == (0, "end\n", 1)


def test_the_child_of_a_fork_leaves_the_operations_to_its_parent(php: str, tmp_path: Path) -> None:
    steps = f"{SEND} if (pcntl_fork() === 0) {{ exit(0); }} pcntl_wait($status);"
    code, out, bodies = play(php, tmp_path, steps, STORED, STORED)
    assert (code, out, len(bodies)) == (0, "end\n", 1)
