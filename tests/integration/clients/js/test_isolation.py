"""The JavaScript client reads the records of a transaction when they are written, or committed."""

import json
from pathlib import Path

from tests.integration.clients.js.test_topics import create, publish, run
from tests.kits.agents.agent import Agent


def test_committed_readers_get_the_records_of_a_transaction_at_its_commit(
    tmp_path: Path, node: str
) -> None:
    records = [{"topic": "shop/orders", "lsn": lsn, "payload": f"r{lsn}"} for lsn in range(2)]
    code = """
        const texts = (messages) => messages.map(({ payload }) => payload).join();
        for (const isolation of ["read_uncommitted", "read_committed"]) {
          const { messages } = await topic.poll({ isolation });
          const streamed = [];
          if (messages.length > 0) {
            for await (const event of topic.stream({ start: "0", isolation })) {
              if (streamed.push(event) === messages.length) break;
            }
          }
          console.log(texts(messages), texts(streamed));
        }
    """
    with Agent(tmp_path) as agent:
        create(agent)
        path = f"/v1/txns/{json.loads(agent.request('POST', '/v1/txns').body)['txn']}"
        assert agent.request("POST", f"{path}/records", {"records": records}).status == 200
        publish(agent, "plain")
        assert run(node, code, agent) == ["r0,r1,plain r0,r1,plain", "plain plain"]
        assert agent.request("POST", f"{path}/commit", {"records": 2}).status == 200
        assert run(node, code, agent) == ["r0,r1,plain r0,r1,plain", "plain,r0,r1 plain,r0,r1"]
