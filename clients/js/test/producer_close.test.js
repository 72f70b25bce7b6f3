// The HTTP producer: room, flush and close.
import assert from "node:assert/strict";
import { test } from "node:test";

import { OplogError } from "../node.js";
import { hangUp, insert, numbers, produce, storing } from "./producing.js";
import { scripted, stored } from "./scripted.js";

test("close under load: what send took is delivered, what it refused is not", async (t) => {
  const accepted = [];
  const agent = await scripted(t, storing(accepted));
  const producer = produce(agent.url, { maxBuffered: 20, batchSize: 7 });
  const taken = [];
  const senders = numbers(8).map(async (sender) => {
    for (let number = 0; ; number++) {
      const id = `${sender}-${number}`;
      try {
        await producer.send(insert(id));
        taken.push(id);
      } catch (error) {
        return error;
      }
    }
  });
  while (accepted.length < 200) await new Promise((resolve) => setImmediate(resolve));
  await producer.close();
  assert.deepEqual([...accepted].sort(), [...taken].sort());
  for (const error of await Promise.all(senders)) assert.match(error.message, /closed/);
});

test("sends that wait for room keep their order, and close wakes them with an error", async (t) => {
  const accepted = [];
  let release;
  const first = (socket, request) => (release = () => storing(accepted)(socket, request));
  const agent = await scripted(t, first, storing(accepted));
  const producer = produce(agent.url, { maxBufferedBytes: 1000 });
  const large = { ...insert("large"), parents: ["x".repeat(900)] };
  const small = producer.send(insert("first"));
  const sent = [small, producer.send(large), producer.send(insert("small"))];
  while (!release) await new Promise((resolve) => setImmediate(resolve));
  release();
  await Promise.all(sent);
  await producer.flush();
  assert.deepEqual(accepted, ["first", "large", "small"]);
  await producer.close();

  const silent = await scripted(t, () => {});
  const stuck = produce(silent.url, { maxBuffered: 1 });
  await stuck.send(insert(1));
  const blocked = assert.rejects(stuck.send(insert(2)), /closed/);
  await assert.rejects(stuck.close(0.05), /^OplogError: 1 operations are not delivered/);
  await blocked;
  assert.deepEqual(stuck.counters.sent, 1);
});

test("a second close shares the first or returns at once", async (t) => {
  const agent = await scripted(t, () => {});
  const producer = produce(agent.url);
  await producer.send(insert(1));
  const [first, second] = await Promise.allSettled([producer.close(0.05), producer.close(60)]);
  assert.deepEqual([first.status, second.status], ["rejected", "rejected"]);
  await producer.close(60);
  await assert.rejects(producer.send(insert(2)), /closed/);
  await assert.rejects(producer.flush(60), /not delivered/);
});

test("flush can wait without end, and refuses a time that is none", async (t) => {
  const warnings = [];
  const warned = (warning) => warnings.push(warning);
  process.on("warning", warned);
  t.after(() => process.off("warning", warned));
  const agent = await scripted(t, hangUp, stored);
  const producer = produce(agent.url, { timeout: Infinity });
  await producer.send(insert(1));
  await producer.flush(Infinity);
  for (const seconds of [NaN, -1, "5", null]) await assert.rejects(producer.flush(seconds), TypeError);
  await producer.close(Infinity);
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(warnings, []);
});
