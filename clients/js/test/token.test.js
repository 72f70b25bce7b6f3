// Tokens and functions that give them, against scripted servers.
import assert from "node:assert/strict";
import { test } from "node:test";

import { HttpProducer, NotAllowedError, OplogError, Topic, TopicConsumer } from "../node.js";
import { collector, follow, untilError } from "./following.js";
import { FAST, LIVE, answer, scripted, stored, stream, take } from "./scripted.js";

const REFUSED = answer("401 Unauthorized", '{"detail":"it has ended"}');
const OPERATION = { event: "insert", type: "video", id: "x" };

/** A function that gives these tokens one by one, or throws these errors. */
function oneByOne(...planned) {
  return async () => {
    const next = planned.shift();
    if (next instanceof Error) throw next;
    return next;
  };
}

function sent(server) {
  return server.requests.map(({ headers }) => headers.authorization);
}

test("a function is called before each connection, and after a failure and a refusal", async (t) => {
  const server = await scripted(t, (socket, request) => {
    if (request.headers.authorization === "Bearer old") socket.end(REFUSED);
    else stream(LIVE)(socket);
  });
  const { lines, log } = collector();
  const token = oneByOne(new OplogError("the issuer is away", 403), "old", "two words", "good\n");
  const consumer = follow(server.url, { token, log });
  assert.equal((await take(consumer, 1))[0].event, "live");
  assert.deepEqual(sent(server), ["Bearer old", "Bearer good"]);
  assert.match(lines[0], /^no token: the issuer is away; trying again in 0\.0 s$/);
  assert.match(lines[1], /^the token was refused: it has ended \(HTTP 401\); trying again/);
  assert.match(lines[2], /^no token: token must be printable ASCII text without a space/);
  assert.doesNotMatch(lines.join(), /old|good|two words/);
});

test("a constant token is sent, and its refusal ends the iteration", async (t) => {
  const server = await scripted(t, REFUSED);
  const { error } = await untilError(follow(server.url, { token: "old" }));
  assert.equal(error.message, "the token was refused: it has ended (HTTP 401)");
  const topic = new TopicConsumer(server.url, "t", { token: "old" });
  assert.ok((await untilError(topic)).error instanceof NotAllowedError);
  assert.deepEqual(sent(server), ["Bearer old", "Bearer old"]);
});

test("stop ends the wait for a token", { timeout: 10_000 }, async (t) => {
  const server = await scripted(t, stream(LIVE));
  const consumer = follow(server.url, {
    timeout: 3600,
    token: () => {
      setImmediate(() => consumer.stop());
      return new Promise(() => {});
    },
  });
  assert.deepEqual(await take(consumer, 1), []);
  assert.deepEqual(server.requests, []);
});

test("requests use a token until it is refused, and then a fresh one once", async (t) => {
  const server = await scripted(t, (socket, { headers }) => {
    socket.end(headers.authorization === "Bearer good" ? answer("200 OK", "[]") : REFUSED);
  });
  const away = new Error("the issuer is away");
  const topic = new Topic(server.url, "t", { token: oneByOne(away, "old", "good", "unused"), backoff: FAST });
  await assert.rejects(topic.poll(), away);
  await topic.poll();
  await topic.poll();
  assert.deepEqual(sent(server), ["Bearer old", "Bearer good", "Bearer good"]);
  const other = new Topic(server.url, "t", { token: oneByOne("old", "older", "good") });
  await assert.rejects(other.poll(), { name: "NotAllowedError", message: "the token was refused: it has ended (HTTP 401)", status: 401 });
  await assert.rejects(new Topic(server.url, "t", { token: "old" }).publish("a"), NotAllowedError);
});

test("requests at the same time share a fresh token", async (t) => {
  const server = await scripted(t, answer("200 OK", "[]"));
  let calls = 0;
  const topic = new Topic(server.url, "t", { token: async () => `token-${(calls += 1)}` });
  await Promise.all([topic.poll(), topic.poll(), topic.poll()]);
  assert.equal(calls, 1);
});

test("a signal ends the wait for a token", async () => {
  const aborter = new AbortController();
  const topic = new Topic("http://localhost:1", "t", { token: () => new Promise(() => aborter.abort(new Error("enough"))) });
  await assert.rejects(topic.poll({ signal: aborter.signal }), { message: "enough" });
});

test("a producer asks for a token at first and after a refusal, and waits when there is none", async (t) => {
  const server = await scripted(t, (socket, request) => {
    if (request.headers.authorization === "Bearer good") stored(socket, request);
    else socket.end(REFUSED);
  });
  const { lines, log } = collector();
  const token = oneByOne(new Error("away"), "old", "good");
  const producer = new HttpProducer(server.url, { token, backoff: FAST, log });
  await producer.send(OPERATION);
  await producer.flush();
  await producer.send(OPERATION);
  await producer.close();
  assert.deepEqual(sent(server), ["Bearer old", "Bearer good", "Bearer good"]);
  assert.deepEqual(lines, ["1 operations wait: no token: away"]);
  const refused = new HttpProducer(server.url, { token: oneByOne("old", "older", "old", "old"), backoff: [9, 9], log });
  await refused.send(OPERATION);
  await assert.rejects(refused.close(), { message: /the token was refused: it has ended \(HTTP 401\)$/ });
  const hung = new HttpProducer(server.url, { token: () => new Promise(() => {}), log });
  await hung.send(OPERATION);
  await assert.rejects(hung.close(0), OplogError); // without waiting for the function
});

test("a token and a password exclude each other", () => {
  for (const make of [follow, (url, options) => new HttpProducer(url, options), (url, options) => new Topic(url, "t", options)]) {
    for (const token of ["a", () => "a"]) {
      assert.throws(() => make("http://localhost:1", { token, password: "b" }), { name: "TypeError", message: /exclude each other/ });
      assert.throws(() => make("http://:b@localhost:1", { token }), { name: "TypeError", message: /exclude each other/ });
    }
    for (const token of ["", "two words", 5]) assert.throws(() => make("http://localhost:1", { token }), { message: /^token must be/ });
  }
  const options = { token: "a", ingestPassword: "b" };
  assert.throws(() => new Topic("http://localhost:1", "t", options), { message: /exclude each other/ });
});
