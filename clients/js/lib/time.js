import { Disconnected } from "./errors.js";

const LONGEST_TIMER = 2 ** 31 - 1; // a longer one would fire at once
const GRACE = 0.01;
const LONGEST_RETRY_AFTER = 3600;
const DATE = /^(?:[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4}|[A-Z][a-z]{5,8}, \d\d-[A-Z][a-z]{2}-\d\d) \d\d:\d\d:\d\d GMT$/;
const OLD_DATE = /^[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}$/; // asctime, in UTC

/** `setTimeout` in seconds, never early; at most 24 days, also for Infinity. */
export function after(seconds, action) {
  return setTimeout(action, Math.min(Math.ceil(seconds * 1000) + 1, LONGEST_TIMER));
}

/**
 * Wait for `promise`. Rejects with Disconnected after `seconds`. If the program was busy for so long, it reads the bytes that came
 * meanwhile before the second timer ends.
 */
export async function within(seconds, promise, message) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = after(seconds, () => (timer = after(GRACE, () => reject(new Disconnected(message)))));
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
    promise.catch(() => {}); // it may fail later; the error is then ignored
  }
}

/** Wait for `promise`. Rejects with the signal's reason when it aborts. */
export function unlessAborted(promise, signal) {
  if (!signal) return promise;
  let abort;
  const aborted = new Promise((_, reject) => {
    abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort);
  });
  return Promise.race([promise, aborted]).finally(() => signal.removeEventListener("abort", abort));
}

/** Delays from `first` to `last` seconds, doubling, with jitter. `atLeast` counts up to an hour. */
export function backoff(first, last) {
  let next = first;
  return {
    next(atLeast = 0) {
      const own = Math.min(last, next * (1 + Math.random()));
      next = Math.min(Math.max(last / 2, first), next * 2);
      return Math.max(own, Math.min(atLeast, LONGEST_RETRY_AFTER) * (1 + 0.3 * Math.random()));
    },
    reset() {
      next = first;
    },
  };
}

/** Return the seconds in a Retry-After header, a number or a date. 0 if it is missing, past or unreadable. */
export function retryAfter(header) {
  const text = (header ?? "").trim();
  if (/^\d+$/.test(text)) return Number(text);
  if (!DATE.test(text) && !OLD_DATE.test(text)) return 0;
  const time = Date.parse(OLD_DATE.test(text) ? `${text} GMT` : text);
  return Math.max(0, time - Date.now()) / 1000 || 0;
}
