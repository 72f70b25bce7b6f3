import { agentAccess } from "./credentials.js";
import { OplogError } from "./errors.js";
import { EventStream, addParameters, streamOptions } from "./event_stream.js";
import { isEventId, readBlock } from "./events.js";

const OPERATIONS = {
  isPosition: isEventId,
  position: "an event id",
  readBlock,
  refusal: (message, status) => new OplogError(message, status),
  maxBlock: 1 << 20,
};

/** Follows an agent. See oplog.d.ts. */
export class Consumer extends EventStream {
  constructor(url, options = {}) {
    const checked = streamOptions(options, { types: [], parents: [] });
    const { url: base, credentials } = agentAccess(url, checked, "/ops");
    super({ url: withFilters(base, checked), credentials, options: checked, kind: OPERATIONS });
  }
}

/** Add the filters to the address. An agent stores type names in lower case. */
function withFilters(url, { types, parents, name: consumer, shard }) {
  const filters = { types: lowerCase(names("types", types)), parents: names("parents", parents) };
  addParameters(url, { name: consumer, shard });
  for (const [name, values] of Object.entries(filters)) {
    // An agent splits a single parameter at its commas, and takes repeated ones as they are.
    if (values.some((value) => value.includes(","))) [...values, values[0]].forEach((v) => url.searchParams.append(name, v));
    else if (values.length > 0) url.searchParams.set(name, values.join(","));
  }
  return url;
}

function names(option, values) {
  if (Array.isArray(values) && values.every((value) => typeof value === "string" && value !== "")) return values;
  throw new TypeError(`${option} must be a list of names`);
}

function lowerCase(values) {
  return values.map((value) => value.toLowerCase());
}
