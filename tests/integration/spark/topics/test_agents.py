"""Reads of a topic through several agents on one store."""

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from oplog_sync.source.http import Agents, Answer
from oplog_sync.source.patience import patiently
from oplog_sync.topics.agent import AgentTopic
from oplog_sync.topics.origin import TopicOrigin
from tests.integration.spark.topics.world import (
    TOPIC,
    between,
    commit,
    publish_under,
    topic_options,
)
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.agents.topics import Topic

_ROUNDS = 40


class CountedAgents(Agents):
    asked = 0

    def ask(self, *args: Any, **more: Any) -> Answer:
        self.asked += 1
        return super().ask(*args, **more)


def origin_at(*agents: Agent, client: Agents | None = None) -> TopicOrigin:
    options = topic_options()
    client = client or Agents([agent.url for agent in agents])
    return TopicOrigin(AgentTopic(client, options, partial(patiently, retry_for=DEADLINE)), options)


def test_a_batch_has_what_another_agent_took_although_memory_is_a_moment_behind(
    tmp_path: Path,
) -> None:
    with (
        Agent(tmp_path) as one,
        Agent(tmp_path) as other,
        closing(origin_at(one)) as driver,
        closing(origin_at(other)) as task,
    ):
        topic = Topic(one, TOPIC).create()
        position = driver.start("now")
        for number in range(_ROUNDS):
            topic.publish(str(number))
            commit(one, topic, f"{number} a", f"{number} b")
            end = driver.latest(position, None)
            found = between(task, position, end)
            assert found == [str(number), f"{number} a", f"{number} b"]
            position = end


def test_the_next_agent_goes_on_when_one_is_killed(tmp_path: Path) -> None:
    with (
        Agent(tmp_path) as one,
        Agent(tmp_path) as other,
        closing(origin_at(one, other)) as origin,
    ):
        topic = Topic(other, TOPIC).create()
        start = origin.start("now")
        topic.publish("1", "2")
        end = origin.latest(start, 1)
        one.kill()
        assert between(origin, start, end) == ["1"]
        later = origin.latest(end, None)
        assert between(origin, end, later) == ["2"]


def test_a_look_at_a_topic_without_news_costs_one_request_and_few_while_a_pointer_is_open(
    tmp_path: Path,
) -> None:
    with Agent(tmp_path) as agent:
        client = CountedAgents([agent.url])
        with closing(origin_at(client=client)) as origin:
            topic = Topic(agent, TOPIC).create()
            for number in range(50):
                topic.publish(str(number))
            position = origin.start("now")

            def cost() -> int:
                before = client.asked
                assert origin.latest(position, None) == position
                return client.asked - before

            assert cost() == 1
            publish_under(topic, 5, "held")
            topic.publish("behind")
            assert cost() > 3
            # The newest entry, the open pointers, the last decided entry, and those behind it.
            assert [cost() for _ in range(3)] == [4, 4, 4]
