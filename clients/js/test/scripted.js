// A server that answers each request as a test says, with raw bytes.
import { once } from "node:events";
import { createServer } from "node:net";

/**
 * Calls `answers[n]` with the socket for the request n, the last one for all further; a string is sent and the connection ended.
 * `requests` are those that came: { line, headers, body }.
 */
export async function scripted(t, ...answers) {
  const requests = [];
  const sockets = new Set();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    let raw = Buffer.alloc(0);
    socket.on("data", (chunk) => {
      raw = Buffer.concat([raw, chunk]);
      const request = parse(raw);
      if (!request) return;
      raw = Buffer.alloc(0);
      requests.push(request);
      const answer = answers[Math.min(requests.length, answers.length) - 1];
      if (typeof answer === "function") answer(socket, request);
      else socket.end(answer);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.close();
    sockets.forEach((socket) => socket.destroy());
  });
  const { port } = server.address();
  return { port, host: `127.0.0.1:${port}`, url: `http://127.0.0.1:${port}`, requests };
}

function parse(raw) {
  const end = raw.indexOf("\r\n\r\n");
  if (end < 0) return null;
  const [line, ...lines] = raw.toString("latin1", 0, end).split("\r\n");
  const headers = Object.fromEntries(lines.map((each) => [each.split(":")[0].toLowerCase(), each.slice(each.indexOf(":") + 1).trim()]));
  const body = raw.subarray(end + 4);
  return body.length < Number(headers["content-length"] ?? 0) ? null : { line, headers, body: body.toString() };
}

/** An answer with a body of known length. */
export function answer(status, body = "", ...headers) {
  const lines = [`HTTP/1.1 ${status}`, ...headers, `Content-Length: ${Buffer.byteLength(body)}`, "Connection: close"];
  return `${lines.join("\r\n")}\r\n\r\n${body}`;
}

export const STREAM = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";

/** Blocks of a stream, which then stays open. */
export function stream(...blocks) {
  return (socket) => {
    socket.write(STREAM);
    for (const block of blocks) socket.write(block);
  };
}

export const LIVE = "id: 5\nevent: live\ndata:\n\n";

/** One operation of a stream. */
export function operation(number, fields = {}) {
  const data = { timestamp: "2014-11-06T11:04:39.041Z", parents: [], type: "video", id: `v${number}`, ...fields };
  return `id: ${number}\nevent: insert\ndata: ${JSON.stringify(data)}\n\n`;
}

/** A batch that is stored. */
export function stored(socket, { body }) {
  socket.end(answer("200 OK", `{"ingested":${body.split("\n").length}}`));
}

export const FAST = [0.005, 0.01];

/** The first `count` events. */
export async function take(consumer, count) {
  const events = [];
  for await (const event of consumer) {
    consumer.ack(event);
    if (events.push(event) === count) break;
  }
  return events;
}
