// A consumer on the public part of the JavaScript client.

import { parseArgs } from "node:util";
import { writeSync } from "node:fs";

const { Consumer, OplogError, fileState } = await import(`${process.env.OPLOG_CLIENTS}/js/node.js`);

const text = { type: "string" };
let flags;
try {
  ({ values: flags } = parseArgs({
    options: {
      url: text, types: text, parents: text, start: text, state: text, count: text, timeout: text, backoff: text,
      "heartbeat-timeout": text, "handler-delay": text, json: { type: "boolean" },
    },
  }));
} catch (error) {
  end(2, error);
}

function end(code, error) {
  if (error) writeSync(2, `${error.message}\n`);
  process.exit(code);
}

function shown(event) {
  const { eventId: id, event: name } = event;
  if (!("id" in event)) return { id, event: name };
  return { id, event: name, type: event.type, object: event.id, parents: event.parents, timestamp: event.timestamp };
}

const names = (value) => value?.split(",");
const number = (value) => (value === undefined ? undefined : Number(value));

let consumer;
let left = number(flags.count ?? "0");
try {
  if (!Number.isInteger(left)) throw new TypeError("--count must be a number");
  consumer = new Consumer(flags.url, {
    types: names(flags.types), parents: names(flags.parents), start: flags.start,
    state: flags.state === undefined ? undefined : fileState(flags.state), password: process.env.OPLOG_PASSWORD,
    timeout: number(flags.timeout), heartbeatTimeout: number(flags["heartbeat-timeout"]),
    backoff: names(flags.backoff)?.map(Number), log: (message) => writeSync(2, `${message}\n`),
  });
} catch (error) {
  end(2, error);
}
for (const name of ["SIGTERM", "SIGINT"]) process.on(name, () => consumer.stop());
let failure = null;
try {
  let delay = 0; // from the second event on
  for await (const event of consumer) {
    if (delay) await new Promise((resolve) => setTimeout(resolve, delay));
    delay = 1000 * (number(flags["handler-delay"]) ?? 0);
    process.stdout.write(`${JSON.stringify(shown(event))}\n`);
    consumer.ack(event);
    if (event.type !== undefined && (left -= 1) === 0) consumer.stop();
  }
} catch (error) {
  failure = error;
}
try {
  await consumer.close();
} catch (error) {
  failure ??= error;
}
if (failure) end(failure instanceof OplogError || failure.code ? 1 : 3, failure);
