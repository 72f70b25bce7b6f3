"""Publishing in a program that forks, or ends without closing its client."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oplogc.topics import (
    Topics,
)
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clients.topics_of import all_texts

_FORK = """
import os, sys
from oplogc.topics import Topics
topics = Topics(sys.argv[1])
topics.publish("t", "parent").result()
child = os.fork()
topics.publish("t", "child" if child == 0 else "parent again").result()
topics.close()
if child:
    assert os.waitpid(child, 0)[1] == 0
os._exit(0)
"""
_FORGOTTEN = """
import sys
from oplogc.topics import Topics
topics = Topics(sys.argv[1])
for number in range(3):
    topics.publish("t", str(number), durable=False)
if len(sys.argv) > 2:
    del topics
"""
_UNCLOSED = """
import asyncio, sys
from oplogc.topics import AsyncTopics
async def main():
    topics = AsyncTopics(sys.argv[1], backoff=(60, 60))
    topics.publish("t", "a", durable=False)
    while not topics.counters.retried:
        await asyncio.sleep(0.01)
asyncio.run(main())
"""


def run(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "default", "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env=dict(os.environ),
        check=False,
    )


def test_the_child_of_a_fork_publishes_its_own(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent, Topics(agent.url) as topics:
        topics.create("t")
        done = run(_FORK, agent.url)
        assert (done.returncode, done.stderr) == (0, "")
        texts = all_texts(topics, "t")
        assert texts[0] == "parent"
        assert sorted(str(text) for text in texts) == ["child", "parent", "parent again"]


@pytest.mark.parametrize("forgotten", [[], ["del"]])
def test_a_program_that_forgets_to_close_delivers_and_is_warned(
    tmp_path: Path, forgotten: list[str]
) -> None:
    with Agent(tmp_path) as agent, Topics(agent.url) as topics:
        topics.create("t")
        done = run(_FORGOTTEN, agent.url, *forgotten)
        assert done.returncode == 0
        assert all_texts(topics, "t") == ["0", "1", "2"]
        assert "not closed" in done.stderr
        assert "Traceback" not in done.stderr


def test_messages_that_cannot_be_delivered_at_the_end_are_told(tmp_path: Path) -> None:
    code = f"from oplogc.process import at_exit\nat_exit.EXIT_SECONDS = 0.2\n{_FORGOTTEN}"
    done = run(code, "http://127.0.0.1:9")
    assert done.returncode == 0
    assert "3 messages are lost at the end of the program" in done.stderr


def test_messages_that_the_end_of_the_event_loop_loses_are_told() -> None:
    done = run(_UNCLOSED, "http://127.0.0.1:9")
    assert done.returncode == 0
    assert "messages for default/t are lost at the end of the event loop" in done.stderr
    assert "Traceback" not in done.stderr
