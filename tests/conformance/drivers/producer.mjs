// A producer on the public part of the JavaScript client that sends its input, a JSON object a line.

import { writeSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const { HttpProducer, UdpProducer } = await import(`${process.env.OPLOG_CLIENTS}/js/node.js`);

const FULL = 10; // room of a producer whose senders must wait
const text = { type: "string" };
const utf8 = new TextDecoder("utf-8", { fatal: true });

// ``input``: an iterable of buffers.
export async function play({ args, password, input, print, log }) {
  const end = (code, error) => {
    if (error) log(`${error.message}\n`);
    return code;
  };
  let flags;
  let producer;
  try {
    ({ values: flags } = parseArgs({
      args, options: { url: text, timeout: text, backoff: text, senders: text, "close-timeout": text },
    }));
  } catch (error) {
    return end(2, error);
  }
  try {
    if (flags.url.startsWith("udp:")) {
      producer = await UdpProducer.open(flags.url);
    } else {
      producer = new HttpProducer(flags.url, {
        password,
        timeout: flags.timeout === undefined ? undefined : Number(flags.timeout),
        backoff: flags.backoff?.split(",").map(Number),
        log: (message) => log(`${message}\n`),
        maxBuffered: flags["close-timeout"] ? FULL : undefined,
      });
    }
  } catch (error) {
    return end(error instanceof TypeError ? 2 : 1, error);
  }
  if (flags["close-timeout"]) return closeWhileFull(producer, flags, print, end);
  if (flags.senders) return closeUnderLoad(producer, flags, print);
  let bad;
  try {
    bad = await sendAll(producer, input, log);
  } catch (error) {
    return end(3, error);
  }
  try {
    await producer.close();
  } catch (error) {
    return end(1, error);
  }
  return bad || producer.counters.rejected || producer.counters.dropped ? 1 : 0;
}

async function closeWhileFull(producer, flags, print, end) {
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
  print(`${JSON.stringify({ woken })}\n`);
  return end(failure ? 1 : 0, failure);
}

async function closeUnderLoad(producer, flags, print) {
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
  print(`${JSON.stringify({ taken })}\n`);
  return 0;
}

/** Returns the number of bad lines. */
async function sendAll(producer, input, log) {
  let bad = 0;
  let number = 0;
  const send = async (line) => {
    number += 1;
    try {
      const operation = JSON.parse(utf8.decode(line));
      // A time without a zone would be that of this machine.
      if (operation.timestamp && !/([zZ]|[+-]\d\d:\d\d)$/.test(operation.timestamp)) throw new TypeError("timestamp: no zone");
      await producer.send(operation);
    } catch (error) {
      bad += 1;
      log(`line ${number}: ${error.message}\n`);
    }
  };
  let partial = Buffer.alloc(0);
  try {
    for await (const raw of input) {
      partial = Buffer.concat([partial, raw]);
      for (let place; (place = partial.indexOf(10)) >= 0; partial = partial.subarray(place + 1)) await send(partial.subarray(0, place));
    }
    if (partial.length > 0) await send(partial);
  } catch (error) {
    if (error.code !== "ERR_STREAM_PREMATURE_CLOSE" && error.name !== "AbortError") throw error;
  }
  return bad;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  process.on("SIGTERM", () => process.stdin.destroy());
  const code = await play({
    args: process.argv.slice(2),
    password: process.env.OPLOG_PASSWORD,
    input: process.stdin,
    print: (line) => process.stdout.write(line),
    log: (line) => writeSync(2, line),
  });
  if (code) process.exit(code);
}
