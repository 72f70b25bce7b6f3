// A consumer that follows, and the lines that it logs.
import assert from "node:assert/strict";

import { Consumer } from "../node.js";
import { FAST } from "./scripted.js";

export function collector() {
  const lines = [];
  return { lines, log: (line) => lines.push(line) };
}

export function follow(url, options) {
  return new Consumer(url, { backoff: FAST, timeout: 20, ...options });
}

/** The events before the error, and the error. */
export async function untilError(consumer) {
  const events = [];
  try {
    for await (const event of consumer) events.push(event);
  } catch (error) {
    return { events, error };
  }
  return assert.fail("the iteration ended without an error");
}
