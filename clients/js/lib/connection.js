import { noToken, refusalOf } from "./credentials.js";
import { Disconnected, OplogError } from "./errors.js";
import { bodyOf, detailOf, passes, printable, reasonOf, redirectTarget, shown } from "./http.js";
import { checkShard } from "./shard.js";
import { BlockParser } from "./sse.js";
import { retryAfter, unlessAborted, within } from "./time.js";

const EVENT_STREAM = "text/event-stream";
const REDIRECTS = new Set([301, 302, 303, 307, 308]);
const MAX_REDIRECTS = 20;

/**
 * One connection to an event stream, with blocks of at most `maxBlock` bytes. `request`: `fetch`, `url`, `credentials`,
 * `lastEventId`, `shard` or undefined, and `refusal(message, status)`, which makes the error of a refusal. Times are in seconds. Methods reject with
 * Disconnected, or with OplogError if trying again does not help.
 */
export class Connection {
  #aborter = new AbortController();
  #reader = null;
  #since = 0;
  #retryAfter = 0;

  constructor(maxBlock) {
    this.parser = new BlockParser(maxBlock);
  }

  /** Resolves when the agent has begun to send the stream. `timeout` includes redirects and refusals. */
  async open(request, timeout) {
    try {
      await within(timeout, this.#open(request), "the agent did not answer in time");
    } catch (error) {
      const known = translated(error);
      // The head of a refusal has it; the body may never end.
      if (known instanceof Disconnected) known.retryAfter = this.#retryAfter;
      throw known;
    }
  }

  /** Wait for the next bytes. Rejects after a silence of `timeout`. */
  async read(timeout) {
    try {
      const { done, value } = await within(timeout, this.#reader.read(), "the agent was silent for too long");
      if (!done) return value;
    } catch (error) {
      throw translated(error);
    }
    throw new Disconnected("the agent ended the stream");
  }

  /** Return the seconds since the stream began; 0 if it has not begun. */
  get age() {
    return this.#since && (performance.now() - this.#since) / 1000;
  }

  close() {
    this.#aborter.abort();
  }

  async #open(request) {
    const { credentials, shard } = request;
    const response = await this.#follow(request, await this.#authorization(credentials));
    const { status } = response;
    if (status !== 200) {
      const mayPass = passes(status) || (status === 409 && shard !== undefined); // 409: too many numbers of shards at a time
      if (mayPass) this.#retryAfter = retryAfter(response.headers.get("retry-after"));
      const message = `${detailOf(response, await refusal(response))} (HTTP ${status})`;
      if (mayPass) throw new Disconnected(message);
      const sentence = refusalOf(credentials, message, status);
      if (status === 401 && credentials.isFunction) throw new Disconnected(sentence);
      throw request.refusal(sentence, status);
    }
    const type = response.headers.get("content-type") ?? "";
    if (type.split(";")[0].trim().toLowerCase() !== EVENT_STREAM) {
      throw new OplogError(`${shown(request.url)} sends ${printable(type) || "no content type"}: is it an agent?`);
    }
    checkShard(response, shard);
    if (!response.body) throw new Disconnected("the agent ended the stream");
    this.#reader = response.body.getReader();
    this.#since = performance.now();
  }

  /** Return the header for this connection, with a fresh token. `close` ends the wait. */
  async #authorization(credentials) {
    try {
      return await unlessAborted(credentials.fresh(), this.#aborter.signal);
    } catch (error) {
      throw new Disconnected(noToken(error));
    }
  }

  /** Follow redirects to an answer. The credentials go to the agent's own origin only. */
  async #follow({ fetch, url, lastEventId }, authorization) {
    const headers = { Accept: EVENT_STREAM, "Cache-Control": "no-cache" };
    if (lastEventId) headers["Last-Event-ID"] = lastEventId;
    let target = url;
    for (let followed = 0; followed <= MAX_REDIRECTS; followed++) {
      const isOwn = authorization && target.origin === url.origin;
      const options = {
        headers: isOwn ? { ...headers, Authorization: authorization } : headers,
        cache: "no-store",
        signal: this.#aborter.signal,
      };
      const response = await fetch(target, { ...options, redirect: "manual" });
      // A browser hides the target of a redirect, and follows it by the same rules.
      if (response.type === "opaqueredirect") return fetch(target, { ...options, redirect: "follow" });
      if (!REDIRECTS.has(response.status)) return response;
      response.body?.cancel().catch(() => {});
      target = redirectTarget(response, target);
    }
    throw new OplogError(`${shown(url)} redirects more than ${MAX_REDIRECTS} times`);
  }
}

/** Read the body of a refusal; "" if the connection breaks. */
async function refusal(response) {
  try {
    return await bodyOf(response);
  } catch {
    return "";
  }
}

function translated(error) {
  if (error instanceof OplogError || error instanceof Disconnected) return error;
  const reason = reasonOf(error);
  if (reason === "bad port") return new OplogError("fetch uses no port that is kept for other protocols: give the agent another");
  return new Disconnected(reason);
}
