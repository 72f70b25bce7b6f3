// A consumer on the public part of the JavaScript client.

import { writeSync } from "node:fs";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const { Consumer, OplogError, fileState } = await import(`${process.env.OPLOG_CLIENTS}/js/node.js`);

const text = { type: "string" };
// Signals are the program's affair: ``stopped`` gets the function that stops the consumer.
export async function play({ args, folder, password, print, log, stopped = () => {} }) {
  const end = (code, error) => {
    if (error) log(`${error.message}\n`);
    return code;
  };
  let flags;
  try {
    ({ values: flags } = parseArgs({
      args,
      options: {
        url: text, types: text, parents: text, start: text, name: text, shard: text, state: text, count: text, timeout: text,
        backoff: text, "heartbeat-timeout": text, "handler-delay": text, json: { type: "boolean" },
      },
    }));
  } catch (error) {
    return end(2, error);
  }
  let consumer;
  let left = number(flags.count ?? "0");
  try {
    if (!Number.isInteger(left)) throw new TypeError("--count must be a number");
    consumer = new Consumer(flags.url, {
      types: names(flags.types), parents: names(flags.parents), start: flags.start, name: flags.name,
      shard: flags.shard,
      state: flags.state === undefined ? undefined : fileState(resolve(folder, flags.state)), password,
      timeout: number(flags.timeout), heartbeatTimeout: number(flags["heartbeat-timeout"]),
      backoff: names(flags.backoff)?.map(Number), log: (message) => log(`${message}\n`),
    });
  } catch (error) {
    return end(2, error);
  }
  stopped(() => consumer.stop());
  let failure = null;
  try {
    let delay = 0; // from the second event on
    for await (const event of consumer) {
      if (delay) await new Promise((wake) => setTimeout(wake, delay));
      delay = 1000 * (number(flags["handler-delay"]) ?? 0);
      print(`${JSON.stringify(shown(event))}\n`);
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
  if (failure) return end(failure instanceof OplogError || failure.code ? 1 : 3, failure);
  return 0;
}

function shown(event) {
  const { eventId: id, event: name } = event;
  if (!("id" in event)) return { id, event: name };
  return { id, event: name, type: event.type, object: event.id, parents: event.parents, timestamp: event.timestamp };
}

const names = (value) => value?.split(",");
const number = (value) => (value === undefined ? undefined : Number(value));

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const code = await play({
    args: process.argv.slice(2),
    folder: "",
    password: process.env.OPLOG_PASSWORD,
    print: (line) => process.stdout.write(line),
    log: (line) => writeSync(2, line),
    stopped: (stop) => ["SIGTERM", "SIGINT"].forEach((name) => process.on(name, stop)),
  });
  if (code) process.exit(code);
}
