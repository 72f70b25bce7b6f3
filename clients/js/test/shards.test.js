// Shards of streams and polls, against a server that answers as a test says.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Consumer, Topic, TopicConsumer } from "../node.js";
import { untilError } from "./following.js";
import { FAST, answer, operation, scripted, take } from "./scripted.js";

const ID = "0000018bcfe568000003" + "0".repeat(20);
const BLOCKS = { operations: operation(1), messages: `id: ${ID}\nevent: message\ndata: {"payload":"a"}\n\n` };
const OLDER = "the agent does not know shards: it is older than this client and sent everything. Upgrade the agent";
const OTHER = (shard) => `the agent sent the shard ${shard} instead of 3/8`;
const EVERY_CONSUMER = {
  operations: (url, options) => new Consumer(url, { backoff: FAST, timeout: 20, ...options }),
  messages: (url, options) => new TopicConsumer(url, "orders", { backoff: FAST, timeout: 20, ...options }),
  "messages of a Topic": (url, options) => new Topic(url, "orders").stream({ backoff: FAST, timeout: 20, ...options }),
};
const WRONG_ANSWERS = [
  [[], OLDER], [["Oplog-Shard:"], OLDER], [["Oplog-Shard: 3/9"], OTHER("3/9")], [["Oplog-Shard: 03/8"], OTHER("03/8")],
  [["Oplog-Shard: 3/8", "Oplog-Shard: 4/8"], OTHER("3/8, 4/8")],
];

const polled = (messages, ...headers) => answer("200 OK", JSON.stringify(messages), "Content-Type: application/json", ...headers);
const query = ({ line }) => new URL(line.split(" ")[1], "http://localhost").searchParams;

for (const [name, consumer] of Object.entries(EVERY_CONSUMER)) {
  const block = BLOCKS[name.split(" ")[0]];
  const streamed = (...headers) => answer("200 OK", block, "Content-Type: text/event-stream", ...headers);

  test(`a consumer of ${name} asks for its shard at each connection`, async (t) => {
    const agent = await scripted(t, streamed("oplog-shard:  3/8 "), streamed("OPLOG-SHARD: 3/8"));
    await take(consumer(`${agent.url}/?a=b`, { shard: "3/8" }), 2);
    assert.deepEqual(agent.requests.map((request) => [query(request).getAll("shard"), query(request).get("a")]), Array(2).fill([["3/8"], "b"]));
  });

  test(`a consumer of ${name} without a shard asks for none and needs no confirmation`, async (t) => {
    const agent = await scripted(t, streamed(), streamed("Oplog-Shard: 3/8"));
    for (const shard of [undefined, null]) await take(consumer(agent.url, { shard }), 1);
    assert.deepEqual(agent.requests.map((request) => query(request).has("shard")), [false, false]);
  });

  for (const [headers, message] of WRONG_ANSWERS) {
    test(`a consumer of ${name} ends at an answer with ${headers.join() || "no shard"}, also after a good one`, async (t) => {
      const agent = await scripted(t, streamed("Oplog-Shard: 3/8"), streamed(...headers));
      const { events, error } = await untilError(consumer(agent.url, { shard: "3/8" }));
      assert.deepEqual([events.length, error.name, error.message], [1, "OplogError", message]);
      assert.equal(agent.requests.length, 2);
    });
  }

  test(`a consumer of ${name} tries again while the agent has too many numbers of shards`, async (t) => {
    const full = answer("409 Conflict", '{"detail":"too many numbers of shards"}', "Retry-After: 0");
    const agent = await scripted(t, full, streamed("Oplog-Shard: 3/8"), full);
    const lines = [];
    await take(consumer(agent.url, { shard: "3/8", log: (line) => lines.push(line) }), 1);
    assert.match(lines[0], /^too many numbers of shards \(HTTP 409\); trying again in /);
    const { error } = await untilError(consumer(agent.url));
    assert.equal(error.status, 409);
  });
}

for (const shard of ["0/1", "0/256", "255/256"]) {
  test(`the shard ${shard} is good`, () => Object.values(EVERY_CONSUMER).forEach((consumer) => consumer("http://localhost:1", { shard })));
}

for (const shard of ["", "3", "8/8", "9/8", "0/0", "0/257", "03/8", "3/08", "+3/8", "-1/8", " 3/8", "3/8\n", "3/8/9", "3.0/8", "\u0663/8", 3, ["3/8"]]) {
  test(`the shard ${JSON.stringify(shard)} is refused before it is sent`, async (t) => {
    const agent = await scripted(t, polled([]));
    const refusal = /^TypeError: shard must be I\/N, such as 3\/8, with 0 <= I < N <= 256$/;
    for (const consumer of Object.values(EVERY_CONSUMER)) assert.throws(() => consumer(agent.url, { shard }), refusal);
    await assert.rejects(new Topic(agent.url, "orders").poll({ shard }), refusal);
    assert.equal(agent.requests.length, 0);
  });
}

test("a poll asks for its shard and tells how far the answer reaches", async (t) => {
  const agent = await scripted(t, polled([{ id: ID, payload: "a" }], "Oplog-Shard: 3/8", `Oplog-Position: ${ID}`), polled([], "Oplog-Shard: 3/8"), polled([]));
  const topic = new Topic(`${agent.url}/?a=b`, "orders");
  const { messages, position } = await topic.poll({ shard: "3/8" });
  assert.deepEqual([messages.length, position], [1, ID]);
  assert.equal((await topic.poll({ shard: "3/8", startFrom: position, inclusive: false })).position, null);
  await topic.poll({ shard: null });
  assert.deepEqual(agent.requests.map((request) => [query(request).getAll("shard"), query(request).get("a")]), [[["3/8"], "b"], [["3/8"], "b"], [[], "b"]]);
});

for (const [headers, message] of WRONG_ANSWERS) {
  test(`a poll that is answered with ${headers.join() || "no shard"} rejects, and is not repeated`, async (t) => {
    const agent = await scripted(t, polled([{ id: ID, payload: "a" }], ...headers));
    await assert.rejects(new Topic(agent.url, "orders").poll({ shard: "3/8" }), { name: "OplogError", message });
    assert.equal(agent.requests.length, 1);
  });
}
