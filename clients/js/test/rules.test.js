import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

import { Acks } from "../lib/acks.js";
import { BlockParser } from "../lib/sse.js";
import { backoff } from "../lib/time.js";
import * as browser from "../oplog.js";
import * as node from "../node.js";

const RAW = Buffer.from(
  ':\nid: 1\nevent: reset\ndata:\n\n:\n:\nid: 5\nevent: insert\ndata: {"id":"ä€😀"}\n\nid: 7\n\nid: 8\nevent: cut off\n',
);

test("any split of the bytes gives the same blocks", () => {
  const wanted = [
    { id: "1", event: "reset", data: "" },
    { id: "5", event: "insert", data: '{"id":"ä€😀"}' },
    { id: "7", event: "", data: null },
  ];
  for (let first = 0; first <= RAW.length; first++) {
    for (let second = first; second <= RAW.length; second++) {
      const parser = new BlockParser();
      const pieces = [RAW.subarray(0, first), RAW.subarray(first, second), RAW.subarray(second)];
      assert.deepEqual(pieces.flatMap((piece) => [...parser.feed(piece)]), wanted);
    }
  }
});

test("line ends of all three kinds, cut anywhere, end a line once and at once", () => {
  const kinds = ["\n", "\r", "\r\n"];
  for (const ends of kinds.flatMap((a) => kinds.flatMap((b) => kinds.map((c) => [a, b, c])))) {
    const raw = Buffer.from(`\ufeffid: 1${ends[0]}data: a${ends[1]}data${ends[2]}data:  b${ends[0]}${ends[0]}id: 2${ends[2]}${ends[2]}`);
    const wanted = [{ id: "1", event: "", data: "a\n\n b" }, { id: "2", event: "", data: null }];
    for (let cut = 0; cut <= raw.length; cut++) {
      const parser = new BlockParser();
      const blocks = [raw.subarray(0, cut), Buffer.alloc(0), raw.subarray(cut)].map((piece) => [...parser.feed(piece)]);
      assert.deepEqual(blocks.flat(), wanted, `${JSON.stringify(ends)} cut at ${cut}`);
    }
    // Without the \n that may follow a last \r the block is there.
    assert.deepEqual([...new BlockParser().feed(raw.subarray(0, ends[2] === "\r\n" ? raw.length - 1 : raw.length))], wanted);
  }
});

test("a byte order mark counts at the beginning only, and comments of any number are no block", () => {
  assert.deepEqual([...new BlockParser().feed(Buffer.from("\ufeff\ufeffid: 1\n\nid: 2\n\n\ufeffid: 3\n\n"))], [{ id: "2", event: "", data: null }]);
  const parser = new BlockParser();
  for (let number = 0; number < 3000; number++) assert.deepEqual([...parser.feed(Buffer.from(`:${"x".repeat(1000)}\n`))], []);
});

test("a block has 1 MiB at most, in pieces of any size", () => {
  for (const size of [1, 1000, 1 << 20]) {
    const parser = new BlockParser();
    const piece = Buffer.alloc(size, "x");
    for (let sent = size; sent <= 1 << 20; sent += size) assert.deepEqual([...parser.feed(piece)].length, 0);
    assert.throws(() => [...parser.feed(piece)], browser.OplogError);
  }
});

test("the position is the last id before the oldest event that is not acknowledged", () => {
  const acks = new Acks("0");
  const events = ["1", "5", "5", "6"].map((id) => ({ id }));
  events.forEach((event) => acks.handedOut(event, event.id));
  acks.passed("7");
  acks.passed("8");
  const positions = [1, 3, 3, 0, 2].map((index) => (acks.ack(events[index]), acks.position));
  assert.deepEqual(positions, ["0", "0", "0", "5", "8"]);
  assert.equal(acks.unacked, 0);
});

test("acknowledged events behind one that is not are let go", async () => {
  const acks = new Acks("0");
  acks.handedOut("first", "1");
  const hold = () => {
    const event = { id: "2" };
    acks.handedOut(event, event.id);
    acks.ack(event);
    return new WeakRef(event);
  };
  const held = hold();
  await new Promise((resolve) => setTimeout(resolve, 0)); // a WeakRef holds its object until the turn ends
  setFlagsFromString("--expose-gc");
  runInNewContext("gc")();
  assert.equal(held.deref(), undefined);
  assert.deepEqual([acks.position, acks.unacked, acks.ack("first"), acks.position], ["0", 1, true, "2"]);
});

test("positions are saved one after another, however slow the state is", async () => {
  const frames = Array.from({ length: 50 }, (_, n) => `id: ${n + 1}\nevent: live\ndata:\n\n`);
  const body = new ReadableStream({
    async pull(controller) {
      if (frames.length === 0) return new Promise(() => {});
      controller.enqueue(new TextEncoder().encode(frames.shift()));
    },
  });
  const response = new Response(body, { headers: { "Content-Type": "text/event-stream" } });
  const saved = [];
  let underWay = 0;
  const state = {
    load: () => "",
    async save(position) {
      assert.equal(++underWay, 1);
      await new Promise((resolve) => setTimeout(resolve, 3));
      underWay -= 1;
      saved.push(Number(position));
    },
  };
  const consumer = new browser.Consumer("http://agent", { state, saveInterval: 0.001, fetch: async () => response });
  for await (const event of consumer) {
    consumer.ack(event);
    await new Promise((resolve) => setTimeout(resolve, 1));
    if (event.eventId === "50") break;
  }
  await consumer.close();
  assert.equal(saved.at(-1), 50);
  assert.ok(saved.length > 2);
  assert.deepEqual(saved, [...saved].sort((a, b) => a - b));
});

test("a backoff doubles within its bounds and gives what is asked for", () => {
  const delays = backoff(1, 30);
  const got = Array.from({ length: 10 }, () => delays.next());
  assert.ok(got.every((delay) => delay >= 1 && delay <= 30));
  assert.ok(got[9] >= 15);
  assert.ok(delays.next(60) >= 60);
});

test("the types declare what the modules export", async () => {
  for (const [name, module] of [["oplog", browser], ["node", node]]) {
    const text = await readFile(new URL(`../${name}.d.ts`, import.meta.url), "utf8");
    const declared = [...text.matchAll(/^export (?:class|function) (\w+)/gm)].map((match) => match[1]);
    const inherited = name === "node" ? Object.keys(browser) : [];
    assert.deepEqual([...declared, ...inherited].sort(), Object.keys(module).sort());
  }
});
