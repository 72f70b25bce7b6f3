// When the consumer keeps, gives up and repeats its connection.
import assert from "node:assert/strict";
import { test } from "node:test";

import { collector, follow } from "./following.js";
import { LIVE, STREAM, operation, scripted, stream, take } from "./scripted.js";

test("a silent stream is given up, one with comments is not", async (t) => {
  const { lines, log } = collector();
  const commenting = (socket) => {
    socket.write(STREAM + operation(1));
    let count = 0;
    const timer = setInterval(() => {
      count += 1;
      socket.write(count < 30 ? ":\n" : operation(2));
      if (count === 30) clearInterval(timer);
    }, 25);
  };
  const agent = await scripted(t, stream(), commenting);
  const events = await take(follow(agent.url, { heartbeatTimeout: 0.5, log }), 2);
  assert.deepEqual(events.map((event) => event.id), ["v1", "v2"]);
  assert.equal(agent.requests.length, 2);
  assert.match(lines.join(), /silent for too long/);
});

test("a handler slower than the heartbeat timeout costs no connection and no event", async (t) => {
  const blocks = Array.from({ length: 5 }, (_, number) => operation(number + 1));
  const agent = await scripted(t, (socket) => {
    socket.write(STREAM);
    blocks.forEach((block, index) => setTimeout(() => socket.write(block), 10 * index));
  });
  const ids = [];
  for await (const event of follow(agent.url, { heartbeatTimeout: 0.25 })) {
    ids.push(event.id);
    if (ids.length === 5) break;
    if (ids.length === 2) await new Promise((resolve) => setTimeout(resolve, 500));
    if (ids.length === 3) for (const end = Date.now() + 500; Date.now() < end; );
  }
  assert.deepEqual(ids, ["v1", "v2", "v3", "v4", "v5"]);
  assert.equal(agent.requests.length, 1);
});

test("a program that is busy for longer than the heartbeat timeout keeps its connection", async (t) => {
  let send;
  const agent = await scripted(t, (socket) => {
    stream(operation(1))(socket);
    send = (block) => socket.write(block);
  });
  const ids = [];
  for await (const event of follow(agent.url, { heartbeatTimeout: 0.25 })) {
    ids.push(event.id);
    if (ids.length === 2) break;
    // In this phase of Node's loop timers come before bytes.
    setTimeout(() => setImmediate(() => {
      send(operation(2));
      for (const end = Date.now() + 500; Date.now() < end; );
    }), 20);
  }
  assert.deepEqual(ids, ["v1", "v2"]);
  assert.equal(agent.requests.length, 1);
});

test("a connection that lived some seconds resets the back-off, also without an event", async (t) => {
  let seconds = 0;
  t.mock.method(performance, "now", () => (seconds += 6) * 1000);
  const positions = Array.from({ length: 6 }, (_, number) => (socket) => socket.end(`${STREAM}id: ${number + 1}\n\n`));
  const agent = await scripted(t, ...positions, stream(LIVE));
  const delays = [];
  const log = (line) => line.includes("again in") && delays.push(Number(/in ([\d.]+) s/.exec(line)[1]));
  await take(follow(agent.url, { backoff: [0.02, 0.64], log }), 1);
  assert.equal(delays.length, 6);
  assert.ok(Math.max(...delays) <= 0.1, delays.join());
});

test("positions alone do not reset the back-off, an event does", async (t) => {
  const positions = Array.from({ length: 4 }, (_, number) => (socket) => socket.end(`${STREAM}id: ${number + 1}\n\n`));
  const agent = await scripted(t, ...positions, (socket) => socket.end(STREAM + LIVE), stream(LIVE));
  const delays = [];
  const log = (line) => line.includes("again in") && delays.push(Number(/in ([\d.]+) s/.exec(line)[1]));
  await take(follow(agent.url, { backoff: [0.1, 0.8], log }), 2);
  assert.equal(delays.length, 5);
  // A delay is 1 to 2 times the step, which doubles up to half of the longest.
  assert.ok(delays[2] >= 0.4 && delays[3] >= 0.4, delays.join());
  assert.ok(delays[4] <= 0.2, delays.join());
});
