// A producer on the public part of the JavaScript client that sends its input, a JSON object a line.

import { writeSync } from "node:fs";
import { parseArgs } from "node:util";

const { HttpProducer, UdpProducer } = await import(`${process.env.OPLOG_CLIENTS}/js/node.js`);

const tell = (message) => writeSync(2, `${message}\n`);
function end(code, error) {
  if (error) tell(error.message);
  process.exit(code);
}

const FULL = 10; // room of a producer whose senders must wait
const text = { type: "string" };
let flags;
try {
  ({ values: flags } = parseArgs({ options: { url: text, timeout: text, backoff: text, senders: text, "close-timeout": text } }));
} catch (error) {
  end(2, error);
}

let producer;
try {
  if (flags.url.startsWith("udp:")) {
    producer = await UdpProducer.open(flags.url);
  } else {
    producer = new HttpProducer(flags.url, {
      password: process.env.OPLOG_PASSWORD,
      timeout: flags.timeout === undefined ? undefined : Number(flags.timeout),
      backoff: flags.backoff?.split(",").map(Number),
      log: tell,
      maxBuffered: flags["close-timeout"] ? FULL : undefined,
    });
  }
} catch (error) {
  end(error instanceof TypeError ? 2 : 1, error);
}

if (flags["close-timeout"]) {
  let woken = 0;
  const senders = Array.from({ length: Number(flags.senders) }, async () => {
    try {
      for (;;) await producer.send({ event: "insert", type: "video", id: "x" });
    } catch {
      woken += 1;
    }
  });
  while (producer.counters.buffered < FULL) await new Promise((resolve) => setTimeout(resolve, 1));
  const failure = await producer.close(Number(flags["close-timeout"])).catch((error) => error);
  await Promise.all(senders);
  await producer.close(Infinity);
  process.stdout.write(`${JSON.stringify({ woken })}\n`);
  end(failure ? 1 : 0, failure);
}

if (flags.senders) {
  const taken = [];
  const senders = Array.from({ length: Number(flags.senders) }, async (_, mine) => {
    try {
      for (let sent = 0; ; sent += 1) {
        const id = `${mine}-${sent}`;
        await producer.send({ event: "insert", type: "video", id });
        taken.push(id);
        if (sent % 100 === 0) await new Promise(setImmediate);
      }
    } catch {}
  });
  while (producer.counters.delivered === 0) await new Promise((resolve) => setTimeout(resolve, 1));
  await producer.close();
  await Promise.all(senders);
  await producer.close();
  process.stdout.write(`${JSON.stringify({ taken })}\n`);
  process.exit(0);
}

let bad = 0;
let number = 0;
const utf8 = new TextDecoder("utf-8", { fatal: true });

async function send(line) {
  number += 1;
  try {
    const operation = JSON.parse(utf8.decode(line));
    // A time without a zone would be that of this machine.
    if (operation.timestamp && !/([zZ]|[+-]\d\d:\d\d)$/.test(operation.timestamp)) throw new TypeError("timestamp: no zone");
    await producer.send(operation);
  } catch (error) {
    bad += 1;
    tell(`line ${number}: ${error.message}`);
  }
}

process.on("SIGTERM", () => process.stdin.destroy());
let partial = Buffer.alloc(0);
try {
  for await (const raw of process.stdin) {
    partial = Buffer.concat([partial, raw]);
    for (let place; (place = partial.indexOf(10)) >= 0; partial = partial.subarray(place + 1)) await send(partial.subarray(0, place));
  }
  if (partial.length > 0) await send(partial);
} catch (error) {
  if (error.code !== "ERR_STREAM_PREMATURE_CLOSE" && error.name !== "AbortError") end(3, error);
}
try {
  await producer.close();
} catch (error) {
  end(1, error);
}
process.exitCode = bad || producer.counters.rejected || producer.counters.dropped ? 1 : 0;
