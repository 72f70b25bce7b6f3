// Against the real agent at OPLOG_TEST_URL, UDP at OPLOG_TEST_UDP_PORT, through a proxy that cuts at OPLOG_TEST_CHAOS_URL.
import assert from "node:assert/strict";
import { mkdtemp, readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { Consumer, HttpProducer, OplogError, UdpProducer, fileState } from "../node.js";

const { OPLOG_TEST_URL: URL_, OPLOG_TEST_UDP_PORT: UDP, OPLOG_TEST_CHAOS_URL: CHAOS, OPLOG_TEST_PASSWORD: password } = process.env;
const FAST = { backoff: [0.01, 0.05], password, saveInterval: 0.001 };

async function take(consumer, count) {
  const events = [];
  for await (const event of consumer) {
    events.push(event);
    if (events.length === count) break;
  }
  return events;
}

async function until(consumer, name) {
  const events = [];
  for await (const event of consumer) {
    events.push(event);
    if (event.event === name) break;
  }
  return events;
}

const operations = (type, count) => Array.from({ length: count }, (_, n) => ({ event: "insert", type, id: String(n) }));
const newState = async () => join(await mkdtemp(join(tmpdir(), "oplog-js-")), "state");

test("operations travel by HTTP and UDP to a consumer, in order", async () => {
  const consumer = new Consumer(URL_, { ...FAST, types: ["js-a"], start: "0" });
  await until(consumer, "live");
  const http = new HttpProducer(URL_, { batchSize: 70, maxBuffered: 100 });
  for (const operation of operations("js-a", 500)) await http.send(operation);
  await http.flush();
  assert.deepEqual(http.counters, { sent: 500, delivered: 500, rejected: 0, dropped: 0, retried: 0, buffered: 0 });
  await http.close();
  const udp = await UdpProducer.open(`udp://127.0.0.1:${UDP}`);
  udp.send({ event: "UPDATE", type: "js-a", id: "7", parents: ["user/1"], timestamp: new Date(1415271879041) });
  await udp.close();
  const events = await take(consumer, 501);
  assert.deepEqual(events.slice(0, 500).map((event) => event.id), operations("js-a", 500).map((event) => event.id));
  const { eventId, ...update } = events[500];
  assert.match(eventId, /^[0-9a-f]{24}$/);
  assert.deepEqual(update, { event: "update", type: "js-a", id: "7", parents: ["user/1"], timestamp: new Date(1415271879041) });
  await consumer.close();
});

test("random disconnects lose nothing and repeat nothing", async () => {
  const consumer = new Consumer(CHAOS, { ...FAST, types: ["js-b"], start: "0" });
  await until(consumer, "live");
  const http = new HttpProducer(URL_);
  for (const operation of operations("js-b", 3000)) await http.send(operation);
  await http.close();
  const events = await take(consumer, 3000);
  assert.deepEqual(events.map((event) => event.id), operations("js-b", 3000).map((event) => event.id));
  await consumer.close();
});

test("lost answers repeat operations and lose none", async () => {
  const http = new HttpProducer(CHAOS, { ...FAST, batchSize: 10 });
  for (const operation of operations("js-c", 300)) await http.send(operation);
  await http.close();
  assert.equal(http.counters.delivered, 300);
  const consumer = new Consumer(URL_, { ...FAST, types: ["js-c"], start: "0" });
  const copy = await until(consumer, "live");
  assert.equal(copy.length, 302);
  await consumer.close();
});

test("what was not acknowledged comes again, a reset too", async () => {
  const http = new HttpProducer(URL_);
  for (const operation of operations("js-d", 10)) await http.send(operation);
  await http.close();
  const path = await newState();
  const options = { ...FAST, types: ["js-d"], start: "0", state: fileState(path) };
  let consumer = new Consumer(URL_, options);
  (await take(consumer, 12)).slice(1).reverse().forEach((event) => consumer.ack(event));
  await consumer.close();
  assert.equal(await readFile(path, "ascii"), "0");
  consumer = new Consumer(URL_, options);
  const events = await take(consumer, 12);
  assert.equal(events[0].event, "reset");
  [11, 0, 1, 2].forEach((index) => consumer.ack(events[index]));
  await consumer.close();
  assert.equal(await readFile(path, "ascii"), events[2].eventId);
  consumer = new Consumer(URL_, options);
  const again = await until(consumer, "live");
  again.forEach((event) => consumer.ack(event));
  await consumer.close();
  const seen = new Set(again.map((event) => event.id));
  assert.ok(events.slice(3, 11).every((event) => seen.has(event.id)));
  assert.equal(await readFile(path, "ascii"), again.at(-1).eventId);
});

test("iteration waits when too much is not acknowledged", async () => {
  const path = await newState();
  const consumer = new Consumer(URL_, { ...FAST, types: ["js-d"], start: "0", state: fileState(path), maxUnacked: 2 });
  const waiting = [];
  const events = [];
  for await (const event of consumer) {
    events.push(event);
    waiting.push(event);
    if (waiting.length === 2) setImmediate(() => consumer.ack(waiting.shift()));
    if (event.event === "live") break;
  }
  assert.equal(events.length, 12);
  await consumer.close();
});

test("a wrong password and a broken state are told at once", async () => {
  const consumer = new Consumer(URL_, { password: "wrong" });
  await assert.rejects(take(consumer, 1), (error) => error instanceof OplogError && error.status === 401);
  const path = await newState();
  await writeFile(path, "what?");
  await assert.rejects(take(new Consumer(URL_, { ...FAST, state: fileState(path) }), 1), /no position/);
  assert.throws(() => new Consumer("ftp://host"), TypeError);
  assert.throws(() => new Consumer(URL_, { start: "yesterday" }), TypeError);
});

test("stop ends a wait", async () => {
  const consumer = new Consumer(URL_, { ...FAST, types: ["js-none"], start: "0" });
  const got = [];
  for await (const event of consumer) {
    got.push(event.event);
    if (event.event === "live") setImmediate(() => consumer.stop());
  }
  assert.deepEqual(got, ["reset", "live"]);
  await consumer.close();
});
