// Datagrams to a socket of this process.
import assert from "node:assert/strict";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { test } from "node:test";

import { OplogError, UdpProducer } from "../node.js";

const insert = (id) => ({ event: "insert", type: "video", id: String(id) });

async function receiver(t, address = "127.0.0.1") {
  const socket = createSocket(address.includes(":") ? "udp6" : "udp4");
  const received = [];
  socket.on("message", (raw) => received.push(JSON.parse(raw)));
  socket.bind(0, address);
  await once(socket, "listening");
  t.after(() => socket.close());
  const until = async (count) => {
    while (received.length < count) await once(socket, "message");
    return received;
  };
  return { port: socket.address().port, until };
}

test("every flush that waits is woken, and a second close too", async (t) => {
  const agent = await receiver(t);
  const producer = await UdpProducer.open(`udp://127.0.0.1:${agent.port}`);
  for (let number = 0; number < 5; number++) producer.send(insert(number));
  await Promise.all([producer.flush(), producer.flush(), producer.close(), producer.close()]);
  await producer.close();
  assert.deepEqual((await agent.until(5)).map(({ id }) => id), ["0", "1", "2", "3", "4"]);
  assert.deepEqual(producer.counters, { sent: 5, delivered: 5, dropped: 0 });
});

test("close refuses new operations before it flushes", async (t) => {
  const agent = await receiver(t);
  const producer = await UdpProducer.open(`udp://127.0.0.1:${agent.port}`);
  producer.send(insert(1));
  const closing = producer.close();
  assert.throws(() => producer.send(insert(2)), OplogError);
  await closing;
  assert.throws(() => producer.send(insert(3)), OplogError);
  await producer.flush();
  assert.deepEqual(await agent.until(1), [insert(1)]);
  assert.equal(producer.counters.sent, 1);
});

test("an operation that fits into no datagram is refused", async (t) => {
  const agent = await receiver(t);
  const producer = await UdpProducer.open(`udp://127.0.0.1:${agent.port}`);
  const large = { ...insert(1), parents: ["x".repeat(65_470)] };
  assert.throws(() => producer.send(large), (error) => error instanceof TypeError && /datagram/.test(error.message));
  await producer.close();
});

test("an IPv6 address is possible", async (t) => {
  const agent = await receiver(t, "::1");
  const producer = await UdpProducer.open(`udp://[::1]:${agent.port}`);
  producer.send(insert(1));
  await agent.until(1);
  await producer.close();
});

for (const url of ["localhost:8042", "localhost", "http://localhost", "udp://", "udp://:8042", "udp:localhost", "udp://localhost:0", "udp://localhost:99999", "udp://a:s3cret@ho st", "udp://%zz", ""]) {
  test(`${url.replace("s3cret", "…") || "an empty text"} is refused as an address`, async () => {
    await assert.rejects(UdpProducer.open(url), (error) => {
      assert.doesNotMatch(`${error.stack}${error.input}`, /s3cret/);
      return error instanceof TypeError && error.message.includes("udp://localhost:8042");
    });
  });
}

test("an unknown host is named", async () => {
  await assert.rejects(UdpProducer.open("udp://no-such-host.invalid"), (error) => error instanceof OplogError && error.message.includes("no-such-host.invalid"));
});
