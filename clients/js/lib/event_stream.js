import { Acks } from "./acks.js";
import { Connection } from "./connection.js";
import { Disconnected, OplogError } from "./errors.js";
import { shown } from "./http.js";
import { checkOptions, withDefaults } from "./options.js";
import { Saver } from "./saver.js";
import { after, backoff } from "./time.js";

const STEADY = 5; // seconds; after this life of a connection the pauses start over

const DEFAULTS = {
  start: "",
  timeout: 10,
  heartbeatTimeout: 40,
  backoff: [1, 30],
  saveInterval: 1,
  maxUnacked: 10_000,
  log: () => {},
};
const RULES = {
  timeout: "seconds", heartbeatTimeout: "seconds", backoff: "backoff", saveInterval: "seconds", maxUnacked: "count",
  log: "function", fetch: "function",
};

/** Return the options with their defaults and those in `more`. Throws TypeError. */
export function streamOptions(given, more = {}) {
  const options = withDefaults({ ...DEFAULTS, ...more, fetch: globalThis.fetch }, given);
  checkOptions(options, RULES);
  const { signal, state } = options;
  if (state && !(typeof state.load === "function" && typeof state.save === "function")) {
    throw new TypeError("state must be an object with load and save, such as fileState(path)");
  }
  for (const name of ["name", "shard"]) if (options[name] !== undefined) checkOptions(options, { [name]: name });
  if (signal && !(signal instanceof AbortSignal)) throw new TypeError("signal must be an AbortSignal");
  return options;
}

/** Add the parameters of every stream to its address. */
export function addParameters(url, { name, shard }) {
  url.searchParams.set("checkpoint", "1");
  if (name !== undefined) url.searchParams.set("name", name);
  if (shard !== undefined) url.searchParams.set("shard", shard);
}

/**
 * Follows a stream with `for await`, reconnects by itself, and keeps its position: the common part of Consumer and TopicConsumer.
 *
 * `kind` has the rules of the stream: `isPosition`, the name of one in `position`, `readBlock` as in events.js, `refusal` that makes the
 * error of a refusal, and `maxBlock`, the most bytes of a block.
 */
export class EventStream {
  #url;
  #credentials;
  #options;
  #kind;
  #delays;
  #acks = null;
  #saver = null;
  #lastEventId = "";
  #pending = [];
  #stopping = new AbortController();
  #failure = null;
  #wakeUp = () => {};
  #isFull = false;
  #hasToldUnknown = false;

  /** `options` come from `streamOptions`. */
  constructor({ url, credentials, options, kind }) {
    this.#url = url;
    this.#credentials = credentials;
    this.#options = options;
    this.#kind = kind;
    this.#delays = backoff(...options.backoff);
    this.start = startingPoint(options.start, kind);
    const { signal } = options;
    if (signal?.aborted) this.stop();
    else signal?.addEventListener("abort", () => this.stop(), { once: true, signal: this.#stopping.signal });
  }

  /** The position from which a new consumer loses nothing; "" before the agent has sent the first one. */
  get position() {
    return this.#acks?.position ?? "";
  }

  /** Acknowledge an event as handled, in any order. Only needed with a state. */
  ack(event) {
    if (!this.#saver) return;
    if (this.#acks.ack(event)) this.#saver.changed();
    this.#wakeUp();
  }

  /** End the iteration. */
  stop() {
    this.#stopping.abort();
    this.#wakeUp();
  }

  /** Save the position. Rejects if that fails. */
  async close() {
    this.stop();
    await this.#saver?.close();
  }

  async *[Symbol.asyncIterator]() {
    await this.#begin();
    const connecting = { connection: null };
    const abort = () => connecting.connection?.close();
    this.#stopping.signal.addEventListener("abort", abort);
    try {
      while (!this.#stopping.signal.aborted) {
        if (this.#pending.length === 0) await this.#receive(connecting);
        else if (this.#hasRoom()) yield* this.#handOut();
        else await this.#room();
      }
      if (this.#failure) throw this.#failure;
    } finally {
      this.#stopping.signal.removeEventListener("abort", abort);
      abort();
    }
  }

  async #begin() {
    if (this.#acks) return;
    const { state, saveInterval: interval, log } = this.#options;
    const stored = (await state?.load()) ?? "";
    const position = typeof stored === "string" ? stored.replace(/\n$/, "") : stored;
    if (position !== "" && !this.#kind.isPosition(position)) {
      throw new OplogError(`the state holds ${JSON.stringify(stored)}, which is no position: delete it to begin anew`);
    }
    this.#lastEventId = position || this.start;
    this.#acks = new Acks(this.#lastEventId);
    if (!state) return;
    const fail = (error) => {
      this.#failure = error;
      this.stop();
    };
    this.#saver = new Saver({ state, interval, log, saved: position, position: () => this.position, fail });
    this.#saver.changed();
  }

  #hasRoom() {
    return !this.#saver || this.#acks.unacked < this.#options.maxUnacked;
  }

  #room() {
    if (!this.#isFull) this.#options.log(`${this.#acks.unacked} events are not acknowledged: waiting`);
    this.#isFull = true;
    return new Promise((resolve) => {
      this.#wakeUp = resolve;
    });
  }

  *#handOut() {
    while (this.#pending.length > 0 && this.#hasRoom() && !this.#stopping.signal.aborted) {
      const { eventId, event, failure } = this.#pending.shift();
      if (failure) throw failure;
      if (!event) {
        this.#acks.passed(eventId);
        this.#saver?.changed();
        continue;
      }
      if (this.#saver) this.#acks.handedOut(event, eventId);
      else this.#acks.position = eventId;
      if (this.#isFull && this.#acks.unacked <= this.#options.maxUnacked / 2) this.#isFull = false; // logged once until there is room again
      yield event;
    }
  }

  /** Wait for bytes; after a failure, for the next attempt. */
  async #receive(connecting) {
    try {
      connecting.connection ??= await this.#connect(connecting);
      const chunk = await connecting.connection.read(this.#options.heartbeatTimeout);
      this.#take(connecting.connection.parser.feed(chunk));
    } catch (error) {
      const { connection } = connecting;
      connecting.connection = null;
      connection?.close();
      if (this.#stopping.signal.aborted) return;
      if (!(error instanceof Disconnected)) throw error;
      if (connection?.age >= STEADY) this.#delays.reset();
      const delay = this.#delays.next(error.retryAfter);
      this.#options.log(`${error.message}; trying again in ${delay.toFixed(1)} s`);
      await this.#wait(delay);
    }
  }

  async #connect(connecting) {
    const { fetch, timeout, log, shard } = this.#options;
    const { refusal, maxBlock } = this.#kind;
    const connection = new Connection(maxBlock);
    connecting.connection = connection; // so that `stop` ends the attempt
    const request = { fetch, url: this.#url, credentials: this.#credentials, lastEventId: this.#lastEventId, shard, refusal };
    await connection.open(request, timeout);
    log(`following ${shown(this.#url)}`);
    return connection;
  }

  /** Read the blocks. Those before a bad one are handed out first. */
  #take(blocks) {
    try {
      for (const block of blocks) {
        const item = this.#kind.readBlock(block, this.#lastEventId);
        if (item.unknown) this.#tellUnknown(item.unknown);
        if (item.event) this.#delays.reset();
        else if (item.eventId === this.#lastEventId) continue;
        this.#pending.push(item);
        this.#lastEventId = item.eventId;
      }
    } catch (failure) {
      this.#pending.push({ failure });
    }
  }

  #tellUnknown(name) {
    if (this.#hasToldUnknown) return;
    this.#hasToldUnknown = true;
    this.#options.log(`events of a name that this client does not know are skipped: ${JSON.stringify(name.slice(0, 100))}`);
  }

  #wait(seconds) {
    return new Promise((resolve) => {
      const timer = after(seconds, resolve);
      this.#wakeUp = () => {
        if (!this.#stopping.signal.aborted) return;
        clearTimeout(timer);
        resolve();
      };
      this.#wakeUp();
    });
  }
}

/** Return the position to start from. Throws TypeError if the option is neither a position nor a Date. */
function startingPoint(start, { isPosition, position }) {
  const id = start instanceof Date ? String(Math.max(1, start.getTime())) : start;
  if (id !== "" && !isPosition(id)) throw new TypeError(`start: ${String(start)} is neither ${position} nor a Date`);
  return id;
}
