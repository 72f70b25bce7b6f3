"""oplogctl topic and oplog-tail with a shard."""

import json
from collections.abc import Callable

import pytest

from oplogc.ctl import cli
from oplogc.tail import cli as tail
from oplogd.model.message_id import MessageId
from tests.integration.clients.topics.test_stream import IDS, block
from tests.kits.clients.streams import HEAD, operation
from tests.kits.servers.request import Request
from tests.kits.servers.scripted import ScriptedServer, answer

UNKNOWN = "sent everything: the agent does not know shards"
MS = 1_415_271_879_041
COMMANDS = {
    "tail": (tail.main, [], operation("a"), "video/a"),
    "follow": (cli.main, ["topic", "follow", "t"], block(0, "first"), "first"),
    "poll": (cli.main, ["topic", "poll", "t"], [{"id": IDS[0], "payload": "first"}], "first"),
}


@pytest.mark.parametrize("knows", [True, False])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_shows_messages_of_its_shard_only(
    name: str,
    knows: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    main, words, content, shown = COMMANDS[name]
    echo = ["Oplog-Shard: 3/8"] if knows else []
    if isinstance(content, bytes):
        lines = "".join(f"{line}\r\n" for line in [*echo, "Connection: close"])
        reply = HEAD + lines.encode() + b"\r\n" + content
    else:
        reply = answer("200 OK", json.dumps(content), *echo)
    with ScriptedServer([reply]) as server:
        for variable in ("OPLOG_TAIL_URL", "OPLOGCTL_URL"):
            monkeypatch.setenv(variable, server.url)
        count = "-n1"
        assert main([*words, "--shard", "3/8", count]) == (0 if knows else 1)
    out, err = capsys.readouterr()
    assert (shown in out, UNKNOWN in err) == (knows, not knows)
    assert [request.query["shard"] for request in server.requests] == [["3/8"]]


def _pages(count: int, page: int) -> Callable[[Request], bytes]:
    """Answer polls of a shard, whose messages are every second one, with few messages each."""
    ids = [str(MessageId(MS + number, 0)) for number in range(2 * count)]

    def reply(request: Request) -> bytes:
        assert request.query["shard"] == ["3/8"]
        start = request.json["startFrom"]
        if isinstance(start, str):
            first = ids.index(start) + 1
            assert first % 2 == 0, "it does not begin at the position"
        else:
            first = max((start or 0) - MS, 0)
        own = range(first + first % 2, len(ids), 2)[: min(page, request.json["limit"])]
        position = [f"Oplog-Position: {ids[own[-1] + 1]}"] if own else []
        body = json.dumps([{"id": ids[each], "payload": str(each)} for each in own])
        return answer("200 OK", body, "Oplog-Shard: 3/8", *position)

    return reply


def test_peek_goes_on_at_the_position_of_a_poll(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedServer(_pages(12, 5)) as server:
        monkeypatch.setenv("OPLOGCTL_URL", server.url)
        assert cli.main(["topic", "peek", "t", "-n", "3", "--shard", "3/8", "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["payload"] for line in lines] == ["18", "20", "22"]
