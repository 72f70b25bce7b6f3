"""The names that consumers give to the agent."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from oplogc import Consumer
from oplogc.topics import AsyncTopics, TopicConsumer, Topics
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.contract.wire import wait_until
from tests.kits.processes import forked

COMMANDS = {
    "tail": ["oplogc.tail", "--name", "tail"],
    "ctl": ["oplogc.ctl", "topic", "follow", "t", "--name", "ctl"],
}


def connected(agent: Agent) -> list[str]:
    """Return the names of the consumers, sorted."""
    return sorted(each["name"] for each in agent.status()["consumers"])


async def test_every_way_to_follow_can_give_a_name(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent, Topics(agent.url) as topics:
        topics.create("t")
        environ = {**os.environ, "OPLOG_URL": agent.url}
        processes = [
            forked.start([sys.executable, "-m", *command], env=environ)
            for command in COMMANDS.values()
        ]
        async with (
            AsyncTopics(agent.url) as async_topics,
            Consumer(agent.url, name="oplog") as oplog,
            topics.stream("t", name="topic") as topic,
            async_topics.stream("t", name="async-topic") as async_topic,
        ):
            following = [asyncio.create_task(anext(each)) for each in (oplog, topic, async_topic)]
            try:
                await asyncio.to_thread(wait_until, lambda: len(connected(agent)) == 5)
                names = connected(agent)
            finally:
                for task in following:
                    task.cancel()
                for process in processes:
                    process.terminate()
                    process.wait(DEADLINE)
    assert names == ["async-topic", "ctl", "oplog", "tail", "topic"]


@pytest.mark.parametrize("name", ["", "search index", "é", "x" * 101, "a\n", 7])
def test_a_name_that_an_agent_would_refuse_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="name: give 1 to 100 ASCII letters"):
        Consumer(name=name)
    with pytest.raises(ValueError, match="name: give 1 to 100 ASCII letters"):
        TopicConsumer("http://localhost:8042", "t", name=name)


@pytest.mark.parametrize("command", [*COMMANDS])
def test_a_bad_name_on_a_command_line_names_the_flag(command: str) -> None:
    *arguments, _ = COMMANDS[command]
    process = forked.start(
        [sys.executable, "-m", *arguments, "a/b"], stderr=subprocess.PIPE, text=True
    )
    _, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 2
    assert "--name" in err
    assert "1 to 100 ASCII letters" in err
