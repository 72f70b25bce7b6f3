// The isolation of polls and streams, against a server that answers as a test says.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Topic, TopicConsumer } from "../node.js";
import { answer, scripted, stream, take } from "./scripted.js";

const ID = "0000018bcfe568000003" + "0".repeat(20);
const polled = answer("200 OK", "[]", "Content-Type: application/json");
const streamed = stream(`id: ${ID}\nevent: message\ndata: {"payload":"a"}\n\n`);

for (const [given, sent] of [["read_committed", "read_committed"], ["read_uncommitted", "read_uncommitted"], [null, "read_committed"], [undefined, "read_committed"]]) {
  test(`${given} is sent with a poll and with a stream as ${sent}`, async (t) => {
    const agent = await scripted(t, polled, streamed, streamed);
    const topic = new Topic(agent.url, "orders");
    await topic.poll({ isolation: given });
    await take(topic.stream({ isolation: given }), 1);
    await take(new TopicConsumer(`${agent.url}/?a=b`, "orders", { isolation: given }), 1);
    assert.equal(JSON.parse(agent.requests[0].body).isolation, sent);
    const queries = agent.requests.slice(1).map(({ line }) => new URLSearchParams(line.split(" ")[1].split("?")[1]));
    assert.deepEqual(queries.map((query) => query.get("isolation")), [sent, sent]);
    assert.deepEqual(queries.map((query) => query.get("checkpoint")), ["1", "1"]);
  });
}

for (const isolation of ["committed", "READ_COMMITTED", true, 1, ""]) {
  test(`the isolation ${JSON.stringify(isolation)} is refused before it is sent`, async (t) => {
    const agent = await scripted(t, polled);
    const topic = new Topic(agent.url, "orders");
    const refusal = /^TypeError: isolation must be read_committed or read_uncommitted$/;
    await assert.rejects(topic.poll({ isolation }), refusal);
    assert.throws(() => topic.stream({ isolation }), refusal);
    assert.equal(agent.requests.length, 0);
  });
}
