// Topics of the real agent at OPLOG_TEST_URL, through a proxy that cuts at OPLOG_TEST_CHAOS_URL.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Consumer, NotAllowedError, OplogError, Topic, TopicNotFoundError } from "../node.js";
import { take } from "./scripted.js";

const { OPLOG_TEST_URL: URL_, OPLOG_TEST_CHAOS_URL: CHAOS, OPLOG_TEST_PASSWORD: password } = process.env;
const FAST = { backoff: [0.01, 0.05], password };
const numbers = (count) => Array.from({ length: count }, (_, number) => String(number));

async function created(name, url = URL_) {
  const { status } = await fetch(`${URL_}/v1/namespaces/js/topics/${name}`, { method: "PUT" });
  assert.equal(status, 200);
  return new Topic(url, `js/${name}`, FAST);
}

async function until(consumer, id) {
  const events = [];
  for await (const event of consumer) {
    events.push(event);
    if (event.id === id) return events;
  }
  return assert.fail("the iteration ended");
}

test("messages of every form come back by poll and stream", async () => {
  const topic = await created("forms");
  await topic.publish([
    "é\0\u2028\ufeff", new TextEncoder().encode("bytes"), Uint8Array.of(0xff, 0, 0x80), { payload: null },
    { payload: Uint8Array.of(0x80), key: "k", headers: [["a", "1"], ["a", "2"]], ttl: 60 },
  ]);
  const { messages, gap } = await topic.poll();
  assert.equal(gap, false);
  assert.deepEqual(messages.map(({ id, ...rest }) => rest), [
    { payload: "é\0\u2028\ufeff", key: null, headers: [] },
    { payload: "bytes", key: null, headers: [] },
    { payload: Uint8Array.of(0xff, 0, 0x80), key: null, headers: [] },
    { payload: null, key: null, headers: [] },
    { payload: Uint8Array.of(0x80), key: "k", headers: [["a", "1"], ["a", "2"]] },
  ]);
  const ids = messages.map(({ id }) => id);
  assert.deepEqual(ids, [...new Set(ids)].sort());
  const streamed = await take(topic.stream({ ...FAST, start: "0" }), 5);
  assert.deepEqual(streamed, messages.map((message) => ({ ...message, event: "message" })));
});

test("polls page, begin at an id or a time, and end", async () => {
  const topic = await created("pages");
  await topic.publish(numbers(25));
  const pages = [];
  let last = null;
  for (;;) {
    const { messages } = await topic.poll({ startFrom: last, inclusive: last === null, limit: 10 });
    if (messages.length === 0) break;
    pages.push(messages.map(({ payload }) => payload));
    last = messages.at(-1).id;
  }
  assert.deepEqual(pages.map((page) => page.length), [10, 10, 5]);
  assert.deepEqual(pages.flat(), numbers(25));
  assert.equal((await topic.poll({ startFrom: last })).messages[0].payload, "24");
  const ms = Number.parseInt(last.slice(0, 16), 16);
  assert.equal((await topic.poll({ startFrom: new Date(ms), limit: 1 })).messages.length, 1);
  assert.deepEqual((await topic.poll({ startFrom: ms, inclusive: false })).messages, []);
  await assert.rejects(topic.poll({ startFrom: "x" }), (error) => error.name === "OplogError" && error.status === 400 && /startFrom/.test(error.message));
});

test("random disconnects of a stream lose nothing and repeat nothing", async () => {
  const topic = await created("cut");
  const consumer = new Topic(CHAOS, "js/cut", FAST).stream({ ...FAST, start: "0" });
  const wanted = numbers(3000);
  const taking = take(consumer, wanted.length);
  for (let first = 0; first < wanted.length; first += 100) await topic.publish(wanted.slice(first, first + 100));
  assert.deepEqual((await taking).map(({ payload }) => payload), wanted);
});

test("lost answers repeat publishes and polls, and lose no message", async () => {
  const topic = await created("lost", CHAOS);
  for (const number of numbers(200)) await topic.publish(number.padEnd(500));
  const got = [];
  for (let last = null; ;) {
    const { messages } = await topic.poll({ startFrom: last, inclusive: false, limit: 20 });
    if (messages.length === 0) break;
    got.push(...messages.map(({ payload }) => payload.trim()));
    last = messages.at(-1).id;
  }
  assert.deepEqual([...new Set(got)], numbers(200));
});

test("the largest message goes through, a larger one is refused with its place", async () => {
  const topic = await created("large");
  const payload = "\u0001".repeat(1 << 20);
  await topic.publish({ payload });
  assert.equal((await topic.poll()).messages[0].payload, payload);
  assert.equal((await take(topic.stream({ ...FAST, start: "0" }), 1))[0].payload, payload);
  await assert.rejects(topic.publish(["a", `${payload}x`]), (error) => error.status === 413 && /messages\[1\]/.test(error.message));
  assert.equal((await topic.poll({ limit: 5 })).messages.length, 1);
});

test("an unknown topic and a wrong password have errors of their own", async () => {
  const missing = new Topic(URL_, "js/missing", FAST);
  for (const call of [() => missing.publish("a"), () => missing.poll(), () => take(missing.stream(), 1)]) {
    await assert.rejects(call(), (error) => error instanceof TopicNotFoundError && /js\/missing/.test(error.message));
  }
  await created("guarded");
  const wrong = new Topic(URL_, "js/guarded", { password: "wrong" });
  for (const call of [() => wrong.poll(), () => take(wrong.stream(), 1)]) {
    await assert.rejects(call(), (error) => error instanceof NotAllowedError && error instanceof OplogError && error.status === 401);
  }
});

test("operations go to and come from system/oplog", async () => {
  const topic = new Topic(URL_, "system/oplog", FAST);
  const now = new Date();
  const consumer = new Consumer(URL_, { ...FAST, types: ["js-topic"], start: now });
  await topic.publish([{ event: "insert", type: "js-topic", id: "a" }, { payload: '{"event":"delete","type":"js-topic","id":"a"}' }]);
  const events = (await until(consumer, "a")).filter(({ id }) => id === "a");
  assert.equal(events.length, 1);
  const { messages } = await topic.poll({ startFrom: now });
  const own = messages.filter(({ payload }) => JSON.parse(payload).type === "js-topic");
  assert.deepEqual(own.map(({ payload }) => JSON.parse(payload).event), ["insert", "delete"]);
  await assert.rejects(topic.publish(["{}"]), (error) => error.status === 400 && /messages\[0\]/.test(error.message));
});
