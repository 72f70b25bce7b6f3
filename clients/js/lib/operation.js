import { isTime } from "./events.js";

const MAX_OPERATION = 64 * 1024;

/** Return the operation as a line of JSON in bytes. Throws TypeError for an operation that an agent would refuse, as far as that can be checked here. */
export function encode(operation) {
  const { event, type, id, parents, timestamp } = operation ?? {};
  if (typeof event !== "string" || !/^(insert|update|delete)$/i.test(event)) {
    throw new TypeError("event: must be insert, update or delete");
  }
  checkText("type", type, 255);
  if (/[/,]/.test(type)) throw new TypeError("type: must not contain '/' or ','");
  checkText("id", id, 1024);
  const given = { event, type, id };
  if (isGiven(parents)) {
    if (!Array.isArray(parents)) throw new TypeError("parents: must be a list of strings");
    parents.forEach((parent) => checkText("parents", parent, MAX_OPERATION));
    if (parents.length > 0) given.parents = parents;
  }
  if (isGiven(timestamp)) given.timestamp = time(timestamp);
  const raw = Buffer.from(JSON.stringify(given));
  if (raw.length > MAX_OPERATION) throw new TypeError(`operation: has more than ${MAX_OPERATION} bytes`);
  return raw;
}

function isGiven(value) {
  return value !== undefined && value !== null;
}

function time(timestamp) {
  const isDate = timestamp instanceof Date;
  const text = isDate && !Number.isNaN(timestamp.getTime()) ? timestamp.toISOString() : timestamp;
  if (isTime(text)) return text;
  throw new TypeError(
    isDate
      ? "timestamp: must be a Date that holds a time, in the years 1 to 9999"
      : "timestamp: must be a Date, or a time with its zone such as 2014-11-06T11:04:39.041Z",
  );
}

function checkText(field, text, maxBytes) {
  if (typeof text !== "string" || text === "") throw new TypeError(`${field}: must be a string, and not empty`);
  if (text.includes("\0") || !text.isWellFormed()) throw new TypeError(`${field}: contains NUL or an unpaired surrogate`);
  if (Buffer.byteLength(text) > maxBytes) throw new TypeError(`${field}: is longer than ${maxBytes} bytes`);
}
