// Publishing to a topic and polling it, against a server that answers as a test says.
import assert from "node:assert/strict";
import { test } from "node:test";

import { NotAllowedError, OplogError, Topic, TopicNotFoundError, UnavailableError } from "../node.js";
import { FAST, answer, scripted, stream, take } from "./scripted.js";

const ID = "0000018bcfe568000003" + "0".repeat(20);
const PROBLEM = "Content-Type: application/problem+json";
const OK = answer("200 OK");

const open = (agent, options) => new Topic(agent.url, "shop/orders", { backoff: FAST, timeout: 20, ...options });
const problem = (status, detail, ...headers) => answer(status, JSON.stringify({ detail }), PROBLEM, ...headers);
const polled = (messages, ...headers) => answer("200 OK", JSON.stringify(messages), "Content-Type: application/json", ...headers);
const hangUp = (socket) => socket.destroy();
const stall = () => {};
const sent = ({ requests }) => requests.map(({ body }) => JSON.parse(body));

test("messages of every form are published in one request", async (t) => {
  const agent = await scripted(t, OK);
  await open(agent, { password: "gehéim" }).publish([
    "text",
    new TextEncoder().encode("\ufeffbytes é"),
    Uint8Array.of(0xff, 0xfe).subarray(1),
    { payload: null, key: "k", headers: [["a", "1"], ["a", "2"]], ttl: 5 },
    { payload: Uint8Array.of(0x80), key: null, headers: null, ttl: undefined },
    "\ufeff\0\u2028",
  ]);
  assert.deepEqual(sent(agent), [{
    messages: [
      "text",
      "\ufeffbytes é",
      { payload: "/g==", encoding: "base64" },
      { payload: null, key: "k", headers: [["a", "1"], ["a", "2"]], ttl: 5 },
      { payload: "gA==", encoding: "base64" },
      "\ufeff\0\u2028",
    ],
  }]);
  const [{ line, headers }] = agent.requests;
  assert.equal(line, "POST /v1/namespaces/shop/topics/orders/publish HTTP/1.1");
  assert.equal(headers["content-type"], "application/json");
  assert.equal(headers.authorization, `Basic ${Buffer.from(":gehéim").toString("base64")}`);
});

test("each password is for its own requests, and one alone for all", async (t) => {
  for (const [credentials, options, publishing, reading] of [
    ["", { password: "r" }, ":r", ":r"],
    ["", { ingestPassword: "w" }, ":w", ":w"],
    ["", { password: "r", ingestPassword: "w" }, ":w", ":r"],
    ["user:old@", {}, "user:old", "user:old"],
    ["user:old@", { password: "r" }, "user:r", "user:r"],
    ["user:old@", { ingestPassword: "w" }, "user:w", "user:old"],
    ["user:old@", { password: "r", ingestPassword: "w" }, "user:w", "user:r"],
  ]) {
    const agent = await scripted(t, OK, polled([]), stream(`id: ${ID}\nevent: message\ndata: {"payload":""}\n\n`));
    const topic = new Topic(`http://${credentials}${agent.host}`, "shop/orders", options);
    await topic.publish("a");
    await topic.poll();
    await take(topic.stream(), 1);
    const given = agent.requests.map(({ headers }) => Buffer.from(headers.authorization.split(" ")[1], "base64").toString());
    assert.deepEqual(given, [publishing, reading, reading]);
  }
});

test("a topic without a namespace is in the default one", async (t) => {
  const agent = await scripted(t, OK);
  await new Topic(agent.url, "orders").publish("a");
  assert.equal(agent.requests[0].line, "POST /v1/namespaces/default/topics/orders/publish HTTP/1.1");
});

test("one message needs no list", async (t) => {
  const agent = await scripted(t, OK);
  const topic = open(agent);
  await topic.publish("a");
  await topic.publish(Uint8Array.of(0x80));
  await topic.publish({ payload: "b" });
  assert.deepEqual(sent(agent).map(({ messages }) => messages), [["a"], [{ payload: "gA==", encoding: "base64" }], [{ payload: "b" }]]);
});

test("operations can be published to system/oplog", async (t) => {
  const agent = await scripted(t, OK);
  const topic = new Topic(`${agent.url}/base/`, "system/oplog");
  await topic.publish([{ event: "insert", type: "video", id: "a" }, '{"event":"delete","type":"video","id":"a"}']);
  await assert.rejects(topic.publish([{ event: "insert", type: "a/b", id: "a" }]), /^TypeError: messages\[0\]\.type: must not contain/);
  await assert.rejects(open(agent).publish([{ event: "insert", type: "video", id: "a" }]), /^TypeError: messages\[0\]\.event: is not a member/);
  assert.deepEqual(sent(agent), [{ messages: ['{"event":"insert","type":"video","id":"a"}', '{"event":"delete","type":"video","id":"a"}'] }]);
  assert.match(agent.requests[0].line, /^POST \/base\/v1\/namespaces\/system\/topics\/oplog\/publish /);
});

for (const [messages, pattern] of [
  [[], /^messages: must not be empty/],
  [["a", 5], /^messages\[1\]: must be a string/],
  [[null], /^messages\[0\]: must be a string/],
  [[["a"]], /^messages\[0\]: must be a string/],
  [["\ud800"], /^messages\[0\]: has an unpaired surrogate/],
  [{}, /^messages\[0\]\.payload: must be a string, a Uint8Array or null/],
  [{ payload: 5 }, /^messages\[0\]\.payload: must be a string, a Uint8Array or null/],
  [{ payload: new ArrayBuffer(1) }, /^messages\[0\]\.payload: must be/],
  [{ payload: "", text: "" }, /^messages\[0\]\.text: is not a member of a message/],
  [{ payload: "gA==", encoding: "base64" }, /^messages\[0\]\.encoding: is not a member of a message/],
  [{ payload: "", key: 5 }, /^messages\[0\]\.key: must be a string/],
  [{ payload: "", key: "\udc00" }, /^messages\[0\]\.key: has an unpaired surrogate/],
  [{ payload: "", headers: { a: "b" } }, /^messages\[0\]\.headers: must be a list of \[name, value\]/],
  [{ payload: "", headers: [["a", "b"], ["a"]] }, /^messages\[0\]\.headers\[1\]: must be \[name, value\]/],
  [{ payload: "", headers: [["a", 1]] }, /^messages\[0\]\.headers\[0\]: must be \[name, value\]/],
  [{ payload: "", headers: [["\ud800", ""]] }, /^messages\[0\]\.headers\[0\]: has an unpaired surrogate/],
  [{ payload: "", ttl: 0 }, /^messages\[0\]\.ttl: must be a whole number of seconds/],
  [{ payload: "", ttl: 1.5 }, /^messages\[0\]\.ttl: must be a whole number of seconds/],
  [{ payload: "", ttl: "5" }, /^messages\[0\]\.ttl: must be a whole number of seconds/],
]) {
  test(`${JSON.stringify(messages)} is refused before it is sent`, async (t) => {
    const agent = await scripted(t, OK);
    await assert.rejects(open(agent).publish(messages), (error) => error instanceof TypeError && pattern.test(error.message));
    assert.equal(agent.requests.length, 0);
  });
}

test("a poll returns messages with bytes as bytes, and a gap", async (t) => {
  const agent = await scripted(t, polled([
    { id: ID, payload: "a", key: "k", headers: [["a", "1"]] },
    { id: ID, payload: "gP8=", encoding: "base64" },
    { id: ID, payload: null },
  ], "Oplog-Gap: 1"), polled([{ id: "545b55c7f095528dd0f3863c", payload: "{}" }]), polled([]));
  const topic = open(agent);
  assert.deepEqual(await topic.poll({ startFrom: ID, inclusive: false, limit: 3 }), {
    messages: [
      { id: ID, payload: "a", key: "k", headers: [["a", "1"]] },
      { id: ID, payload: Uint8Array.of(0x80, 0xff), key: null, headers: [] },
      { id: ID, payload: null, key: null, headers: [] },
    ],
    gap: true,
    position: null,
  });
  const { messages, gap } = await topic.poll({ startFrom: new Date(1415271879041) });
  assert.deepEqual([messages[0].id, gap], ["545b55c7f095528dd0f3863c", false]);
  assert.deepEqual(await topic.poll({ startFrom: 0, limit: null }), { messages: [], gap: false, position: null });
  await topic.poll();
  const isolation = "read_committed";
  assert.deepEqual(sent(agent), [
    { startFrom: ID, inclusive: false, limit: 3, isolation },
    { startFrom: 1415271879041, inclusive: true, limit: null, isolation },
    { startFrom: 0, inclusive: true, limit: null, isolation },
    { startFrom: null, inclusive: true, limit: null, isolation },
  ]);
  assert.equal(agent.requests[0].line, "POST /v1/namespaces/shop/topics/orders/poll HTTP/1.1");
});

for (const options of [
  { startFrom: -1 }, { startFrom: 1.5 }, { startFrom: NaN }, { startFrom: new Date(NaN) }, { startFrom: {} }, { limit: 0 }, { limit: 1.5 },
  { limit: "5" }, { inclusive: 1 }, { signal: {} },
]) {
  test(`a poll with ${Object.entries(options).join()} is refused before it is sent`, async (t) => {
    const agent = await scripted(t, polled([]));
    await assert.rejects(open(agent).poll(options), TypeError);
    assert.equal(agent.requests.length, 0);
  });
}

test("a message of 1 MiB whose bytes are all escaped is polled", async (t) => {
  const payload = "\u0001".repeat(1 << 20);
  const agent = await scripted(t, polled([{ id: ID, payload }]));
  assert.equal((await open(agent).poll()).messages[0].payload, payload);
});

for (const [name, text] of [
  ["HTML", answer("200 OK", "<html>")],
  ["an object", polled({})],
  ["an id that is none", polled([{ id: "5", payload: "a" }])],
  ["no payload", polled([{ id: ID }])],
  ["a payload that is a number", polled([{ id: ID, payload: 5 }])],
  ["damaged base64", polled([{ id: ID, payload: "%", encoding: "base64" }])],
  ["an encoding of another name", polled([{ id: ID, payload: "", encoding: "hex" }])],
  ["a key that is a number", polled([{ id: ID, payload: "", key: 5 }])],
  ["a header without a value", polled([{ id: ID, payload: "", headers: [["a"]] }])],
]) {
  test(`a poll answered with ${name} rejects, and is not repeated`, async (t) => {
    const agent = await scripted(t, text);
    await assert.rejects(open(agent).poll(), (error) => error.name === "OplogError" && /is it an agent|cannot be read/.test(error.message));
    assert.equal(agent.requests.length, 1);
  });
}

test("a publish answered with a page rejects", async (t) => {
  const agent = await scripted(t, answer("200 OK", "<html>welcome</html>"));
  await assert.rejects(open(agent).publish("a"), /^OplogError: .*is it an agent/);
});

for (const [status, kind, ...headers] of [
  ["400 Bad Request", OplogError],
  ["401 Unauthorized", NotAllowedError],
  ["403 Forbidden", NotAllowedError],
  ["404 Not Found", TopicNotFoundError],
  ["413 Content Too Large", OplogError],
  ["415 Unsupported Media Type", OplogError],
]) {
  test(`${status} rejects with a ${kind.name} that has the agent's sentence, nothing secret, and is not repeated`, async (t) => {
    const agent = await scripted(t, problem(status, "the agent's\nsentence", ...headers));
    const topic = new Topic(`http://user:s3cret@${agent.host}/?token=s3cret`, "shop/orders");
    for (const call of [() => topic.publish("a"), () => topic.poll()]) {
      await assert.rejects(call(), (error) => {
        assert.deepEqual([error.constructor, error.name, error.status], [kind, kind.name, Number(status.slice(0, 3))]);
        assert.equal(error.message, `the agent's sentence (HTTP ${error.status})`);
        return error instanceof OplogError;
      });
    }
    assert.equal(agent.requests.length, 2);
  });
}

test("a redirect is not followed, and its target is named", async (t) => {
  const agent = await scripted(t, answer("308 Permanent Redirect", "", "Location: http://user:s3cret@other.example/x?s3cret"));
  await assert.rejects(open(agent).publish("a"), (error) => /redirects to http:\/\/other\.example\/x: give that address/.test(error.message) && !/s3cret/.test(error.message));
});

test("busy answers and lost connections are tried again with the same request", async (t) => {
  const busy = ["408 Request Timeout", "425 Too Early", "429 Too Many Requests", "500 Internal Server Error", "502 Bad Gateway", "503 Service Unavailable", "504 Gateway Timeout"];
  const cut = 'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[{"id"';
  const agent = await scripted(t, ...busy.map((status) => problem(status, "not now")), hangUp, cut, polled([]));
  await open(agent).poll({ limit: 7 });
  assert.equal(agent.requests.length, 10);
  assert.equal(new Set(agent.requests.map(({ body }) => body)).size, 1);
});

test("Retry-After is kept, also where the body of the answer never ends", async (t) => {
  const times = [];
  const busy = (socket) => {
    times.push(performance.now());
    socket.write("HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 1000\r\n\r\n{");
    socket.end();
  };
  const agent = await scripted(t, busy, (socket) => {
    times.push(performance.now());
    socket.end(OK);
  });
  await open(agent).publish("a");
  assert.ok(times[1] - times[0] >= 1000, times.join());
});

test("a call that is busy for all of its time rejects with the agent's sentence, at once if the agent asks for more", async (t) => {
  const agent = await scripted(t, problem("503 Service Unavailable", "the queue is full", "Retry-After: 3000"));
  await assert.rejects(open(agent).publish("a"), (error) => {
    assert.deepEqual([error.name, error.status, error.message], ["UnavailableError", 503, "the queue is full (HTTP 503)"]);
    return error instanceof UnavailableError;
  });
  assert.equal(agent.requests.length, 1);
  const again = await scripted(t, problem("503 Service Unavailable", "the queue is full"));
  await assert.rejects(open(again, { timeout: 0.2 }).publish("a"), UnavailableError);
  assert.ok(again.requests.length > 1);
});

test("an answer that does not come, or stalls, ends with the time-out", async (t) => {
  for (const stalled of [stall, (socket) => socket.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n[")]) {
    const agent = await scripted(t, stalled);
    await assert.rejects(open(agent, { timeout: 0.1 }).poll(), (error) => {
      assert.equal(error.message, "the agent did not answer in time");
      return error instanceof UnavailableError;
    });
    assert.equal(agent.requests.length, 1);
  }
});

test("a refusal whose body stalls is the refusal", async (t) => {
  const agent = await scripted(t, (socket) => socket.write("HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\n{"));
  await assert.rejects(open(agent, { timeout: 0.1 }).poll(), TopicNotFoundError);
});

test("no connection rejects when the time is over", async (t) => {
  const { url } = await scripted(t, OK);
  const closed = new Topic(url.replace(/\d+$/, "1"), "shop/orders", { backoff: FAST, timeout: 0.1 });
  await assert.rejects(closed.publish("a"), UnavailableError);
});

test("a signal ends a request and a pause with its reason", async (t) => {
  const reason = new Error("enough");
  await assert.rejects(open(await scripted(t, OK)).publish("a", { signal: AbortSignal.abort(reason) }), reason);
  for (const [first, options] of [[stall, {}], [hangUp, { backoff: [1000, 1000], timeout: 5000 }]]) {
    const aborter = new AbortController();
    const agent = await scripted(t, (socket) => {
      first(socket);
      setTimeout(() => aborter.abort(reason), 20);
    });
    await assert.rejects(open(agent, options).poll({ signal: aborter.signal }), reason);
    assert.equal(agent.requests.length, 1);
  }
});

test("bad names and options throw at once", () => {
  for (const name of ["", "a/b/c", "/b", "a/", "a/..", "./b", "a/ü", `a/${"x".repeat(250)}`, "a/b?c", undefined, 5]) {
    assert.throws(() => new Topic("http://localhost", name), TypeError);
  }
  assert.throws(() => new Topic("http://localhost", "shop/.."), /^TypeError: topic: must be/);
  assert.throws(() => new Topic("http://localhost", "a b/x"), /^TypeError: namespace: must be/);
  new Topic("http://localhost", `${"x".repeat(249)}/a.b_c-D9`);
  for (const options of [{ timeout: 0 }, { backoff: [2, 1] }]) assert.throws(() => new Topic("http://localhost", "a/b", options), TypeError);
  assert.throws(() => new Topic("http://user:s3cret@", "a/b"), (error) => error instanceof TypeError && !/s3cret/.test(error.message));
});
