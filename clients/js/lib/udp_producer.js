import { createSocket } from "node:dgram";
import { lookup } from "node:dns/promises";
import { isIPv6 } from "node:net";

import { OplogError } from "./errors.js";
import { encode } from "./operation.js";

const MAX_DATAGRAM = 65507;
const PORT = 8042;

/** Sends operations as datagrams. Nothing confirms that they arrive. `await UdpProducer.open("udp://localhost:8042")`. */
export class UdpProducer {
  #socket;
  #address;
  #port;
  #underWay = 0;
  #waiting = [];
  #closing = null;
  counters = { sent: 0, delivered: 0, dropped: 0 };

  /** Look up the host, once: IPv4 if it has one. Rejects with TypeError or OplogError. */
  static async open(url) {
    const { host, port } = target(url);
    const unknown = (error) => {
      throw new OplogError(`cannot find the host ${host}: ${error.message}`);
    };
    const [{ address }] = await lookup(host, { all: true, order: "ipv4first" }).catch(unknown);
    return new UdpProducer(address, port);
  }

  constructor(address, port) {
    this.#address = address;
    this.#port = port;
    // Not connected: a connected socket fails at a send if the previous datagram found no agent.
    this.#socket = createSocket(isIPv6(address) ? "udp6" : "udp4");
    this.#socket.on("error", () => {});
    this.#socket.unref();
  }

  /** Throws TypeError for an operation that an agent would refuse, as far as that can be checked here, and OplogError after `close`. */
  send(operation) {
    if (this.#closing) throw new OplogError("the producer is closed");
    const raw = encode(operation);
    if (raw.length > MAX_DATAGRAM) throw new TypeError("operation: does not fit into a datagram; send it over HTTP");
    this.counters.sent += 1;
    this.#underWay += 1;
    this.#socket.send(raw, this.#port, this.#address, (error) => {
      this.counters[error ? "dropped" : "delivered"] += 1;
      this.#underWay -= 1;
      if (this.#underWay === 0) this.#waiting.splice(0).forEach((resolve) => resolve());
    });
  }

  /** Resolves when the system has taken every datagram. */
  async flush() {
    if (this.#underWay > 0) await new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** Refuse further operations, `flush`, then end. */
  close() {
    this.#closing ??= this.flush().then(() => new Promise((resolve) => this.#socket.close(resolve)));
    return this.#closing;
  }
}

function target(url) {
  try {
    const { protocol, hostname, port } = new URL(url);
    const host = decodeURIComponent(hostname.replace(/^\[|\]$/g, ""));
    if (protocol === "udp:" && host && port !== "0") return { host, port: Number(port) || PORT };
  } catch {
    // not a URL
  }
  throw new TypeError("the address of an agent's UDP port is udp:// and a host, such as udp://localhost:8042");
}
