"""No token of a URL reaches a trace, whatever provider of OpenTelemetry is installed."""

from pathlib import Path

from tests.kits.agents.agent import Agent
from tests.kits.contract.passwords import basic


class TracingAgent(Agent):
    program = ("-m", "tests.contract.wire.flags.tracing_agent")


def test_no_span_holds_the_token_of_a_request(tmp_path: Path) -> None:
    with TracingAgent(tmp_path, "--password", "secret") as agent:
        token = agent.request("POST", "/token", None, basic("secret")).json["token"]
        path = f"/session?token={token}"
        assert agent.request("GET", path).json["signed_in"]
        assert agent.request("GET", "/ops?token=guess").status == 406
    assert "span control: {'is_logged': True}" in agent.text()
    assert [line for line in agent.log if "token=" in line or token in line] == []
