import { OplogError } from "./errors.js";

const POSITION = /^(?:[0-9]{1,13}|[0-9a-f]{40})$/;
const ID = /^(?:[0-9a-f]{40}|[0-9a-f]{24})$/; // those of `system/oplog` have 24 digits

/** Return whether the text is a position in a topic: a message id, or ms since 1970. */
export function isTopicPosition(text) {
  return typeof text === "string" && POSITION.test(text);
}

/** Read a block of a topic's stream, as `readBlock` in events.js does. Throws OplogError. */
export function readTopicBlock({ id, event, data }, lastEventId) {
  if (id !== null && !isTopicPosition(id)) {
    throw new OplogError(`the stream has the id ${JSON.stringify(id.slice(0, 100))}, which is no message id`);
  }
  const eventId = id ?? lastEventId;
  if (event === "reset") return { eventId, event: { id: eventId, event } };
  if (event === "message" || (event === "" && data !== null)) {
    return { eventId, event: { id: eventId, event: "message", ...readContent(eventId, () => JSON.parse(data ?? "")) } };
  }
  return event === "" ? { eventId } : { eventId, unknown: event };
}

/** Read the answer to a poll. Throws OplogError. */
export function readMessages(body) {
  const messages = parsed(body);
  if (!Array.isArray(messages) || !messages.every((message) => typeof message?.id === "string" && ID.test(message.id))) {
    throw new OplogError("the answer is no list of messages: is it an agent?");
  }
  return messages.map((message) => ({ id: message.id, ...readContent(message.id, () => message) }));
}

function parsed(body) {
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
}

/** Return payload, key and headers of a message that `read` returns. */
function readContent(id, read) {
  try {
    const { payload, key = null, headers = null, encoding = null } = read();
    if (payload !== null && typeof payload !== "string") throw new Error("payload must be a string or null");
    if (key !== null && typeof key !== "string") throw new Error("key must be a string");
    if (headers !== null && !(Array.isArray(headers) && headers.every(isHeader))) throw new Error("headers must be a list of [name, value]");
    if (encoding !== null && encoding !== "base64") throw new Error("the encoding is unknown");
    return { payload: encoding && payload !== null ? fromBase64(payload) : payload, key, headers: headers ?? [] };
  } catch (error) {
    throw new OplogError(`the message ${id} cannot be read: ${error.message}`);
  }
}

/** Return whether it is a header: name and value. */
export function isHeader(pair) {
  return Array.isArray(pair) && pair.length === 2 && pair.every((text) => typeof text === "string");
}

function fromBase64(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}
