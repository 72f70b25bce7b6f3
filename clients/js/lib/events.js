import { OplogError } from "./errors.js";

const EVENT_ID = /^(?:[0-9]{1,13}|[0-9a-f]{24})$/;
const OPERATIONS = new Set(["insert", "update", "delete"]);
const RFC3339 = /^\d{4}-\d\d-\d\d[Tt ](?:[01]\d|2[0-3]):\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:[0-5]\d)$/;

export function isEventId(text) {
  return typeof text === "string" && EVENT_ID.test(text);
}

/** Return whether the text is an RFC 3339 time with a zone. */
export function isTime(text) {
  return typeof text === "string" && RFC3339.test(text);
}

/**
 * Return `{ eventId, event }`, without `event` for a block that only moves the position, with the name of an event that this
 * client does not know in `unknown`. A block without an id has `lastEventId`. Throws OplogError.
 */
export function readBlock({ id, event, data }, lastEventId) {
  if (id !== null && !isEventId(id)) {
    throw new OplogError(`the stream has the id ${JSON.stringify(id.slice(0, 100))}, which is no event id`);
  }
  const eventId = id ?? lastEventId;
  if (event === "reset" || event === "live") return { eventId, event: { eventId, event } };
  if (OPERATIONS.has(event)) return { eventId, event: readOperation(eventId, event, data ?? "") };
  const isUnknown = event !== "" || data !== null;
  return isUnknown ? { eventId, unknown: event || "message" } : { eventId };
}

function readOperation(eventId, event, data) {
  try {
    const { type, id, parents, timestamp, ref } = JSON.parse(data);
    if (typeof type !== "string" || typeof id !== "string") throw new Error("type and id must be strings");
    const operation = { eventId, event, type, id, parents: readParents(parents), timestamp: readTime(timestamp) };
    return typeof ref === "string" ? { ...operation, ref } : operation;
  } catch (error) {
    throw new OplogError(`the operation ${eventId} cannot be read: ${error.message}`);
  }
}

function readParents(parents) {
  if (parents === undefined || parents === null) return [];
  if (Array.isArray(parents) && parents.every((parent) => typeof parent === "string")) return parents;
  throw new Error("parents must be a list of strings");
}

function readTime(timestamp) {
  const time = new Date(isTime(timestamp) ? timestamp : NaN);
  if (Number.isNaN(time.getTime())) throw new Error("timestamp must be a time as RFC 3339 writes it");
  return time;
}
