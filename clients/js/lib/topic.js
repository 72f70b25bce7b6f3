import { refusalOf } from "./credentials.js";
import { Disconnected, OplogError, UnavailableError, topicRefusal } from "./errors.js";
import { bodyOf, detailOf, passes, reasonOf, redirected, shown } from "./http.js";
import { readMessages } from "./messages.js";
import { encodeMessage } from "./new_message.js";
import { encode } from "./operation.js";
import { READ_COMMITTED, checkOptions, withDefaults } from "./options.js";
import { checkShard } from "./shard.js";
import { after, backoff, retryAfter, unlessAborted, within } from "./time.js";
import { OPLOG, topicAddress } from "./topic_address.js";
import { TopicConsumer } from "./topic_consumer.js";

const MAX_POLL = 32 << 20; // a poll has 1 MB, or one message, whose escapes take more
const DEFAULTS = { timeout: 30, backoff: [1, 30] };
const RULES = { timeout: "seconds", backoff: "backoff" };

/** Publishes to a topic, polls it and follows it. See node.d.ts. */
export class Topic {
  #given; // what `stream` passes on
  #url;
  #isOplog;
  #options;
  #credentials; // of each kind of request

  constructor(url, topic, options = {}) {
    this.#options = withDefaults(DEFAULTS, options);
    checkOptions(this.#options, RULES);
    const { ingestPassword, token } = this.#options;
    let { password } = this.#options;
    if (!topicAddress(url, topic, { password }).credentials.isGiven) password = ingestPassword;
    const reading = topicAddress(url, topic, { password, token });
    const writing = token === undefined ? topicAddress(url, topic, { password: ingestPassword ?? password }) : reading;
    this.#given = { url, topic, password, token };
    this.#url = reading.url;
    this.#isOplog = topic === OPLOG;
    this.#credentials = { publish: writing.credentials, poll: reading.credentials };
  }

  /** Resolves when all messages are durable. */
  async publish(messages, { signal } = {}) {
    const list = Array.isArray(messages) ? messages : [messages];
    if (list.length === 0) throw new TypeError("messages: must not be empty");
    const encoded = list.map((message, index) => this.#encoded(message, `messages[${index}]`));
    const { body } = await this.#request("publish", { messages: encoded }, { signal });
    if (body !== "") throw new OplogError(`${shown(this.#url)} answers a publish with more than a status: is it an agent?`);
  }

  /** Resolves with the messages from a position on. */
  async poll(options = {}) {
    const defaults = { startFrom: null, inclusive: true, limit: null, isolation: READ_COMMITTED };
    const { startFrom, inclusive, limit, isolation, shard, signal } = withDefaults(defaults, options);
    if (typeof inclusive !== "boolean") throw new TypeError("inclusive must be true or false");
    if (limit !== null) checkOptions({ limit }, { limit: "count" });
    checkOptions({ isolation }, { isolation: "isolation" });
    if (shard !== undefined) checkOptions({ shard }, { shard: "shard" });
    const asked = { startFrom: startOf(startFrom), inclusive, limit, isolation };
    const answer = await this.#request("poll", asked, { signal, shard });
    const messages = readMessages(answer.body);
    checkShard(answer, shard);
    const { headers } = answer;
    return { messages, gap: headers.get("oplog-gap") === "1", position: headers.get("oplog-position")?.trim() ?? null };
  }

  /** Return a TopicConsumer. */
  stream(options = {}) {
    const { url, topic, password, token } = this.#given;
    return new TopicConsumer(url, topic, withDefaults({ password, token }, options));
  }

  #encoded(message, field) {
    if (!this.#isOplog || typeof message?.event !== "string") return encodeMessage(message, field);
    try {
      return encode(message).toString();
    } catch (error) {
      throw new TypeError(`${field}.${error.message}`);
    }
  }

  /** Send a request until the agent answers it, for `timeout` seconds at most. */
  async #request(path, asked, { signal, shard }) {
    if (signal && !(signal instanceof AbortSignal)) throw new TypeError("signal must be an AbortSignal");
    const { timeout, backoff: pauses } = this.#options;
    const delays = backoff(...pauses);
    const request = { path, url: this.#target(path, shard), body: JSON.stringify(asked) };
    const end = performance.now() + timeout * 1000;
    const left = () => (end - performance.now()) / 1000;
    for (;;) {
      signal?.throwIfAborted();
      try {
        return await this.#authorized(request, left, signal);
      } catch (error) {
        signal?.throwIfAborted();
        if (!(error instanceof Disconnected)) throw error;
        const delay = delays.next(error.retryAfter);
        if (delay >= left()) throw new UnavailableError(error.message, error.status);
        await pause(delay, signal);
      }
    }
  }

  /** Send a request, and again with a fresh token after a 401. Rejects with the error of a function for tokens, and as `#post` does. */
  async #authorized(request, left, signal) {
    const credentials = this.#credentials[request.path];
    const token = (refused) => unlessAborted(within(left(), credentials.current(refused), "no token in time"), signal);
    const first = await token();
    try {
      return await this.#post(request, first, left(), signal);
    } catch (error) {
      if (error.status !== 401 || !credentials.isFunction) throw named(error, credentials);
    }
    const second = await token(first);
    try {
      return await this.#post(request, second, left(), signal);
    } catch (error) {
      throw named(error, credentials);
    }
  }

  /** Return the address of a request. */
  #target(path, shard) {
    const url = new URL(this.#url);
    url.pathname += `/${path}`;
    if (shard !== undefined) url.searchParams.set("shard", shard);
    return url;
  }

  /** Rejects with Disconnected if another try may help. */
  async #post({ url, body }, authorization, timeout, signal) {
    const request = new AbortController();
    const abort = () => request.abort(signal.reason);
    signal?.addEventListener("abort", abort);
    let response;
    const headers = { "Content-Type": "application/json" };
    if (authorization) headers.Authorization = authorization;
    const exchange = async () => {
      response = await fetch(url, { method: "POST", headers, body, redirect: "manual", signal: request.signal });
      return judged(response, await bodyOf(response, MAX_POLL), url);
    };
    try {
      return await within(timeout, exchange(), "the agent did not answer in time");
    } catch (error) {
      if (error instanceof OplogError || (error instanceof Disconnected && error.status)) throw error;
      // The body of a refusal broke off or never ended.
      if (response && response.status !== 200) judged(response, "", url);
      throw error instanceof Disconnected ? error : new Disconnected(reasonOf(error));
    } finally {
      signal?.removeEventListener("abort", abort);
      request.abort();
    }
  }
}

/** Return the error of a request. Its message tells whether the token was refused. */
function named(error, credentials) {
  if (error instanceof OplogError) error.message = refusalOf(credentials, error.message, error.status);
  return error;
}

/** Return an answer with its body. Throws OplogError for a refusal, and Disconnected if another try may help. */
function judged(response, body, url) {
  const { status, headers } = response;
  if (status === 200) return { body, headers, status };
  if (status >= 300 && status < 400) throw new OplogError(redirected(response, url, "a request is sent nowhere else"), status);
  const message = `${detailOf(response, body)} (HTTP ${status})`;
  if (!passes(status)) throw topicRefusal(message, status);
  throw Object.assign(new Disconnected(message), { status, retryAfter: retryAfter(headers.get("retry-after")) });
}

/** Return the position as it is sent. Throws TypeError. */
function startOf(startFrom) {
  const start = startFrom instanceof Date ? startFrom.getTime() : startFrom;
  if (start === null || typeof start === "string" || (Number.isSafeInteger(start) && start >= 0)) return start;
  throw new TypeError("startFrom must be a message id, a Date, or whole ms since 1970");
}

/** Wait. Rejects when the signal aborts. */
function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const done = (settle) => () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
      settle();
    };
    const abort = done(() => reject(signal.reason));
    const timer = after(seconds, done(resolve));
    signal?.addEventListener("abort", abort);
  });
}
