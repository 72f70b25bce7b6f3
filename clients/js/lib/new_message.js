import { isHeader } from "./messages.js";

const MEMBERS = new Set(["payload", "key", "headers", "ttl"]);
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * Return a message as it is sent: a string, or an object with payload, key, headers, ttl and encoding. `field` names it in
 * errors. Throws TypeError for a message that an agent would refuse, as far as that can be checked here.
 */
export function encodeMessage(message, field) {
  if (typeof message === "string") return checkedText(message, field);
  if (message instanceof Uint8Array) {
    const { payload, encoding } = encodePayload(message);
    return encoding ? { payload, encoding } : payload;
  }
  if (typeof message !== "object" || message === null || Array.isArray(message)) {
    throw new TypeError(`${field}: must be a string, a Uint8Array, or an object with a payload`);
  }
  const unknown = Object.keys(message).find((name) => !MEMBERS.has(name));
  if (unknown !== undefined) throw new TypeError(`${field}.${unknown}: is not a member of a message`);
  const { payload, key, headers, ttl } = message;
  const given = encodePayload(payload, `${field}.payload`);
  if (isGiven(key)) given.key = checkedText(key, `${field}.key`);
  if (isGiven(headers)) given.headers = checkedHeaders(headers, `${field}.headers`);
  if (isGiven(ttl)) {
    if (!Number.isSafeInteger(ttl) || ttl < 1) throw new TypeError(`${field}.ttl: must be a whole number of seconds, 1 or more`);
    given.ttl = ttl;
  }
  return given;
}

function isGiven(value) {
  return value !== undefined && value !== null;
}

/** Return payload and, if it is not UTF-8, encoding. */
function encodePayload(payload, field) {
  if (payload === null) return { payload };
  if (!(payload instanceof Uint8Array)) {
    return { payload: checkedText(payload, field, "must be a string, a Uint8Array or null") };
  }
  try {
    return { payload: utf8.decode(payload) };
  } catch {
    return { payload: Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength).toString("base64"), encoding: "base64" };
  }
}

function checkedHeaders(headers, field) {
  if (!Array.isArray(headers)) throw new TypeError(`${field}: must be a list of [name, value]`);
  headers.forEach((pair, index) => {
    if (!isHeader(pair)) throw new TypeError(`${field}[${index}]: must be [name, value], both strings`);
    pair.forEach((text) => checkedText(text, `${field}[${index}]`));
  });
  return headers;
}

function checkedText(text, field, wanted = "must be a string") {
  if (typeof text !== "string") throw new TypeError(`${field}: ${wanted}`);
  if (!text.isWellFormed()) throw new TypeError(`${field}: has an unpaired surrogate`);
  return text;
}
