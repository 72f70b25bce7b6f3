// Follows an oplog agent, in browsers and in Node >= 20. No dependencies.

const EVENT_STREAM = "text/event-stream";
const EVENT_ID = /^(?:[0-9]{1,13}|[0-9a-f]{24})$/;
const POSITION = /^(?:[0-9]{0,13}|[0-9a-f]{24})$/;
const OPERATIONS = new Set(["insert", "update", "delete"]);
const TRY_AGAIN = new Set([408, 425, 429]); // beside all of 5xx
const MAX_BLOCK = 1024 * 1024;

/** The agent refuses for good, or what answers is no agent. `status` is HTTP's, where there is one. */
export class OplogError extends Error {
  constructor(message, status) {
    super(message);
    this.name = "OplogError";
    this.status = status;
  }
}

/** The connection ended or could not be made: passes by itself. Never leaves this module. */
class Disconnected extends Error {
  constructor(message, retryAfter = 0) {
    super(message);
    this.retryAfter = retryAfter;
  }
}

/** Blocks of an event stream from bytes in pieces of any size. Lines end in a bare \n. */
export class BlockParser {
  #decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  #partial = "";
  #fields = {};
  #size = 0;

  /** The blocks that `chunk` completes. Throws OplogError. */
  feed(chunk) {
    let text;
    try {
      text = this.#decoder.decode(chunk, { stream: true });
    } catch {
      throw new OplogError("the stream is not UTF-8");
    }
    const lines = (this.#partial + text).split("\n");
    this.#partial = lines.pop();
    const blocks = [];
    for (const line of lines) {
      if (line === "") {
        if (Object.keys(this.#fields).length) blocks.push({ id: "", event: "", data: "", ...this.#fields });
        this.#fields = {};
        this.#size = 0;
      } else if (!line.startsWith(":")) {
        this.#field(line);
      }
    }
    if (this.#size + this.#partial.length > MAX_BLOCK) throw new OplogError("a block of the stream is too large");
    return blocks;
  }

  #field(line) {
    this.#size += line.length;
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (name === "data" && this.#fields.data !== undefined) value = `${this.#fields.data}\n${value}`;
    if (name === "id" || name === "event" || name === "data") this.#fields[name] = value;
  }
}

/**
 * Which events are acknowledged. `position` is the id of the last event before the oldest that is not: a stream resumed
 * there brings that one again.
 */
export class Acks {
  #entries = new Map(); // event -> [id, acked], in the order in which they were handed out
  #last = null;

  constructor(position) {
    this.position = position;
    this.unacked = 0;
  }

  handedOut(event, id) {
    this.#last = event;
    this.#entries.set(event, [id, false]);
    this.unacked += 1;
  }

  /** The stream has reached a position that nobody needs to acknowledge; `mark` is any new object. */
  passed(mark, id) {
    if (this.#entries.size === 0) {
      this.position = id;
      return;
    }
    if (this.#entries.get(this.#last)?.[1]) this.#entries.delete(this.#last);
    this.#last = mark;
    this.#entries.set(mark, [id, true]);
  }

  /** Whether `position` moved. */
  ack(event) {
    const entry = this.#entries.get(event);
    if (!entry || entry[1]) return false;
    entry[1] = true;
    this.unacked -= 1;
    let moved = false;
    for (const [oldest, [id, acked]] of this.#entries) {
      if (!acked) break;
      this.#entries.delete(oldest);
      this.position = id;
      moved = true;
    }
    return moved;
  }
}

/** Keeps the position in a browser. */
export function localStorageState(key) {
  return {
    load: () => localStorage.getItem(key) ?? "",
    save: (position) => localStorage.setItem(key, position),
  };
}

/** Seconds from `first` to `last`, doubling, with jitter; never less than asked for. */
export function backoff(first, last) {
  let next = first;
  return {
    next(atLeast = 0) {
      const own = Math.min(last, next * (1 + Math.random()));
      next = Math.min(Math.max(last / 2, first), next * 2);
      return Math.max(own, Math.min(atLeast, 3600) * (1 + 0.3 * Math.random()));
    },
    reset() {
      next = first;
    },
  };
}

/** An event, or for what only moves the position an object with `eventId` and `checkpoint: true`. */
function read({ id, event, data }) {
  if (!EVENT_ID.test(id)) throw new OplogError(`the stream has an event ${event} with the id ${JSON.stringify(id)}`);
  if (event === "reset" || event === "live") return { eventId: id, event };
  if (!OPERATIONS.has(event)) return { eventId: id, checkpoint: true };
  try {
    const { type, id: objectId, parents, timestamp, ref } = JSON.parse(data);
    if (typeof type !== "string" || typeof objectId !== "string") throw new Error("type and id must be strings");
    const operation = { eventId: id, event, type, id: objectId, parents: parents ?? [], timestamp: new Date(timestamp) };
    return ref === undefined ? operation : { ...operation, ref };
  } catch (error) {
    throw new OplogError(`the operation ${id} cannot be read: ${error.message}`);
  }
}

/** Follows an agent with `for await`, reconnects by itself, and remembers how far it got. See oplog.d.ts. */
export class Consumer {
  #url;
  #headers;
  #options;
  #delays;
  #acks = null;
  #lastEventId = "";
  #pending = [];
  #stopping = new AbortController();
  #wakeUp = () => {};
  #saving = Promise.resolve();
  #saved = "";
  #timer = null;
  #closed = false;

  constructor(url, options = {}) {
    const { types = [], parents = [], start, password } = options;
    this.#options = { timeout: 10, heartbeatTimeout: 40, saveInterval: 1, maxUnacked: 10_000, log: () => {}, ...options };
    this.#delays = backoff(...(options.backoff ?? [1, 30]));
    this.#url = streamUrl(url, types, parents);
    this.#headers = { Accept: EVENT_STREAM, "Cache-Control": "no-cache" };
    if (password) this.#headers.Authorization = `Basic ${toBase64(`:${password}`)}`;
    this.start = start instanceof Date ? String(Math.max(1, start.getTime())) : (start ?? "");
    if (!POSITION.test(this.start)) throw new TypeError(`${start} is no event id and no Date`);
  }

  /** The event id from which a new consumer loses nothing; "" before the agent has told the first. */
  get position() {
    return this.#acks?.position ?? "";
  }

  /** The event is dealt with: in any order, as often as you like; needed with a state only. */
  ack(event) {
    if (!this.#options.state || !this.#acks) return;
    if (this.#acks.ack(event)) this.#saveSoon();
    this.#wakeUp();
  }

  /** End the iteration. */
  stop() {
    this.#stopping.abort();
    this.#wakeUp();
  }

  /** Save the position. Rejects when that fails. */
  async close() {
    this.stop();
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#timer = null;
    await this.#saving;
    await this.#save();
  }

  async *[Symbol.asyncIterator]() {
    await this.#begin();
    let connection = null;
    try {
      while (!this.#stopping.signal.aborted) {
        if (this.#pending.length > 0) {
          if (this.#hasRoom()) yield* this.#handOut();
          else await this.#room();
          continue;
        }
        try {
          connection ??= await this.#connect();
          this.#receive(await connection.read());
        } catch (error) {
          connection?.close();
          connection = null;
          if (this.#stopping.signal.aborted) return;
          if (!(error instanceof Disconnected)) throw error;
          const delay = this.#delays.next(error.retryAfter);
          this.#options.log(`${error.message}; trying again in ${delay.toFixed(1)} s`);
          await this.#wait(delay);
        }
      }
    } finally {
      connection?.close();
    }
  }

  async #begin() {
    if (this.#acks) return;
    const stored = (await this.#options.state?.load()) ?? "";
    const position = stored.replace(/\n$/, "");
    if (!POSITION.test(position)) throw new OplogError(`the state holds ${JSON.stringify(stored)}, which is no position`);
    this.#saved = position;
    this.#lastEventId = position || this.start;
    this.#acks = new Acks(this.#lastEventId);
    this.#saveSoon();
  }

  #hasRoom() {
    return !this.#options.state || this.#acks.unacked < this.#options.maxUnacked;
  }

  #room() {
    this.#options.log(`${this.#acks.unacked} events are not acknowledged: waiting`);
    return new Promise((resolve) => {
      this.#wakeUp = resolve;
    });
  }

  *#handOut() {
    while (this.#pending.length > 0 && this.#hasRoom() && !this.#stopping.signal.aborted) {
      const item = this.#pending.shift();
      if (item.checkpoint) {
        this.#acks.passed(item, item.eventId);
        this.#saveSoon();
        continue;
      }
      if (this.#options.state) this.#acks.handedOut(item, item.eventId);
      else this.#acks.position = item.eventId;
      yield item;
    }
  }

  #receive(items) {
    if (items.length === 0) return;
    this.#delays.reset();
    this.#pending = items;
    this.#lastEventId = items.at(-1).eventId;
  }

  async #connect() {
    const { timeout, heartbeatTimeout, fetch = globalThis.fetch } = this.#options;
    const aborter = new AbortController();
    const abort = () => aborter.abort();
    this.#stopping.signal.addEventListener("abort", abort, { once: true });
    const close = () => {
      this.#stopping.signal.removeEventListener("abort", abort);
      abort();
    };
    const headers = this.#lastEventId ? { ...this.#headers, "Last-Event-ID": this.#lastEventId } : this.#headers;
    try {
      const request = fetch(this.#url, { headers, cache: "no-store", signal: aborter.signal });
      const response = await within(timeout, request, "the agent did not answer in time");
      await check(response);
      const reader = response.body.getReader();
      const parser = new BlockParser();
      const next = async () => {
        const { done, value } = await within(heartbeatTimeout, reader.read(), "the agent was silent for too long");
        if (done) throw new Disconnected("the agent ended the stream");
        return parser.feed(value).map(read);
      };
      this.#options.log(`following ${this.#url.origin}${this.#url.pathname}`);
      return { read: () => next().catch(translate), close };
    } catch (error) {
      close();
      return translate(error);
    }
  }

  #wait(seconds) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, seconds * 1000);
      this.#wakeUp = () => {
        if (!this.#stopping.signal.aborted) return;
        clearTimeout(timer);
        resolve();
      };
      this.#wakeUp();
    });
  }

  #saveSoon() {
    if (!this.#options.state || this.#timer !== null || this.#closed) return;
    this.#timer = setTimeout(() => {
      this.#timer = null;
      // One after another: a slow save must not end behind a newer one.
      const saving = this.#saving.then(() => this.#save());
      this.#saving = saving.catch((error) => {
        this.#options.log(`cannot save the position: ${error.message}`);
        this.#saveSoon();
      });
    }, this.#options.saveInterval * 1000);
    this.#timer.unref?.();
  }

  async #save() {
    const position = this.position;
    if (!this.#options.state || !position || position === this.#saved) return;
    await this.#options.state.save(position);
    this.#saved = position;
  }
}

function translate(error) {
  if (error instanceof OplogError || error instanceof Disconnected) throw error;
  throw new Disconnected(error.cause?.message ?? error.message);
}

async function check(response) {
  const { status } = response;
  if (status === 200) {
    const type = response.headers.get("content-type") ?? "";
    if (type.split(";")[0].trim().toLowerCase() !== EVENT_STREAM) {
      throw new OplogError(`${response.url} sends ${type || "no content type"}: is it an agent?`);
    }
    return;
  }
  const message = `${await detailOf(response)} (HTTP ${status})`;
  if (status >= 500 || TRY_AGAIN.has(status)) {
    throw new Disconnected(message, Number(response.headers.get("retry-after")) || 0);
  }
  throw new OplogError(message, status);
}

/** The sentence in an answer's problem document, else the status in words. */
export async function detailOf(response) {
  try {
    const { detail } = await response.json();
    return detail ?? response.statusText;
  } catch {
    return response.statusText || "the agent answered without words";
  }
}

async function within(seconds, promise, message) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Disconnected(message)), seconds * 1000);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
    promise.catch(() => {}); // it may fail later, when nobody listens any more
  }
}

/** `/ops` below an agent's base address. */
export function opsUrl(url) {
  const where = new URL(url, globalThis.location?.href);
  if (!/^https?:$/.test(where.protocol)) throw new TypeError(`${url} is no address of an agent`);
  const path = where.pathname.replace(/\/+$/, "");
  where.pathname = path.endsWith("/ops") ? path : `${path}/ops`;
  return where;
}

function streamUrl(url, types, parents) {
  const where = opsUrl(url);
  where.searchParams.set("checkpoint", "1");
  for (const [name, values] of Object.entries({ types, parents })) {
    if (!Array.isArray(values) || values.includes("")) throw new TypeError(`${name} must be a list of names`);
    // One value is split at its commas, of several each stands for itself.
    if (values.some((value) => value.includes(","))) [...values, values[0]].forEach((v) => where.searchParams.append(name, v));
    else if (values.length > 0) where.searchParams.set(name, values.join(","));
  }
  return where;
}

/** Base64 of a string's UTF-8 bytes. */
export function toBase64(text) {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}
