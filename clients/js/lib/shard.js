import { OplogError } from "./errors.js";
import { printable } from "./http.js";

/** Throws OplogError if an answer does not confirm the `shard` of its request. An older agent ignores the parameter. */
export function checkShard({ headers, status }, shard) {
  const confirmed = headers.get("oplog-shard")?.trim();
  if (shard === undefined || confirmed === shard) return;
  if (confirmed) throw new OplogError(`the agent sent the shard ${printable(confirmed)} instead of ${shard}`, status);
  throw new OplogError("the agent does not know shards: it is older than this client and sent everything. Upgrade the agent", status);
}
