// For Node: the position in a file, and producers over UDP and HTTP.

import { createSocket } from "node:dgram";
import { lookup } from "node:dns/promises";
import { open, readFile, rename } from "node:fs/promises";
import { isIPv6 } from "node:net";

import { OplogError, backoff, detailOf, opsUrl, toBase64 } from "./oplog.js";

export * from "./oplog.js";

const MAX_OPERATION = 64 * 1024;
const MAX_DATAGRAM = 65507;
const BATCH_BYTES = 1024 * 1024;
const OVERFLOWS = ["block", "raise", "drop_new", "drop_old"];

/** Keeps the position in a file that holds the id and nothing else, replaced in one step. */
export function fileState(path) {
  return {
    async load() {
      try {
        return await readFile(path, "ascii");
      } catch (error) {
        if (error.code === "ENOENT") return "";
        throw error;
      }
    },
    async save(position) {
      const file = await open(`${path}.new`, "w");
      try {
        await file.writeFile(position);
        await file.sync();
      } finally {
        await file.close();
      }
      await rename(`${path}.new`, path);
    },
  };
}

/** Sends operations as datagrams: fire and forget. `await UdpProducer.open("udp://localhost:8042")`. */
export class UdpProducer {
  #socket;
  #address;
  #port;
  #underWay = 0;
  #whenIdle = () => {};
  counters = { sent: 0, delivered: 0, dropped: 0 };

  /** Looks the host up, once: IPv4 if it has one. */
  static async open(url) {
    const where = new URL(url);
    if (where.protocol !== "udp:" || !where.hostname) throw new TypeError(`${url} is no address such as udp://localhost:8042`);
    const found = await lookup(where.hostname.replace(/^\[|\]$/g, ""), { all: true, order: "ipv4first" });
    return new UdpProducer(found[0].address, Number(where.port) || 8042);
  }

  constructor(address, port) {
    this.#address = address;
    this.#port = port;
    // Not connected: a connected socket spends a send on reporting that the one before found no agent.
    this.#socket = createSocket(isIPv6(address) ? "udp6" : "udp4");
    this.#socket.on("error", () => {});
    this.#socket.unref();
  }

  /** Throws TypeError for what an agent would refuse, as far as that is seen here. */
  send(operation) {
    const raw = encode(operation);
    if (raw.length > MAX_DATAGRAM) throw new TypeError("the operation does not fit into a datagram; send it over HTTP");
    this.counters.sent += 1;
    this.#underWay += 1;
    this.#socket.send(raw, this.#port, this.#address, (error) => {
      this.counters[error ? "dropped" : "delivered"] += 1;
      this.#underWay -= 1;
      if (this.#underWay === 0) this.#whenIdle();
    });
  }

  /** Resolves when the system has taken every datagram. */
  async flush() {
    if (this.#underWay > 0) await new Promise((resolve) => (this.#whenIdle = resolve));
  }

  async close() {
    await this.flush();
    await new Promise((resolve) => this.#socket.close(resolve));
  }
}

/** Delivers at least once, in order: a bounded buffer, batches, the same batch again until the agent has it. */
export class HttpProducer {
  #url;
  #headers;
  #options;
  #delays;
  #queue = []; // [number, raw]
  #batch = [];
  #bytes = 0;
  #last = 0;
  #batchSize;
  #sending = null;
  #waiting = new Set();
  #trouble = null;
  #closing = new AbortController();
  counters = { sent: 0, delivered: 0, rejected: 0, dropped: 0, retried: 0, buffered: 0 };

  constructor(url, options = {}) {
    const defaults = { timeout: 30, batchSize: 1000, maxBuffered: 10_000, maxBufferedBytes: 64 << 20, overflow: "block", log: () => {} };
    this.#options = { ...defaults, ...options };
    if (!OVERFLOWS.includes(this.#options.overflow)) throw new TypeError(`overflow must be one of ${OVERFLOWS.join(", ")}`);
    this.#url = opsUrl(url);
    this.#batchSize = this.#options.batchSize;
    this.#delays = backoff(...(options.backoff ?? [1, 30]));
    this.#headers = { "Content-Type": "application/x-ndjson" };
    if (options.password) this.#headers.Authorization = `Basic ${toBase64(`:${options.password}`)}`;
  }

  /** Resolves when the operation is in the buffer. Rejects when there is no room and the policy is "raise". */
  async send(operation) {
    const raw = encode(operation);
    const { overflow } = this.#options;
    while (overflow === "block" && !this.#hasRoom(raw)) await this.#change();
    if (this.#closing.signal.aborted) throw new OplogError("the producer is closed");
    while (overflow === "drop_old" && !this.#hasRoom(raw) && this.#queue.length > 0) {
      this.#leave(this.#queue.shift());
      this.counters.dropped += 1;
    }
    this.counters.sent += 1;
    if (!this.#hasRoom(raw)) {
      this.counters.dropped += 1;
      if (overflow === "raise") throw new OplogError(`the buffer is full (${this.counters.buffered} operations)`);
      return;
    }
    this.#last += 1;
    this.#queue.push([this.#last, raw]);
    this.#bytes += raw.length;
    this.counters.buffered += 1;
    this.#sending ??= this.#run();
  }

  /**
   * Resolves when all that was sent before is durable, or rejected by the agent. Rejects after `seconds`, or at once
   * when the agent refuses for a cause that does not pass by itself; the operations stay and are tried again.
   */
  async flush(seconds = 30) {
    const until = this.#last;
    const end = Date.now() + seconds * 1000;
    const isSettled = () => ((this.#batch[0] ?? this.#queue[0])?.[0] ?? Infinity) > until;
    while (!isSettled()) {
      if (Date.now() >= end || this.#trouble?.lasting) {
        throw new OplogError(`${this.counters.buffered} operations are not delivered: ${this.#trouble?.reason ?? "no answer yet"}`);
      }
      await this.#change(end - Date.now());
    }
  }

  /** `flush`, then end. */
  async close(seconds = 30) {
    try {
      await this.flush(seconds);
    } finally {
      this.#closing.abort();
      this.#changed();
      await this.#sending;
    }
  }

  #hasRoom(raw) {
    const { maxBuffered, maxBufferedBytes } = this.#options;
    const { buffered } = this.counters;
    return buffered === 0 || (buffered < maxBuffered && this.#bytes + raw.length <= maxBufferedBytes);
  }

  async #run() {
    while (!this.#closing.signal.aborted && this.counters.buffered > 0) {
      if (this.#batch.length === 0) this.#batch = this.#nextBatch();
      const delay = await this.#post();
      this.#changed();
      if (delay > 0) await this.#pause(delay);
    }
    this.#sending = null;
  }

  #nextBatch() {
    let size = 0;
    let count = 0;
    while (count < this.#queue.length && count < this.#batchSize) {
      size += this.#queue[count][1].length + 1;
      if (count > 0 && size > BATCH_BYTES) break;
      count += 1;
    }
    return this.#queue.splice(0, count);
  }

  /** Send the batch and do what the answer calls for; seconds to wait before the next request. */
  async #post() {
    let response, answer;
    try {
      const signal = AbortSignal.any([this.#closing.signal, AbortSignal.timeout(this.#options.timeout * 1000)]);
      const body = this.#batch.map(([, raw]) => raw.toString()).join("\n");
      response = await fetch(this.#url, { method: "POST", headers: this.#headers, body, signal });
      answer = response.clone();
      if (response.status === 200 && (await response.json()).ingested === this.#batch.length) {
        this.#settle(this.#batch.map((_, line) => line), "delivered");
        return 0;
      }
    } catch (error) {
      if (answer?.status !== 200) return this.#later(error.cause?.message ?? error.message, 0, false);
    }
    const { status } = answer;
    if (status === 200) return this.#later(`${this.#url.origin} is no agent`, 0, true);
    const errors = status === 400 ? await badLines(answer.clone(), this.#batch.length) : [];
    const reason = `${await detailOf(answer)} (HTTP ${status})`;
    if (errors.length > 0 || (status === 413 && this.#batch.length === 1)) {
      this.#options.log(`the agent refuses operations: ${reason}`);
      this.#settle(errors.length > 0 ? errors : [0], "rejected");
      return 0;
    }
    if (status === 413) {
      this.#batchSize = this.#batch.length >> 1;
      this.#queue.unshift(...this.#batch.splice(this.#batchSize));
      return 0;
    }
    const passes = status >= 500 || [408, 425, 429].includes(status);
    return this.#later(reason, Number(answer.headers.get("retry-after")) || 0, !passes);
  }

  #settle(lines, how) {
    const gone = new Set(lines);
    this.#batch.filter((_, line) => gone.has(line)).forEach((item) => this.#leave(item));
    this.#batch = this.#batch.filter((_, line) => !gone.has(line));
    this.counters[how] += gone.size;
    this.#trouble = null;
    this.#delays.reset();
  }

  #later(reason, atLeast, lasting) {
    if (this.#trouble?.reason !== reason) this.#options.log(`${this.counters.buffered} operations wait: ${reason}`);
    this.#trouble = { reason, lasting };
    this.counters.retried += 1;
    return this.#delays.next(atLeast);
  }

  #leave([, raw]) {
    this.#bytes -= raw.length;
    this.counters.buffered -= 1;
  }

  #change(milliseconds) {
    return new Promise((resolve) => {
      const timer = milliseconds === undefined ? undefined : setTimeout(resolve, milliseconds);
      this.#waiting.add(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  #changed() {
    const waiting = this.#waiting;
    this.#waiting = new Set();
    for (const wake of waiting) wake();
  }

  #pause(seconds) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, seconds * 1000);
      const end = () => {
        clearTimeout(timer);
        resolve();
      };
      this.#closing.signal.addEventListener("abort", end, { once: true });
      if (this.#closing.signal.aborted) end();
    });
  }
}

async function badLines(response, lines) {
  try {
    const { errors } = await response.json();
    const bad = errors.map(({ line }) => line - 1);
    return bad.every((line) => Number.isInteger(line) && line >= 0 && line < lines) ? bad : [];
  } catch {
    return [];
  }
}

/** One line of JSON as bytes. Throws TypeError for what an agent would refuse, as far as that is seen here. */
export function encode({ event, type, id, parents = [], timestamp }) {
  if (!/^(insert|update|delete)$/i.test(event)) throw new TypeError("event: must be insert, update or delete");
  checkText("type", type, 255);
  if (/[/,]/.test(type)) throw new TypeError("type: must not contain '/' or ','");
  checkText("id", id, 1024);
  if (!Array.isArray(parents)) throw new TypeError("parents: must be a list of strings");
  parents.forEach((parent) => checkText("parents", parent, MAX_OPERATION));
  const operation = { event, type, id };
  if (parents.length > 0) operation.parents = parents;
  if (timestamp !== undefined && timestamp !== null) operation.timestamp = timestamp;
  const raw = Buffer.from(JSON.stringify(operation));
  if (raw.length > MAX_OPERATION) throw new TypeError(`operation: has more than ${MAX_OPERATION} bytes`);
  return raw;
}

function checkText(field, text, maxBytes) {
  if (typeof text !== "string" || text === "") throw new TypeError(`${field}: must be a string, and not empty`);
  if (text.includes("\0") || !text.isWellFormed()) throw new TypeError(`${field}: contains NUL or an unpaired surrogate`);
  if (Buffer.byteLength(text) > maxBytes) throw new TypeError(`${field}: is longer than ${maxBytes} bytes`);
}
