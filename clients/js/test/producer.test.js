// The HTTP producer against a server that answers as an agent never should.
import assert from "node:assert/strict";
import { test } from "node:test";

import { HttpProducer, OplogError, encode } from "../node.js";
import { hangUp, ids, insert, numbers, produce, sendAll, storing } from "./producing.js";
import { FAST, answer, scripted, stored } from "./scripted.js";

const NO_AGENT = {
  HTML: answer("200 OK", "<html>", "Content-Type: text/html"),
  "an empty body": answer("200 OK"),
  "another count": answer("200 OK", '{"ingested":2}'),
  "a count as text": answer("200 OK", '{"ingested":"1"}'),
  NaN: answer("200 OK", '{"ingested":NaN}'),
  Infinity: answer("200 OK", '{"ingested":1e999}'),
  "deep JSON": answer("200 OK", "[".repeat(100_000) + "]".repeat(100_000)),
  null: answer("200 OK", "null"),
  204: "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
  202: answer("202 Accepted", '{"ingested":1}'),
};

for (const [name, text] of Object.entries(NO_AGENT)) {
  test(`an answer with ${name} is no delivery, and close says so at once`, async (t) => {
    const agent = await scripted(t, text);
    const producer = produce(`http://user:s3cret@${agent.host}/?token=s3cret`);
    await producer.send(insert(1));
    await assert.rejects(producer.close(60), (error) => {
      assert.doesNotMatch(error.stack, /s3cret/);
      return error instanceof OplogError && /^1 operations are not delivered: .*is no agent/.test(error.message);
    });
    assert.equal(producer.counters.delivered, 0);
    assert.equal(agent.requests[0].headers.authorization, `Basic ${Buffer.from("user:s3cret").toString("base64")}`);
  });
}

for (const status of [301, 302, 303, 307, 308]) {
  test(`${status} is told and not followed`, async (t) => {
    const other = await scripted(t, stored);
    const agent = await scripted(t, answer(`${status} Moved`, "", `Location: http://a:s3cret@${other.host}/there?x=s3cret`));
    const producer = produce(agent.url);
    await producer.send(insert(1));
    await assert.rejects(producer.close(60), (error) => error.message.includes(`${other.url}/there:`) && !error.message.includes("s3cret"));
    assert.ok(agent.requests.every(({ line, body }) => line.startsWith("POST") && body === encode(insert(1)).toString()));
    assert.equal(other.requests.length, 0);
  });
}

for (const status of [401, 403, 404, 415]) {
  test(`${status} keeps the operations, warns once, and is tried again`, async (t) => {
    const refusal = answer(`${status} No`, '{"detail":"not so"}');
    const agent = await scripted(t, refusal, refusal, refusal, stored);
    const lines = [];
    const producer = produce(agent.url, { log: (line) => lines.push(line) });
    await producer.send(insert(1));
    await assert.rejects(producer.flush(60), new RegExp(`not so \\(HTTP ${status}\\)`));
    for (;;) {
      try {
        await producer.flush(60);
        break;
      } catch {
        await new Promise((resolve) => setImmediate(resolve));
      }
    }
    await producer.close();
    assert.equal(lines.length, 1);
    assert.deepEqual(producer.counters, { sent: 1, delivered: 1, rejected: 0, dropped: 0, retried: 3, buffered: 0 });
  });
}

const drip = (head) => (socket) => {
  socket.write(head);
  const timer = setInterval(() => socket.write("x"), 10);
  socket.on("close", () => clearInterval(timer));
};

for (const [name, first] of Object.entries({
  ...Object.fromEntries([408, 425, 429, 500, 502, 503, 504].map((status) => [status, answer(`${status} Later`)])),
  "a lost answer": hangUp,
  "half an answer": (socket) => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"inges'),
  "no answer": () => {},
  "a dripping head": drip("HTTP/1.1 200 OK\r\nX-"),
  "a dripping 200": drip("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"),
  "a dripping refusal": drip("HTTP/1.1 401 No\r\nContent-Length: 100000\r\n\r\n"),
})) {
  test(`after ${name} the same batch is sent again, in order`, async (t) => {
    const accepted = [];
    const agent = await scripted(t, first, storing(accepted));
    const producer = produce(agent.url, { timeout: 0.2 });
    await sendAll(producer, numbers(20));
    await producer.close();
    assert.deepEqual([...new Set(accepted)], numbers(20)); // twice where this machine was too slow for the good answer
    assert.equal(agent.requests[0].body, agent.requests[1].body);
  });
}

test("Retry-After is waited for, as seconds and as a date, also when the body of the refusal never ends", async (t) => {
  const forms = [() => "1", () => new Date(Math.ceil(Date.now() / 1000 + 1) * 1000).toUTCString()];
  const waits = forms.map(async (header) => {
    const came = [];
    const stalled = (socket) => {
      came.push(Date.now());
      socket.write(`HTTP/1.1 503 Away\r\nRetry-After: ${header()}\r\nContent-Length: 10\r\n\r\n{`);
    };
    const agent = await scripted(t, stalled, (socket, request) => {
      came.push(Date.now());
      stored(socket, request);
    });
    const producer = produce(agent.url, { timeout: 0.2 });
    await producer.send(insert(1));
    await producer.close();
    return came[1] - came[0];
  });
  const waited = await Promise.all(waits);
  assert.ok(waited.every((milliseconds) => milliseconds >= 1000), waited.join());
});

test("a 400 rejects the lines that it names, with one warning, and the others are delivered", async (t) => {
  const accepted = [];
  const agent = await scripted(
    t,
    storing(accepted),
    answer("400 Bad", '{"detail":"2 are bad","errors":[{"line":2,"field":"id","reason":"is odd"},{"line":4,"field":"id","reason":"too"}]}'),
    storing(accepted),
  );
  const lines = [];
  const producer = produce(agent.url, { log: (line) => lines.push(line) });
  await sendAll(producer, numbers(6));
  await producer.close();
  assert.deepEqual(accepted, ["0", "1", "3", "5"]);
  assert.equal(lines.length, 1);
  assert.match(lines[0], /2 of this batch.*"id":"2".*id: is odd/);
  assert.deepEqual(producer.counters, { sent: 6, delivered: 4, rejected: 2, dropped: 0, retried: 0, buffered: 0 });
});

const bad = (line) => `{"detail":"so","errors":[{"line":${line}}]}`;
for (const body of [bad("0"), bad("2"), bad('"1"'), bad("true"), bad("1e400"), bad("1.5"), bad("-1"), bad("9".repeat(400)), bad("null"), bad("Infinity"), '{"detail":"so","errors":[]}', '{"detail":"so","errors":{}}', '{"detail":"so","errors":[5]}', '{"detail":"so"}', "["]) {
  test(`a 400 that names no line of the batch rejects nothing: ${body.slice(0, 60)}`, async (t) => {
    const agent = await scripted(t, answer("400 Bad", body));
    const producer = produce(agent.url);
    await producer.send(insert(1));
    await assert.rejects(producer.close(60), /^OplogError: 1 operations are not delivered: .*HTTP 400/);
    assert.equal(producer.counters.rejected, 0);
  });
}

test("a batch that is too large is halved, and later batches grow back", async (t) => {
  const accepted = [];
  let limit = 3;
  const agent = await scripted(t, (socket, request) => storing(accepted, limit)(socket, request));
  const producer = produce(agent.url, { batchSize: 64 });
  await sendAll(producer, numbers(100));
  await producer.flush();
  const refused = agent.requests.filter(({ body }) => ids(body).length > 3).length;
  assert.ok(refused < agent.requests.length / 2, `${refused} of ${agent.requests.length} requests were refused`);
  limit = Infinity;
  const before = agent.requests.length;
  await sendAll(producer, numbers(1000, 100));
  await producer.close();
  assert.deepEqual(accepted, numbers(1100));
  assert.equal(Math.max(...agent.requests.slice(before).map(({ body }) => ids(body).length)), 64);
});

test("a single operation that is too large is rejected and told", async (t) => {
  const accepted = [];
  const agent = await scripted(t, (socket, request) => (request.body.includes('"id":"3"') ? socket.end(answer("413 Too Large")) : storing(accepted)(socket, request)));
  const lines = [];
  const producer = produce(agent.url, { log: (line) => lines.push(line) });
  await sendAll(producer, numbers(6));
  await producer.close();
  assert.deepEqual(accepted, ["0", "1", "2", "4", "5"]);
  assert.match(lines.join("\n"), /"id":"3"/);
  assert.equal(producer.counters.rejected, 1);
});

test("options that are undefined count as not given, and bad ones are named", async (t) => {
  const agent = await scripted(t, stored);
  const options = { timeout: undefined, batchSize: undefined, overflow: undefined, log: null, backoff: undefined, maxBuffered: undefined };
  const producer = new HttpProducer(agent.url, options);
  await producer.send(insert(1));
  await producer.close();
  const wrong = { timeout: 0, batchSize: 0, maxBuffered: NaN, maxBufferedBytes: "1", overflow: "wait", backoff: [0, 1], log: 5 };
  for (const [name, value] of Object.entries(wrong)) {
    assert.throws(() => new HttpProducer(agent.url, { [name]: value }), (error) => error instanceof TypeError && error.message.includes(name));
  }
  assert.throws(() => new HttpProducer("http://user:s3cret@ho st"), (error) => !`${error.stack}${error.input}`.includes("s3cret"));
});

test("the bytes of strings arrive as they are given", async (t) => {
  const agent = await scripted(t, stored);
  const producer = produce(agent.url);
  const id = 'ä€😀\u2028\u0085\\"\t\ufeff\uffff';
  await producer.send({ ...insert(id), timestamp: "2014-11-06t11:04:39.1234567+01:00", parents: null });
  await producer.close();
  assert.deepEqual(JSON.parse(agent.requests[0].body), { ...insert(id), timestamp: "2014-11-06t11:04:39.1234567+01:00" });
});

test("what an agent would refuse is refused here", async () => {
  const good = { event: "insert", type: "video", id: "a" };
  const wrong = [
    { event: "upsert" }, { event: ["insert"] }, { type: "a/b" }, { type: "" }, { id: "" }, { id: "\ud800" }, { id: "\0" }, { id: 5 },
    { id: undefined }, { id: "x".repeat(1025) }, { parents: "x" }, { parents: [""] }, { parents: ["x".repeat(65_000), "x".repeat(600)] },
    { timestamp: new Date("x") }, { timestamp: new Date(8.64e15) }, { timestamp: "2014-11-06T11:04:39" }, { timestamp: "2014-11-06" },
    { timestamp: 1415271879041 }, { timestamp: "" }, { timestamp: "yesterday" },
  ];
  for (const change of wrong) assert.throws(() => encode({ ...good, ...change }), (error) => error instanceof TypeError && /^[a-z]+: /.test(error.message));
  for (const nothing of [null, undefined, 5, "insert"]) assert.throws(() => encode(nothing), /^TypeError: event: /);
  assert.equal(encode({ ...good, timestamp: new Date(0), parents: null }).toString(), '{"event":"insert","type":"video","id":"a","timestamp":"1970-01-01T00:00:00.000Z"}');
});

test("operations that wait or are rejected are told on stderr by default, on one line", async (t) => {
  const warn = t.mock.method(console, "warn", () => {});
  const agent = await scripted(
    t,
    answer("503 Away", '{"detail":"not\\nnow"}'),
    answer("400 Bad", '{"detail":"bad","errors":[{"line":1,"field":"id","reason":"is\\u001bodd"}]}'),
  );
  const producer = new HttpProducer(agent.url, { backoff: FAST });
  await producer.send(insert(1));
  await producer.close();
  assert.deepEqual(warn.mock.calls.map((call) => call.arguments[0]), [
    "oplog: 1 operations wait: not now (HTTP 503)",
    `oplog: the agent rejects operations, 1 of this batch; the first is ${encode(insert(1))}: id: is odd`,
  ]);
});
