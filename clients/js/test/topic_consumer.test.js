// The stream of a topic, against a server that answers as a test says.
import assert from "node:assert/strict";
import { mkdtemp, readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { NotAllowedError, OplogError, Topic, TopicNotFoundError, TopicConsumer, fileState } from "../node.js";
import { collector, untilError } from "./following.js";
import { FAST, STREAM, answer, operation, scripted, stream, take } from "./scripted.js";

const RESET = "id: 0\nevent: reset\ndata:\n\n";
const id = (number) => number.toString(16).padStart(40, "0");
const message = (number, data = { payload: `m${number}` }) => `id: ${id(number)}\nevent: message\ndata: ${JSON.stringify(data)}\n\n`;
const problem = (status, detail) => answer(status, JSON.stringify({ detail }), "Content-Type: application/problem+json");
const ended = (...blocks) => (socket) => socket.end(STREAM + blocks.join(""));
const follow = ({ url }, options) => new TopicConsumer(url, "shop/orders", { backoff: FAST, timeout: 20, ...options });
const newState = async () => join(await mkdtemp(join(tmpdir(), "oplog-js-")), "state");

test("messages come with all they hold, bytes as bytes", async (t) => {
  const agent = await scripted(t, stream(
    RESET,
    message(1, { payload: "a\u2028", key: "k", headers: [["a", "1"], ["a", "2"]] }),
    message(2, { payload: "gP8=", encoding: "base64" }),
    message(3, { payload: null }),
  ));
  assert.deepEqual(await take(follow(agent, { password: "gehéim" }), 4), [
    { id: "0", event: "reset" },
    { id: id(1), event: "message", payload: "a\u2028", key: "k", headers: [["a", "1"], ["a", "2"]] },
    { id: id(2), event: "message", payload: Uint8Array.of(0x80, 0xff), key: null, headers: [] },
    { id: id(3), event: "message", payload: null, key: null, headers: [] },
  ]);
  const [{ line, headers }] = agent.requests;
  assert.equal(line, "GET /v1/namespaces/shop/topics/orders/stream?checkpoint=1&isolation=read_committed HTTP/1.1");
  assert.equal(headers.accept, "text/event-stream");
  assert.equal(headers["last-event-id"], undefined);
  assert.equal(headers.authorization, `Basic ${Buffer.from(":gehéim").toString("base64")}`);
});

for (const [start, sent] of [["0", "0"], [id(5), id(5)], [new Date(1415271879041), "1415271879041"], [new Date(0), "1"]]) {
  test(`a stream starts at ${String(start)}`, async (t) => {
    const agent = await scripted(t, stream(message(9)));
    await take(follow(agent, { start }), 1);
    assert.equal(agent.requests[0].headers["last-event-id"], sent);
  });
}

test("a stream resumes behind the last message, the last position, or a reset", async (t) => {
  const agent = await scripted(t, ended(message(1), message(2)), ended(`id: ${id(7)}\n\n`), ended(RESET), stream(message(8)));
  const events = await take(follow(agent), 4);
  assert.deepEqual(events.map((event) => event.id), [id(1), id(2), "0", id(8)]);
  assert.deepEqual(agent.requests.map(({ headers }) => headers["last-event-id"]), [undefined, id(2), id(7), "0"]);
});

test("an answer that is busy is tried again, not before its Retry-After", async (t) => {
  const times = [];
  const noting = (respond) => (socket) => {
    times.push(performance.now());
    respond(socket);
  };
  const busy = answer("503 Service Unavailable", "", "Retry-After: 1");
  const agent = await scripted(t, noting((socket) => socket.end(busy)), noting(stream(message(1))));
  await take(follow(agent, { start: id(3) }), 1);
  assert.ok(times[1] - times[0] >= 1000, times.join());
  assert.equal(agent.requests[1].headers["last-event-id"], id(3));
});

for (const [status, kind] of [
  ["404 Not Found", TopicNotFoundError],
  ["401 Unauthorized", NotAllowedError],
  ["403 Forbidden", NotAllowedError],
  ["400 Bad Request", OplogError],
]) {
  test(`${status} ends the iteration with a ${kind.name} that has the agent's sentence`, async (t) => {
    const agent = await scripted(t, ended(message(1)), problem(status, "no such luck"));
    const { events, error } = await untilError(follow(agent));
    assert.deepEqual(events.map((event) => event.id), [id(1)]);
    assert.deepEqual([error.constructor, error.name, error.message], [kind, kind.name, `no such luck (HTTP ${status.slice(0, 3)})`]);
    assert.equal(agent.requests.length, 2);
  });
}

test("a redirect is followed, without the password at another address", async (t) => {
  const other = await scripted(t, stream(message(1)));
  const agent = await scripted(t, answer("307 Temporary Redirect", "", `Location: ${other.url}/elsewhere`));
  await take(follow(agent, { password: "s3cret" }), 1);
  assert.equal(other.requests[0].line, "GET /elsewhere HTTP/1.1");
  assert.equal(other.requests[0].headers.authorization, undefined);
});

test("a message of 1 MiB whose bytes are all escaped is read", async (t) => {
  const payload = "\u0001".repeat(1 << 20);
  const agent = await scripted(t, stream(message(1, { payload }), message(2)));
  const [first, second] = await take(follow(agent), 2);
  assert.equal(first.payload, payload);
  assert.equal(second.payload, "m2");
});

test("events of other names move the position, and are told once", async (t) => {
  const agent = await scripted(t, ended(operation(5), `id: ${id(6)}\nevent: news\ndata:\n\n`), stream(message(7)));
  const { lines, log } = collector();
  await take(follow(agent, { log }), 1);
  assert.equal(agent.requests[1].headers["last-event-id"], id(6));
  assert.equal(lines.filter((line) => /insert|news/.test(line)).length, 1);
});

for (const [name, block, pattern] of [
  ["an id of the oplog", "id: 545b55c7f095528dd0f3863c\nevent: message\ndata: {}\n\n", /no message id/],
  ["no JSON", `id: ${id(3)}\nevent: message\ndata: {\n\n`, /cannot be read: .*JSON/],
  ["no data", `id: ${id(3)}\nevent: message\n\n`, /cannot be read: .*JSON/],
  ["JSON of another kind", `id: ${id(3)}\nevent: message\ndata: null\n\n`, /cannot be read/],
  ["no payload", message(3, {}), /payload must be a string or null/],
  ["a payload that is a number", message(3, { payload: 5 }), /payload must be a string or null/],
  ["damaged base64", message(3, { payload: "%", encoding: "base64" }), /cannot be read/],
  ["more than 8 MiB", message(3, { payload: "x".repeat(8 << 20) }), /a block of the stream has more than 8 MiB/],
]) {
  test(`a block with ${name} ends the iteration behind the messages before it`, async (t) => {
    const agent = await scripted(t, ended(message(1), message(2), block));
    const consumer = follow(agent);
    const { events, error } = await untilError(consumer);
    assert.deepEqual(events.map((event) => event.payload), ["m1", "m2"]);
    assert.equal(error.name, "OplogError", error.stack);
    assert.match(error.message, pattern);
    assert.equal(consumer.position, id(2));
    assert.equal(agent.requests.length, 1);
  });
}

test("a file keeps the position before the oldest message that is not acknowledged", async (t) => {
  const path = await newState();
  const agent = await scripted(t, stream(RESET, message(1), message(2), message(3)), stream(message(2)));
  const consumer = follow(agent, { state: fileState(path), start: "0" });
  for await (const event of consumer) {
    if (event.id !== id(2)) consumer.ack(event);
    if (event.id === id(3)) break;
  }
  await consumer.close();
  assert.equal(await readFile(path, "ascii"), id(1));
  await take(follow(agent, { state: fileState(path), start: "0" }), 1);
  assert.equal(agent.requests[1].headers["last-event-id"], id(1));
});

test("a state with a position of the oplog ends the iteration before the agent is asked", async (t) => {
  const path = await newState();
  await writeFile(path, "545b55c7f095528dd0f3863c");
  const agent = await scripted(t, stream(message(1)));
  const { error } = await untilError(follow(agent, { state: fileState(path) }));
  assert.match(error.message, /which is no position: delete it to begin anew/);
  assert.equal(agent.requests.length, 0);
});

test("stop, close and a signal end the iteration, in a pause too", async (t) => {
  const aborter = new AbortController();
  for (const end of [(consumer) => consumer.stop(), (consumer) => consumer.close(), () => aborter.abort()]) {
    const agent = await scripted(t, stream(message(1)));
    const consumer = follow(agent, { signal: aborter.signal });
    const got = [];
    for await (const event of consumer) {
      got.push(event.payload);
      setImmediate(end, consumer);
    }
    assert.deepEqual(got, ["m1"]);
  }
  const agent = await scripted(t, stream(message(1)));
  assert.equal((await take(follow(agent, { signal: aborter.signal }), 1)).length, 0);
  assert.equal(agent.requests.length, 0);
  const stopping = new AbortController();
  const away = await scripted(t, (socket) => {
    socket.destroy();
    setTimeout(() => stopping.abort(), 20);
  });
  assert.equal((await take(follow(away, { signal: stopping.signal, backoff: [1000, 1000] }), 1)).length, 0);
});

test("a Topic hands its address and its password to its streams", async (t) => {
  const agent = await scripted(t, stream(message(1)));
  const topic = new Topic(`http://user:old@${agent.host}/base`, "shop/orders", { password: "new" });
  const consumer = topic.stream({ start: "0", name: "search" });
  await take(consumer, 1);
  assert.equal(agent.requests[0].line, "GET /base/v1/namespaces/shop/topics/orders/stream?checkpoint=1&name=search&isolation=read_committed HTTP/1.1");
  assert.equal(agent.requests[0].headers.authorization, `Basic ${Buffer.from("user:new").toString("base64")}`);
});

test("bad arguments throw at once", () => {
  assert.throws(() => new TopicConsumer("http://localhost", "system/oplog"), /follow system\/oplog with Consumer/);
  for (const options of [
    { start: "yesterday" }, { start: "545b55c7f095528dd0f3863c" }, { start: new Date(NaN) }, { state: {} }, { signal: {} }, { timeout: 0 }, { maxUnacked: 0 },
    { name: "" }, { name: "a b" }, { name: "x".repeat(101) }, { name: 7 },
  ]) {
    assert.throws(() => new TopicConsumer("http://localhost", "a/b", options), TypeError);
  }
  assert.throws(() => new TopicConsumer("http://localhost", "a/"), TypeError);
});
