// Positions in files, in browsers and in states of one's own.
import assert from "node:assert/strict";
import { mkdir, mkdtemp, readFile, readdir, rename, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { Consumer, OplogError, fileState, localStorageState } from "../node.js";
import { FAST, operation, scripted, stream, take } from "./scripted.js";

const newFolder = () => mkdtemp(join(tmpdir(), "oplog-js-"));
const OPTIONS = { backoff: FAST, saveInterval: 0.001, start: "1" };

/** Makes a state file that cannot be used. */
const UNUSABLE = {
  "is empty": (path) => writeFile(path, ""),
  "holds a line end only": (path) => writeFile(path, "\n"),
  "holds no position": (path) => writeFile(path, "what?"),
  "holds bytes that are digits but for a bit": (path) => writeFile(path, Buffer.from([0xb1, 0xb2])),
  "holds two lines": (path) => writeFile(path, "1\n\n"),
  "is large": (path) => writeFile(path, "1".repeat(1 << 20)),
  "is a folder": (path) => mkdir(path),
  "is a loop of links": (path) => symlink(path, path),
};

for (const [name, make] of Object.entries(UNUSABLE)) {
  test(`a state file that ${name} ends the iteration before the agent is asked, and stays as it is`, async (t) => {
    const agent = await scripted(t, stream(operation(2)));
    const folder = await newFolder();
    const path = join(folder, "state");
    await make(path);
    const before = await readFile(path).catch((error) => error.code);
    const consumer = new Consumer(agent.url, { ...OPTIONS, state: fileState(path) });
    await assert.rejects(take(consumer, 1), (error) => error instanceof OplogError && error.message.includes(path));
    await consumer.close();
    assert.deepEqual(await readFile(path).catch((error) => error.code), before);
    assert.deepEqual(await readdir(folder), ["state"]);
    assert.equal(agent.requests.length, 0);
  });
}

test("a state file that cannot be written ends the iteration before the agent is asked", async (t) => {
  const agent = await scripted(t, stream(operation(2)));
  const folder = await newFolder();
  await writeFile(join(folder, "file"), "");
  for (const path of [join(folder, "missing", "state"), join(folder, "file", "state")]) {
    const consumer = new Consumer(agent.url, { ...OPTIONS, state: fileState(path) });
    await assert.rejects(take(consumer, 1), (error) => error instanceof OplogError && error.message.includes(path));
  }
  assert.equal(agent.requests.length, 0);
});

test("a missing state file means start, and the file holds the id alone", async (t) => {
  const agent = await scripted(t, stream(operation(2)));
  const folder = await newFolder();
  const path = join(folder, "state");
  const consumer = new Consumer(agent.url, { ...OPTIONS, state: fileState(path) });
  await take(consumer, 1);
  await consumer.close();
  assert.equal(agent.requests[0].headers["last-event-id"], "1");
  assert.equal(await readFile(path, "latin1"), "2");
  assert.deepEqual(await readdir(folder), ["state"]);
});

test("a position with a line end is read, and one behind a link is written there", async (t) => {
  const agent = await scripted(t, stream(operation(3)));
  const folder = await newFolder();
  await writeFile(join(folder, "kept"), "2\n");
  await symlink(join(folder, "kept"), join(folder, "state"));
  const consumer = new Consumer(agent.url, { ...OPTIONS, state: fileState(join(folder, "state")) });
  await take(consumer, 1);
  await consumer.close();
  assert.equal(agent.requests[0].headers["last-event-id"], "2");
  assert.equal(await readFile(join(folder, "kept"), "latin1"), "3");
});

test("a relative path is resolved at once", async (t) => {
  const before = process.cwd();
  t.after(() => process.chdir(before));
  const agent = await scripted(t, stream(operation(2)));
  const folder = await newFolder();
  process.chdir(folder);
  const state = fileState("state");
  process.chdir(before);
  const consumer = new Consumer(agent.url, { ...OPTIONS, state });
  await take(consumer, 1);
  await consumer.close();
  assert.equal(await readFile(join(folder, "state"), "latin1"), "2");
});

test("of two consumers on one state file the second to save ends with an error", async (t) => {
  const agent = await scripted(t, stream(operation(2)), stream(operation(3), operation(4)));
  const path = join(await newFolder(), "state");
  await writeFile(path, "1");
  const first = new Consumer(agent.url, { ...OPTIONS, saveInterval: 60, state: fileState(path) });
  await take(first, 1); // not saved yet
  const second = new Consumer(agent.url, { ...OPTIONS, state: fileState(path) });
  await take(second, 2);
  await second.close();
  await assert.rejects(first.close(), /another process has written the state file/);
  assert.equal(await readFile(path, "latin1"), "4");
});

test("another writer is noticed while following, and ends the iteration", async (t) => {
  let send;
  const agent = await scripted(t, (socket) => {
    stream(operation(2))(socket);
    send = (block) => socket.write(block);
  });
  const path = join(await newFolder(), "state");
  const consumer = new Consumer(agent.url, { ...OPTIONS, state: fileState(path) });
  let count = 0;
  const following = async () => {
    for await (const event of consumer) {
      consumer.ack(event);
      count += 1;
      if (count > 1) continue;
      while ((await readFile(path, "latin1").catch(() => "")) !== "2") await new Promise((resolve) => setImmediate(resolve));
      await writeFile(path, "7");
      send(operation(3));
    }
  };
  await assert.rejects(following(), (error) => error instanceof OplogError && /another process/.test(error.message));
  await assert.rejects(consumer.close(), /another process/);
  assert.equal(await readFile(path, "latin1"), "7");
});

test("a save that fails leaves the old position, is told once, and rejects at the end", async (t) => {
  const agent = await scripted(t, stream(...[2, 3, 4, 5].map((number) => operation(number))));
  const folder = join(await newFolder(), "folder");
  await mkdir(folder);
  const inner = fileState(join(folder, "state"));
  let attempts = 0;
  const state = { load: inner.load, save: (position) => ((attempts += 1), inner.save(position)) };
  const lines = [];
  const consumer = new Consumer(agent.url, { ...OPTIONS, state, log: (line) => lines.push(line) });
  for await (const event of consumer) {
    if (event.id === "v2") await rename(folder, `${folder}.away`);
    consumer.ack(event);
    const wanted = attempts + 3;
    while (event.id !== "v5" && attempts < wanted) await new Promise((resolve) => setTimeout(resolve, 1));
    if (event.id === "v5") break;
  }
  await assert.rejects(consumer.close(), /ENOENT/);
  assert.equal(lines.filter((line) => line.includes("cannot save")).length, 1);
  await mkdir(folder);
  await consumer.close();
  assert.equal(await readFile(join(folder, "state"), "latin1"), "5");
});

test("a state of one's own may have no position, and what it throws ends the iteration", async (t) => {
  const agent = await scripted(t, stream(operation(2)));
  for (const nothing of [null, undefined, ""]) {
    const consumer = new Consumer(agent.url, { ...OPTIONS, state: { load: () => nothing, save: () => {} } });
    await take(consumer, 1);
    await consumer.close();
  }
  assert.deepEqual(agent.requests.map(({ headers }) => headers["last-event-id"]), ["1", "1", "1"]);
  for (const load of [() => 5, () => "x", () => Promise.reject(new OplogError("away"))]) {
    await assert.rejects(take(new Consumer(agent.url, { ...OPTIONS, state: { load, save: () => {} } }), 1), OplogError);
  }
  assert.equal(agent.requests.length, 3);
});

test("iteration that waits for acknowledgements says so once an episode", async (t) => {
  const agent = await scripted(t, stream(...Array.from({ length: 30 }, (_, number) => operation(number + 1))));
  const lines = [];
  const state = { load: () => null, save: () => {} };
  const consumer = new Consumer(agent.url, { ...OPTIONS, state, maxUnacked: 4, log: (line) => lines.push(line) });
  const held = [];
  for await (const event of consumer) {
    held.push(event);
    if (held.length === 4) setImmediate(() => consumer.ack(held.shift()));
    if (event.id === "v30") break;
  }
  assert.equal(lines.filter((line) => line.includes("not acknowledged")).length, 1);
  await consumer.close();
});

test("localStorage: nothing means start, an empty position and a storage that is denied are refused", (t) => {
  t.after(() => delete globalThis.localStorage);
  const kept = new Map();
  globalThis.localStorage = { getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => kept.set(key, value) };
  const state = localStorageState("place");
  assert.equal(state.load(), null);
  state.save("5");
  assert.equal(state.load(), "5");
  kept.set("place", "");
  assert.throws(() => state.load(), (error) => error instanceof OplogError && /place.*empty/.test(error.message));
  globalThis.localStorage.getItem = () => {
    throw new Error("denied");
  };
  assert.throws(() => state.load(), (error) => error instanceof OplogError && /denied/.test(error.message));
});
