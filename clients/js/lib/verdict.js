import { detailOf, passes, printable, redirected, shown } from "./http.js";
import { retryAfter } from "./time.js";

/**
 * Judge an agent's answer to a batch of `count` operations. Returns one of
 * - `{ delivered: true }`: all of it is durable.
 * - `{ bad, reason }`: nothing was stored; `bad` are the indices of the invalid operations, `reason` belongs to the first.
 * - `{ tooLarge: true, reason }`: send fewer operations at a time; a single one is rejected.
 * - `{ later: true, reason, seconds, lasting, status }`: send the same batch again, not before `seconds`; `lasting`: the cause is
 *   permanent; `status`: HTTP's of a refusal.
 */
export function judge(response, body, count, url) {
  const { status } = response;
  if (status >= 200 && status < 300) {
    return status === 200 && ingested(body) === count ? { delivered: true } : refused(`${shown(url)} is no agent (HTTP ${status})`);
  }
  if (status >= 300 && status < 400) return refused(redirected(response, url, "a batch is sent nowhere else"));
  const reason = `${detailOf(response, body)} (HTTP ${status})`;
  if (status === 413) return { tooLarge: true, reason };
  const errors = status === 400 ? badLines(body, count) : [];
  if (errors.length > 0) {
    const first = errors.reduce((one, other) => (other.line < one.line ? other : one));
    const words = first.field && first.reason ? printable(`${first.field}: ${first.reason}`) : reason;
    return { bad: errors.map(({ line }) => line - 1).sort((one, other) => one - other), reason: words };
  }
  if (passes(status)) return { later: true, reason, seconds: retryAfter(response.headers.get("retry-after")), lasting: false };
  return { ...refused(reason), status };
}

function refused(reason) {
  return { later: true, reason, seconds: 0, lasting: true };
}

function ingested(body) {
  try {
    return JSON.parse(body).ingested;
  } catch {
    return undefined;
  }
}

/** Return the entries of `errors`. Return none if one of them names a line outside the batch. */
function badLines(body, count) {
  try {
    const { errors } = JSON.parse(body);
    return errors.every(({ line }) => Number.isInteger(line) && line >= 1 && line <= count) ? errors : [];
  } catch {
    return [];
  }
}
