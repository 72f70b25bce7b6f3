// The consumer against a server that answers as an agent never should.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Consumer, OplogError } from "../node.js";
import { collector, follow, untilError } from "./following.js";
import { LIVE, STREAM, answer, operation, scripted, stream, take } from "./scripted.js";

const PROBLEM = "Content-Type: application/problem+json";

test("the line ends, the byte order mark and the fields of the standard are understood", async (t) => {
  const text = `\ufeff${operation(1)}${operation(2).replaceAll("\n", "\r\n")}${operation(3).replaceAll("\n", "\r")}`
    + `:comment\nretry: 5\nunknown\nid: 4\nevent:insert\ndata:{"type":"a",\ndata:"id":"ä€😀",\ndata: "timestamp":"2014-11-06T11:04:39Z"}\n\n`;
  const bytes = Buffer.from(text);
  for (const size of [1, 2, 3, 7, bytes.length]) {
    const agent = await scripted(t, async (socket) => {
      socket.setNoDelay(true);
      socket.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
      for (let at = 0; at < bytes.length; at += size) {
        const piece = bytes.subarray(at, at + size);
        socket.write(Buffer.concat([Buffer.from(`${piece.length.toString(16)};x=y\r\n`), piece, Buffer.from("\r\n")]));
      }
    });
    const events = await take(follow(agent.url), 4);
    assert.deepEqual(events.map((event) => [event.eventId, event.id]), [["1", "v1"], ["2", "v2"], ["3", "v3"], ["4", "ä€😀"]]);
  }
});

test("a block that ends in a bare \\r at the end of a piece is handed out at once", async (t) => {
  const agent = await scripted(t, stream(operation(1).replaceAll("\n", "\r")));
  assert.equal((await take(follow(agent.url), 1))[0].id, "v1");
});

test("unknown events and blocks without an event move the position, and are told once", async (t) => {
  const blocks = ["id: 2\nevent: news\ndata: 1\n\n", "event: more\n\n", "data: x\n\n", "id: 3\nretry: 1\n\n", "retry: 1\n\n"];
  const agent = await scripted(t, (socket) => socket.end(STREAM + blocks.join("")), stream(LIVE));
  const { lines, log } = collector();
  const consumer = follow(agent.url, { log });
  assert.deepEqual((await take(consumer, 1)).map((event) => event.event), ["live"]);
  assert.equal(agent.requests[1].headers["last-event-id"], "3");
  assert.equal(lines.filter((line) => line.includes("news") || line.includes("more")).length, 1);
});

test("an event without an id has the last one, and one cut off by the end of the connection is none", async (t) => {
  const noId = operation(0).split("\n").slice(1).join("\n");
  const agent = await scripted(t, (socket) => socket.end(STREAM + operation(7) + noId + "event: live\ndata:\n\n" + operation(8).slice(0, -1)), stream(LIVE));
  const events = await take(follow(agent.url), 4);
  assert.deepEqual(events.map((event) => [event.eventId, event.event]), [["7", "insert"], ["7", "insert"], ["7", "live"], ["5", "live"]]);
  assert.equal(agent.requests[1].headers["last-event-id"], "7");
});

test("operations whose type is live or reset are operations", async (t) => {
  const agent = await scripted(t, stream(operation(1, { type: "live" }), operation(2, { type: "reset" })));
  const events = await take(follow(agent.url), 2);
  assert.deepEqual(events.map(({ event, type }) => [event, type]), [["insert", "live"], ["insert", "reset"]]);
});

const BAD_BLOCKS = {
  "an id that is none": "id: x\nevent: live\ndata:\n\n",
  "an unknown event with such an id": "id: 12345678901234\nevent: news\n\n",
  "no JSON": "id: 3\nevent: insert\ndata: {\n\n",
  "no data": "id: 3\nevent: insert\n\n",
  "JSON of another kind": "id: 3\nevent: insert\ndata: null\n\n",
  "no type": operation(3, { type: undefined }),
  "an id that is a number": operation(3, { id: 5 }),
  "parents that are no list": operation(3, { parents: "x" }),
  "a parent that is no string": operation(3, { parents: [1] }),
  "no timestamp": operation(3, { timestamp: undefined }),
  "a timestamp without a zone": operation(3, { timestamp: "2014-11-06T11:04:39" }),
  "invalid UTF-8": Buffer.from(operation(3).replace("v3", "\xff"), "latin1"),
  "more than 1 MiB": `id: 3\nevent: insert\ndata: ${"x".repeat(1 << 20)}\n\n`,
  "more than 1 MiB in many lines": `id: 3\n${"data: xxxxxxxxx\n".repeat(70_000)}\n`,
};

for (const [name, block] of Object.entries(BAD_BLOCKS)) {
  test(`a block with ${name} ends the iteration behind the events before it`, async (t) => {
    const agent = await scripted(t, (socket) => socket.end(Buffer.concat([STREAM + operation(1) + operation(2), block].map((each) => Buffer.from(each)))));
    const consumer = follow(agent.url);
    const { events, error } = await untilError(consumer);
    assert.deepEqual(events.map((event) => event.id), ["v1", "v2"]);
    assert.ok(error instanceof OplogError, error.stack);
    assert.equal(consumer.position, "2");
    assert.equal(agent.requests.length, 1);
  });
}

for (const [name, text, pattern] of [
  ["HTML", answer("200 OK", "<html>", "Content-Type: text/html"), /sends text\/html: is it an agent\?/],
  ["no content type", answer("200 OK", LIVE), /no content type/],
  ["204", "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", /HTTP 204/],
  ["a refusal", answer("403 Forbidden", '{"detail":"not you"}', PROBLEM), /not you \(HTTP 403\)/],
  ["a refusal without words", answer("410 Gone", "<html>"), /Gone \(HTTP 410\)/],
  ["a redirect without a target", answer("302 Found"), /redirects/],
  ["a redirect out of the web", answer("302 Found", "", "Location: ftp://host/"), /redirects/],
]) {
  test(`${name} ends the iteration, with nothing secret`, async (t) => {
    const agent = await scripted(t, text);
    const { error } = await untilError(follow(`http://user:s3cret@${agent.host}/?token=s3cret`));
    assert.ok(error instanceof OplogError, error.stack);
    assert.match(error.message, pattern);
    assert.doesNotMatch(error.stack, /s3cret/);
    assert.equal(agent.requests.length, 1);
  });
}

for (const status of [301, 302, 303, 307, 308]) {
  test(`${status} is followed, with the password only on the same origin`, async (t) => {
    const other = await scripted(t, stream(LIVE));
    const agent = await scripted(t, answer(`${status} Moved`, "", "Location: /there/ops"), answer(`${status} Moved`, "", `Location: http://a:b@${other.host}/ops`));
    await take(follow(agent.url, { password: "gehéim", start: "3" }), 1);
    const authorization = `Basic ${Buffer.from(":gehéim").toString("base64")}`;
    assert.deepEqual(agent.requests.map(({ headers }) => headers.authorization), [authorization, authorization]);
    assert.deepEqual(other.requests.map(({ line, headers }) => [line, headers.authorization, headers["last-event-id"]]), [["GET /ops HTTP/1.1", undefined, "3"]]);
  });
}

test("20 redirects are followed and no more", async (t) => {
  const agent = await scripted(t, answer("302 Found", "", "Location: /ops"));
  const { error } = await untilError(follow(agent.url));
  assert.ok(error instanceof OplogError);
  assert.match(error.message, /20/);
  assert.equal(agent.requests.length, 21);
});

test("where redirects are hidden, as in a browser, the browser follows them", async () => {
  const asked = [];
  const fetch = async (url, { redirect }) => {
    asked.push(redirect);
    if (redirect === "manual") return { type: "opaqueredirect", status: 0 };
    return new Response(LIVE, { headers: { "Content-Type": "text/event-stream" } });
  };
  await take(new Consumer("http://agent", { fetch }), 1);
  assert.deepEqual(asked, ["manual", "follow"]);
});

test("user and password in the address become a header and are shown nowhere", async (t) => {
  const agent = await scripted(t, answer("503 Away"), stream(LIVE));
  const { lines, log } = collector();
  const consumer = follow(`http://us%65r:s3cr%C3%A9t@${agent.host}`, { log });
  await take(consumer, 1);
  assert.equal(agent.requests[1].headers.authorization, `Basic ${Buffer.from("user:s3crét").toString("base64")}`);
  assert.equal(lines.length, 2);
  assert.doesNotMatch(lines.join(), /s3cr/);
});

for (const url of ["http://user:s3cret@", "ftp://user:s3cret@host", "user:s3cret@host", "http://user:s3cret@ho st", "http://user:s3cret@host:99999", ""]) {
  test(`an address such as ${url.replace("s3cret", "…")} is refused without being shown`, () => {
    assert.throws(() => new Consumer(url), (error) => {
      assert.doesNotMatch(`${error.stack} ${JSON.stringify(error)} ${error.input} ${error.cause}`, /s3cret/);
      return error instanceof TypeError && /http:\/\/localhost:8042/.test(error.message);
    });
  });
}

for (const status of [408, 425, 429, 500, 502, 503, 504]) {
  test(`${status} is tried again from the same position`, async (t) => {
    const agent = await scripted(t, answer(`${status} Later`), stream(LIVE));
    await take(follow(agent.url, { start: "3" }), 1);
    assert.deepEqual(agent.requests.map(({ headers }) => headers["last-event-id"]), ["3", "3"]);
  });
}

/** Retry-After as a date at least `seconds` from now. */
const dateIn = (seconds) => new Date(Math.ceil(Date.now() / 1000 + seconds) * 1000).toUTCString();
const asctime = (date) => date.replace(/^(\w+), (\d\d) (\w+) (\d+) (\S+) GMT$/, "$1 $3 $2 $5 $4");
const rfc850 = (date) => date.replace(/^\w+, (\d\d) (\w+) \d\d(\d\d)/, "Sunday, $1-$2-$3");

test("Retry-After is waited for in all its forms, also when the body of the refusal never ends", async (t) => {
  const forms = [() => "1", () => dateIn(1), () => asctime(dateIn(1)), () => rfc850(dateIn(1))];
  const waits = forms.map(async (header) => {
    const came = [];
    const stalled = (socket) => {
      came.push(Date.now());
      socket.write(`HTTP/1.1 503 Away\r\nRetry-After: ${header()}\r\nContent-Length: 10\r\n\r\n{`);
    };
    const agent = await scripted(t, stalled, (socket) => {
      came.push(Date.now());
      stream(LIVE)(socket);
    });
    await take(follow(agent.url, { timeout: 0.2 }), 1);
    return came[1] - came[0];
  });
  const waited = await Promise.all(waits);
  assert.ok(waited.every((milliseconds) => milliseconds >= 1000), waited.join());
});

for (const header of ["-5", "soon", "1.5", "garbage 2099", "Thu, 06 Nov 2014 11:04:39 GMT", "2099-01-01", "Thu, 99 Nov 2099 11:04:39 GMT"]) {
  test(`Retry-After: ${header} leaves the client to its own back-off`, async (t) => {
    const agent = await scripted(t, answer("503 Away", "", `Retry-After: ${header}`), stream(LIVE));
    await take(follow(agent.url), 1);
    assert.equal(agent.requests.length, 2);
  });
}

for (const header of ["86400", "9".repeat(400), "Sun, 06 Nov 2095 11:04:39 GMT"]) {
  test(`Retry-After: ${header.slice(0, 30)} means an hour`, async (t) => {
    const agent = await scripted(t, answer("503 Away", "", `Retry-After: ${header}`));
    const consumer = follow(agent.url, {
      log(line) {
        const seconds = Number(/again in ([\d.]+) s/.exec(line)[1]);
        assert.ok(seconds >= 3600 && seconds <= 1.3 * 3600, line);
        consumer.stop();
      },
    });
    assert.deepEqual(await take(consumer, 1), []);
    assert.equal(agent.requests.length, 1);
  });
}

for (const [name, bytes] of Object.entries({
  "no answer": "",
  "half a head": "HTTP/1.1 200 OK\r\nContent-",
  "a refusal without its body": "HTTP/1.1 503 Away\r\nContent-Length: 10\r\n\r\n{",
})) {
  test(`${name} is given up after the timeout, stalled or dripping`, async (t) => {
    const dripping = (socket) => {
      socket.write(bytes);
      const timer = setInterval(() => socket.write("x"), 10);
      socket.on("close", () => clearInterval(timer));
    };
    const agent = await scripted(t, (socket) => socket.write(bytes), dripping, stream(LIVE));
    await take(follow(agent.url, { timeout: 0.1 }), 1);
    assert.ok(agent.requests.length >= 3); // more where this machine was too slow for the good answer
  });
}

test("options that are undefined count as not given, and bad ones are named", async (t) => {
  const agent = await scripted(t, stream(LIVE));
  const nothing = { timeout: undefined, heartbeatTimeout: undefined, backoff: undefined, log: undefined, types: undefined, fetch: undefined, state: null };
  assert.equal((await take(new Consumer(agent.url, nothing), 1)).length, 1);
  const bad = { timeout: 0, heartbeatTimeout: "5", saveInterval: NaN, backoff: [2, 1], maxUnacked: 1.5, log: 1, types: "a", parents: [""], start: 0, state: {} };
  for (const [name, value] of Object.entries(bad)) {
    assert.throws(() => new Consumer(agent.url, { [name]: value }), (error) => error instanceof TypeError && error.message.includes(name));
  }
  assert.throws(() => new Consumer(agent.url, { start: new Date("x") }), TypeError);
});

test("times without end are possible", async (t) => {
  const agent = await scripted(t, stream(LIVE));
  assert.equal((await take(new Consumer(agent.url, { timeout: Infinity, heartbeatTimeout: Infinity }), 1)).length, 1);
});

test("types are asked for in lower case, parents as they are", async (t) => {
  const agent = await scripted(t, stream(LIVE));
  await take(follow(agent.url, { types: ["Video", "ÄRGER"], parents: ["User/A"] }), 1);
  const query = new URL(agent.requests[0].line.split(" ")[1], agent.url).searchParams;
  assert.deepEqual([query.get("types"), query.get("parents")], ["video,ärger", "User/A"]);
});

test("a port that fetch refuses is told at once", async () => {
  const { error } = await untilError(follow("http://127.0.0.1:6667"));
  assert.match(error.message, /port/);
});

test("stop ends an attempt that gets no answer", async (t) => {
  const agent = await scripted(t, () => consumer.stop());
  const consumer = follow(agent.url, { timeout: 60 });
  assert.deepEqual(await take(consumer, 1), []);
});
