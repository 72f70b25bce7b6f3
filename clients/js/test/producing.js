// Operations to send, and the answers to them.
import { HttpProducer } from "../node.js";
import { FAST, answer, stored } from "./scripted.js";

export const insert = (id) => ({ event: "insert", type: "video", id: String(id) });
export const ids = (body) => body.split("\n").map((line) => JSON.parse(line).id);
export const numbers = (count, first = 0) => Array.from({ length: count }, (_, index) => String(first + index));

export function produce(url, options) {
  return new HttpProducer(url, { backoff: FAST, timeout: 20, log: () => {}, ...options });
}

export async function sendAll(producer, wanted) {
  for (const id of wanted) await producer.send(insert(id));
}

/** The ids of the operations that the answers count as stored. */
export function storing(accepted, count = Infinity) {
  return (socket, request) => {
    const batch = ids(request.body);
    if (batch.length > count) return socket.end(answer("413 Too Large", '{"detail":"too large"}'));
    accepted.push(...batch);
    stored(socket, request);
  };
}

export const hangUp = (socket) => socket.destroy();
