import { agentAccess, noToken, refusalOf } from "./credentials.js";
import { OplogError } from "./errors.js";
import { bodyOf, passes, reasonOf } from "./http.js";
import { encode } from "./operation.js";
import { checkOptions, withDefaults } from "./options.js";
import { after, backoff, unlessAborted, within } from "./time.js";
import { judge } from "./verdict.js";

const BATCH_BYTES = 1024 * 1024;
const MOST_PATIENCE = 64;
const OVERFLOWS = ["block", "raise", "drop_new", "drop_old"];
const DEFAULTS = {
  timeout: 30, batchSize: 1000, maxBuffered: 10_000, maxBufferedBytes: 64 << 20, overflow: "block", backoff: [1, 30],
  log: (message) => console.warn(`oplog: ${message}`),
};
const RULES = {
  timeout: "seconds", batchSize: "count", maxBuffered: "count", maxBufferedBytes: "count", backoff: "backoff", log: "function",
};

/** Delivers at least once and in order, in batches from a bounded buffer. Repeats a batch until the agent has it. */
export class HttpProducer {
  #url;
  #credentials;
  #options;
  #delays;
  #queue = []; // [number, raw]
  #batch = [];
  #blocked = []; // sends that wait for room, in order: { raw, resolve, reject }
  #bytes = 0;
  #last = 0;
  #batchSize; // the option, or less after an agent refused a batch as too large
  #patience = 1; // batches to deliver before the size doubles; it doubles when that was too soon
  #deliveredAtSize = 0;
  #sending = null;
  #request = null;
  #waiting = new Set();
  #trouble = null;
  #closing = null;
  #isClosed = false;
  counters = { sent: 0, delivered: 0, rejected: 0, dropped: 0, retried: 0, buffered: 0 };

  constructor(url, options = {}) {
    this.#options = withDefaults(DEFAULTS, options);
    checkOptions(this.#options, RULES);
    if (!OVERFLOWS.includes(this.#options.overflow)) throw new TypeError(`overflow must be one of ${OVERFLOWS.join(", ")}`);
    const { url: target, credentials } = agentAccess(url, this.#options, "/ops");
    this.#url = target;
    this.#credentials = credentials;
    this.#batchSize = this.#options.batchSize;
    this.#delays = backoff(...this.#options.backoff);
  }

  /**
   * Resolves when the operation is in the buffer. Rejects when there is no room and the policy is "raise", and when the producer
   * is closed, also while it waits for room.
   */
  async send(operation) {
    const raw = encode(operation);
    const { overflow } = this.#options;
    if (this.#closing) throw closed();
    if (overflow === "block" && (this.#blocked.length > 0 || !this.#hasRoom(raw))) {
      return new Promise((resolve, reject) => this.#blocked.push({ raw, resolve, reject }));
    }
    while (overflow === "drop_old" && !this.#hasRoom(raw) && this.#queue.length > 0) {
      this.#leave(this.#queue.shift());
      this.counters.dropped += 1;
    }
    if (this.#hasRoom(raw)) return this.#enter(raw);
    this.counters.sent += 1;
    this.counters.dropped += 1;
    if (overflow === "raise") throw new OplogError(`the buffer is full (${this.counters.buffered} operations)`);
  }

  /**
   * Resolves when all that was sent before is durable, or rejected by the agent. Rejects after `seconds`, or at once
   * when the agent refuses for a cause that does not pass by itself; the operations stay and are tried again.
   */
  async flush(seconds = 30) {
    checkSeconds(seconds);
    const until = this.#last;
    const end = performance.now() + seconds * 1000;
    while (!this.#isSettled(until)) {
      const left = (end - performance.now()) / 1000;
      if (left <= 0 || this.#trouble?.lasting || this.#isClosed) {
        throw new OplogError(`${this.counters.buffered} operations are not delivered: ${this.#trouble?.reason ?? "no answer yet"}`);
      }
      await this.#change(left);
    }
  }

  /** Refuse further operations, flush and end. Rejects if operations are left. A later call resolves. */
  async close(seconds = 30) {
    checkSeconds(seconds);
    if (this.#isClosed) return;
    this.#closing ??= this.#end(seconds);
    await this.#closing;
  }

  async #end(seconds) {
    this.#blocked.splice(0).forEach(({ reject }) => reject(closed()));
    try {
      await this.flush(seconds);
    } finally {
      this.#isClosed = true;
      this.#request?.abort();
      this.#changed();
      await this.#sending;
    }
  }

  #hasRoom(raw) {
    const { maxBuffered, maxBufferedBytes } = this.#options;
    const { buffered } = this.counters;
    return buffered === 0 || (buffered < maxBuffered && this.#bytes + raw.length <= maxBufferedBytes);
  }

  #isSettled(number) {
    return ((this.#batch[0] ?? this.#queue[0])?.[0] ?? Infinity) > number;
  }

  #enter(raw) {
    this.#last += 1;
    this.#queue.push([this.#last, raw]);
    this.#bytes += raw.length;
    this.counters.sent += 1;
    this.counters.buffered += 1;
    this.#sending ??= this.#run();
  }

  #leave([, raw]) {
    this.#bytes -= raw.length;
    this.counters.buffered -= 1;
  }

  /** Take operations of blocked sends into the buffer, until it is full. */
  #admit() {
    let admitted = 0;
    for (const { raw, resolve } of this.#blocked) {
      if (!this.#hasRoom(raw)) break;
      this.#enter(raw);
      resolve();
      admitted += 1;
    }
    this.#blocked.splice(0, admitted);
  }

  async #run() {
    while (!this.#isClosed && this.counters.buffered > 0) {
      if (this.#batch.length === 0) this.#batch = this.#nextBatch();
      const delay = this.#obey(await this.#attempt());
      this.#admit();
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

  /** Send the batch, and again with a fresh token after a 401. Returns the verdict. */
  async #attempt() {
    const { isFunction } = this.#credentials;
    let refused;
    for (;;) {
      this.#request = new AbortController();
      const giving = within(this.#options.timeout, this.#credentials.current(refused), "it took too long");
      let authorization;
      try {
        authorization = await unlessAborted(giving, this.#request.signal);
      } catch (error) {
        return { later: true, reason: noToken(error), seconds: 0, lasting: false };
      }
      if (this.#isClosed) return { later: true, reason: "the producer is closed", seconds: 0, lasting: true };
      const verdict = await this.#post(authorization);
      if (verdict.status !== 401) return verdict;
      if (!isFunction || refused !== undefined) return { ...verdict, reason: refusalOf(this.#credentials, verdict.reason, 401) };
      refused = authorization;
    }
  }

  /** Send the batch and judge the answer. */
  async #post(authorization) {
    const count = this.#batch.length;
    const body = this.#batch.map(([, raw]) => raw.toString()).join("\n");
    this.#request = new AbortController();
    const headers = { "Content-Type": "application/x-ndjson" };
    if (authorization) headers.Authorization = authorization;
    const options = { method: "POST", headers, body, redirect: "manual", signal: this.#request.signal };
    let response;
    const exchange = async () => {
      response = await fetch(this.#url, options);
      return judge(response, await bodyOf(response), count, this.#url);
    };
    try {
      return await within(this.#options.timeout, exchange(), "the agent did not answer in time");
    } catch (error) {
      // The body of the answer broke off or never ended.
      if (response && (passes(response.status) || response.status === 413)) return judge(response, "", count, this.#url);
      return { later: true, reason: reasonOf(error), seconds: 0, lasting: false };
    } finally {
      this.#request.abort();
    }
  }

  /** Act on a verdict. Returns the seconds to wait before the next request. */
  #obey({ delivered, bad, tooLarge, reason, seconds, lasting }) {
    if (delivered) {
      this.#grow();
      return this.#settle(this.#batch.map((_, index) => index), "delivered");
    }
    if (tooLarge && this.#batch.length > 1) {
      this.#halve();
      return 0;
    }
    if (bad || tooLarge) {
      const rejected = [...new Set(bad ?? [0])];
      if (tooLarge) this.#batchSize = this.#options.batchSize; // this operation was the cause
      const first = this.#batch[rejected[0]][1].toString().slice(0, 200);
      this.#options.log(`the agent rejects operations, ${rejected.length} of this batch; the first is ${first}: ${reason}`);
      return this.#settle(rejected, "rejected");
    }
    if (this.#trouble?.reason !== reason) this.#options.log(`${this.counters.buffered} operations wait: ${reason}`);
    this.#trouble = { reason, lasting };
    this.counters.retried += 1;
    return this.#delays.next(seconds);
  }

  #halve() {
    this.#batchSize = this.#batch.length >> 1;
    this.#queue = [...this.#batch.splice(this.#batchSize), ...this.#queue];
    this.#patience = Math.min(2 * this.#patience, MOST_PATIENCE);
    this.#deliveredAtSize = 0;
  }

  #grow() {
    this.#deliveredAtSize += 1;
    if (this.#deliveredAtSize < this.#patience) return;
    this.#batchSize = Math.min(2 * this.#batchSize, this.#options.batchSize);
    this.#patience = Math.max(1, this.#patience >> 1);
    this.#deliveredAtSize = 0;
  }

  #settle(indices, how) {
    const gone = new Set(indices);
    this.#batch.filter((_, index) => gone.has(index)).forEach((item) => this.#leave(item));
    this.#batch = this.#batch.filter((_, index) => !gone.has(index));
    this.counters[how] += gone.size;
    this.#trouble = null;
    this.#delays.reset();
    return 0;
  }

  /** Wait until something changes, at most `seconds`. */
  #change(seconds) {
    return new Promise((resolve) => {
      const timer = after(seconds, () => wake());
      const wake = () => {
        clearTimeout(timer);
        this.#waiting.delete(wake);
        resolve();
      };
      this.#waiting.add(wake);
    });
  }

  #changed() {
    for (const wake of [...this.#waiting]) wake();
  }

  /** Wait before the next attempt. `close` ends the wait. */
  async #pause(seconds) {
    const end = performance.now() + seconds * 1000;
    for (let left = seconds; left > 0 && !this.#isClosed; left = (end - performance.now()) / 1000) await this.#change(left);
  }
}

function closed() {
  return new OplogError("the producer is closed");
}

function checkSeconds(seconds) {
  if (typeof seconds !== "number" || !(seconds >= 0)) throw new TypeError("the time to wait must be a number of seconds, 0 or more");
}
