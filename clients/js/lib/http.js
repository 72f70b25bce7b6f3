import { OplogError } from "./errors.js";

const MAX_ANSWER = 1024 * 1024;
const MAX_DETAIL = 500;
const NO_ADDRESS = "the address of an agent begins with http:// or https:// and names a host, such as http://localhost:8042";

/**
 * Return the address of `path` below an agent's base address, and the Authorization header for it. A user name and a password
 * in the address move into the header. Throws TypeError; its message shows nothing of the address, which may hold a password.
 */
export function agentAddress(given, password, path = "/ops") {
  let url;
  try {
    url = new URL(given, globalThis.location?.href);
  } catch {
    throw new TypeError(NO_ADDRESS);
  }
  if (!isHttp(url)) throw new TypeError(NO_ADDRESS);
  const user = decoded(url.username);
  const secret = password || decoded(url.password);
  url.username = url.password = url.hash = "";
  url.pathname = `${url.pathname.replace(/\/+$/, "").replace(/\/ops$/, "")}${path}`;
  return { url, authorization: user || secret ? `Basic ${toBase64(`${user}:${secret}`)}` : undefined };
}

/** Return the target of a redirect, without a user name and a password. Throws OplogError. */
export function redirectTarget(response, url) {
  try {
    const target = new URL(response.headers.get("location") ?? "missing:", url);
    if (!isHttp(target)) throw new TypeError(NO_ADDRESS);
    target.username = target.password = "";
    return target;
  } catch {
    throw new OplogError(`${shown(url)} redirects (HTTP ${response.status}) and names no HTTP address`, response.status);
  }
}

/** Return the sentence for a redirect that is not followed, with the `reason`. */
export function redirected(response, url, reason) {
  try {
    return `${shown(url)} redirects to ${shown(redirectTarget(response, url))}: give that address, ${reason}`;
  } catch (error) {
    return error.message;
  }
}

function isHttp(url) {
  return url.protocol === "http:" || url.protocol === "https:";
}

/** Return an address without its query, which may hold a token. */
export function shown(url) {
  return `${url.origin}${url.pathname}`;
}

/** Return whether a request with this answer is tried again: 408, 425, 429 and 5xx. */
export function passes(status) {
  return status >= 500 || status === 408 || status === 425 || status === 429;
}

/** Read the answer's body. Return "" if it has more than `most` bytes. */
export async function bodyOf(response, most = MAX_ANSWER) {
  if (!response.body) return "";
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    size += value.length;
    if (size > most) {
      reader.cancel().catch(() => {});
      return "";
    }
    text += decoder.decode(value, { stream: true });
  }
}

/** Return the sentence in an answer's problem document, or else the status. */
export function detailOf(response, body) {
  try {
    const { detail } = JSON.parse(body);
    if (typeof detail === "string" && detail) return printable(detail);
  } catch {
    // no problem document
  }
  return printable(response.statusText) || "the agent answered without words";
}

/** Return a text of the agent as one line that is not too long. */
export function printable(text) {
  return text.slice(0, MAX_DETAIL).replace(/\p{Cc}/gu, " ");
}

/** Return the reason why `fetch` failed. */
export function reasonOf(error) {
  const cause = error.cause ?? error;
  return cause.message || cause.code || error.message;
}

/** Base64 of a string's UTF-8 bytes. */
export function toBase64(text) {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a % that escapes nothing
  }
}
