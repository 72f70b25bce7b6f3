"""The JavaScript client with topics: agents that stop, stall or refuse, and topics that go."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests.integration.clients.js.test_js import JS, documented, install
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clients.following import Following
from tests.kits.clients.restart import agent_on
from tests.kits.contract.passwords import basic
from tests.kits.contract.wire import wait_until
from tests.kits.servers.ports import free_port

TOPIC = "/v1/namespaces/shop/topics/orders"
PASSWORD = "gehéim"
WRITE_PASSWORD = "schréib"

_BEGIN = """
import { Topic, fileState } from "./node.js";
const [url, ...args] = process.argv.slice(1);
const topic = new Topic(url, "shop/orders", { backoff: [0.01, 0.05] });
const failed = (error) => console.log(`${error.name}: ${error.message}`);
"""
_FOLLOW = f"""{_BEGIN}
const [path] = args;
const consumer = topic.stream({{
  start: "0", state: fileState(path), backoff: [0.01, 0.05], saveInterval: 0.001,
  log: console.error,
}});
try {{
  for await (const event of consumer) {{
    console.log(event.event === "reset" ? "reset" : event.payload);
    consumer.ack(event);
  }}
}} catch (error) {{
  failed(error);
}}
await consumer.close();
"""
_PUBLISH = f"""{_BEGIN}
for (let number = 0; number < Number(args[0]); number += 1) {{
  await topic.publish(String(number));
  console.log(number);
}}
"""


def program(node: str, code: str, *arguments: object) -> list[str]:
    return [node, "--input-type=module", "-e", code, *map(str, arguments)]


def run(node: str, code: str, agent: Agent) -> list[str]:
    """Run code with the variable ``topic``, and return its lines."""
    done = subprocess.run(
        program(node, _BEGIN + code, agent.url),
        cwd=JS,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def create(agent: Agent) -> None:
    assert agent.request("PUT", TOPIC).status == 200


def publish(agent: Agent, *payloads: str) -> None:
    assert agent.request("POST", f"{TOPIC}/publish", {"messages": payloads}).status == 200


def poll(agent: Agent) -> list[dict[str, Any]]:
    answer = agent.request("POST", f"{TOPIC}/poll")
    messages: list[dict[str, Any]] = json.loads(answer.body)
    return messages


def wait_for_state(path: Path, id_: str) -> None:
    """Wait for the position of a message, or of a checkpoint behind it."""
    wanted = (id_, id_[:20] + "ffffffffffffffff0001")
    assert wait_until(lambda: path.exists() and path.read_text() in wanted)


def test_restarts_and_kills_of_the_agent_lose_nothing_and_repeat_nothing_in_the_stream(
    tmp_path: Path, node: str
) -> None:
    port = free_port()
    count = 400
    state = tmp_path / "state"
    agent = agent_on(port, tmp_path)
    try:
        create(agent)
        follower = Following(program(node, _FOLLOW, agent.url, state), cwd=JS)
        publisher = Following(program(node, _PUBLISH, agent.url, count), cwd=JS)
        try:
            for end in (Agent.stop, Agent.kill, Agent.stop, Agent.kill):
                publisher.take(count // 5)
                end(agent)
                agent = agent_on(port, tmp_path)
            publisher.take(count // 5)
            stored = [message["payload"] for message in poll(agent)]
            assert follower.take(len(stored)) == stored
        finally:
            follower.kill()
            publisher.kill()
        # A publish whose answer was lost is repeated.
        assert list(dict.fromkeys(stored)) == [str(number) for number in range(count)]
        assert len(stored) <= count + 4
    finally:
        agent.kill()


def test_a_consumer_that_was_killed_resumes_behind_its_last_message(
    tmp_path: Path, node: str
) -> None:
    state = tmp_path / "state"
    with Agent(tmp_path) as agent:
        create(agent)
        publish(agent, "a", "b")
        command = program(node, _FOLLOW, agent.url, state)
        first = Following(command, cwd=JS)
        assert first.take(2) == ["a", "b"]
        wait_for_state(state, poll(agent)[1]["id"])
        first.kill()
        publish(agent, "c", "d")
        second = Following(command, cwd=JS)
        assert second.take(2) == ["c", "d"]
        second.kill()


def test_a_deleted_topic_ends_the_stream_with_an_error_and_a_new_one_begins_with_reset(
    tmp_path: Path, node: str
) -> None:
    state = tmp_path / "state"
    with Agent(tmp_path) as agent:
        create(agent)
        publish(agent, "a")
        command = program(node, _FOLLOW, agent.url, state)
        follower = Following(command, cwd=JS)
        assert follower.take(1) == ["a"]
        assert agent.request("DELETE", TOPIC).status == 200
        code, rest = follower.rest()
        assert (code, rest) == (
            0,
            "TopicNotFoundError: there is no topic shop/orders (HTTP 404)\n",
        )
        create(agent)
        publish(agent, "b")
        again = Following(command, cwd=JS)
        assert again.take(2) == ["reset", "b"]
        again.kill()


def test_a_poll_from_a_deleted_topic_on_has_a_gap(tmp_path: Path, node: str) -> None:
    with Agent(tmp_path) as agent:
        create(agent)
        publish(agent, "a", "b")
        old = poll(agent)[0]["id"]
        poll_from_there = f"""
            const asked = {{ startFrom: "{old}", inclusive: false }};
            const {{ messages, gap }} = await topic.poll(asked);
            console.log(messages.map(({{ payload }}) => payload).join(), gap);
        """
        assert run(node, poll_from_there, agent) == ["b false"]
        assert agent.request("DELETE", TOPIC).status == 200
        create(agent)
        publish(agent, "c")
        assert run(node, poll_from_there, agent) == ["c true"]


def test_expired_messages_behind_the_position_are_a_reset_and_a_gap(
    tmp_path: Path, node: str
) -> None:
    with Agent(tmp_path) as agent:
        create(agent)
        publish(agent, "a")
        publish(agent, "b")
        first, last = (message["id"] for message in poll(agent))
        assert agent.request("PUT", f"{TOPIC}/properties", {"ttl": 1}).status == 200
        assert wait_until(lambda: poll(agent) == [])
        assert agent.request("PUT", f"{TOPIC}/properties", {"ttl": 600}).status == 200
        publish(agent, "c")
        code = f"""
            for (const id of ["{first}", "{last}"]) {{
              const {{ messages, gap }} = await topic.poll({{ startFrom: id, inclusive: false }});
              console.log(messages.map(({{ payload }}) => payload).join(), gap);
              for await (const event of topic.stream({{ start: id }})) {{
                console.log(event.event, event.payload);
                if (event.payload === "c") break;
              }}
            }}
        """
        assert run(node, code, agent) == [
            *("c true", "reset undefined", "message c"),
            *("c false", "message c"),
        ]


def test_a_consumer_without_a_message_yet_misses_none_that_comes_while_its_agent_is_away(
    tmp_path: Path, node: str
) -> None:
    port = free_port()
    state = tmp_path / "state"
    code = _FOLLOW.replace('start: "0", ', "")
    with agent_on(port, tmp_path) as agent:
        create(agent)
        publish(agent, "before")
        follower = Following(program(node, code, agent.url, state), cwd=JS)
        wait_for_state(state, poll(agent)[0]["id"])
        agent.kill()
    with Agent(tmp_path) as elsewhere:
        publish(elsewhere, "a", "b")
    with agent_on(port, tmp_path):
        assert follower.take(2) == ["a", "b"]
        follower.kill()


def test_the_passwords_for_reading_and_writing_are_told_apart(tmp_path: Path, node: str) -> None:
    flags = ("--password", PASSWORD, "--ingest-password", WRITE_PASSWORD)
    with Agent(tmp_path, *flags) as agent:
        code = f"""
            const given = ["none", "{PASSWORD}", "{WRITE_PASSWORD}"];
            const topics = given.map((password) => new Topic(url, "shop/missing", {{ password }}));
            const refused = ({{ name }}) => console.log(name);
            const follow = async (each) => {{
              for await (const event of each.stream()) console.log(event);
            }};
            for (const each of topics) await each.publish("a").catch(refused);
            for (const each of topics) await each.poll().catch(refused);
            for (const each of topics) await follow(each).catch(refused);
        """
        refused, unknown = "NotAllowedError", "TopicNotFoundError"
        reading = [refused, unknown, refused]
        assert run(node, code, agent) == [refused, refused, unknown, *reading, *reading]
        answer = agent.request("PUT", TOPIC, {}, basic(WRITE_PASSWORD))
        assert answer.status == 200
        code = f"""
            const passwords = {{ password: "{PASSWORD}", ingestPassword: "{WRITE_PASSWORD}" }};
            const both = new Topic(url, "shop/orders", passwords);
            await both.publish("a");
            for (const {{ payload }} of (await both.poll()).messages) console.log(payload);
            for await (const {{ payload }} of both.stream({{ start: "0" }})) {{
              console.log(payload);
              break;
            }}
        """
        assert run(node, code, agent) == ["a", "a"]


def test_an_agent_that_stalls_ends_a_call_with_its_time_out(tmp_path: Path, node: str) -> None:
    with Agent(tmp_path) as agent:
        create(agent)
        code = f"""
            const hasty = new Topic(url, "shop/orders", {{ timeout: 0.2 }});
            process.kill({agent.process.pid}, "SIGSTOP");
            await hasty.poll().catch(failed);
            process.kill({agent.process.pid}, "SIGCONT");
            await topic.publish("a");
            console.log((await topic.poll()).messages.length);
        """
        try:
            assert run(node, code, agent) == [
                "UnavailableError: the agent did not answer in time",
                "1",
            ]
        finally:
            os.kill(agent.process.pid, signal.SIGCONT)


BAD_CALLS = {
    'publish({ payload: "", key: "x".repeat(2000) })': "messages[0].key",
    'publish(["a", { payload: "", ttl: 2 ** 40 }])': "messages[1].ttl",
    'poll({ startFrom: "0".repeat(39) })': "startFrom",
    'poll({ startFrom: "A".repeat(40) })': "startFrom",
}


def test_the_agents_sentence_about_bad_input_names_the_field(tmp_path: Path, node: str) -> None:
    with Agent(tmp_path) as agent:
        create(agent)
        code = "".join(f"await topic.{call}.catch(failed);\n" for call in BAD_CALLS)
        lines = run(node, code, agent)
        for line, said in zip(lines, BAD_CALLS.values(), strict=True):
            assert line.startswith("OplogError: ")
            assert said in line
            assert line.endswith("(HTTP 400)")
        assert poll(agent) == []


def test_the_documented_program_polls_and_streams_its_messages_also_at_a_second_run(
    tmp_path: Path, node: str
) -> None:
    install(tmp_path)
    messages = ["first null []", "second o-2 [ [ 'source', 'web' ] ]", "null []"]
    with Agent(tmp_path) as agent:
        for runs in (1, 2):
            done = subprocess.run(
                [node, "--input-type=module", "-e", documented("topics", agent.port)],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=DEADLINE,
            )
            assert (done.returncode, done.stderr) == (0, "")
            lines = done.stdout.replace("Uint8Array(2) [ 255, 254 ] ", "").splitlines()
            assert lines[: 3 * runs] == [f"polled {message}" for message in messages] * runs
            streamed = ["streamed first", "streamed second", "streamed Uint8Array(2) [ 255, 254 ]"]
            assert lines[3 * runs :] == streamed * runs
