import { agentAccess } from "./credentials.js";

const NAME = /^[A-Za-z0-9._-]{1,249}$/;

export const OPLOG = "system/oplog";

/**
 * Return the address of a topic of an agent, and the credentials, as `agentAccess` does. `name` is `namespace/topic`, or
 * `topic` in the namespace `default`. Throws TypeError.
 */
export function topicAddress(url, name, options) {
  const parts = typeof name === "string" ? name.split("/") : [];
  if (parts.length === 1) parts.unshift("default");
  if (parts.length !== 2) throw new TypeError("topic: must be namespace/topic, such as shop/orders");
  ["namespace", "topic"].forEach((part, index) => {
    const text = parts[index];
    if (NAME.test(text) && text !== "." && text !== "..") return;
    throw new TypeError(`${part}: must be 1 to 249 letters, digits, '.', '_' or '-', and not '.' or '..'`);
  });
  return agentAccess(url, options, `/v1/namespaces/${parts[0]}/topics/${parts[1]}`);
}
