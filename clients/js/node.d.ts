import type { State } from "./oplog.js";

export * from "./oplog.js";

/** An operation to send. `timestamp`: a Date, or RFC 3339 text with a zone; not given: the time of arrival. */
export interface NewOperation {
  event: "insert" | "update" | "delete";
  type: string;
  id: string;
  parents?: readonly string[] | null;
  timestamp?: Date | string | null;
}

/**
 * Keeps the position in a file that holds only the id. A relative path is resolved at once.
 *
 * `load` rejects with OplogError for a file that is empty, does not hold a position, or cannot be read and written. Node cannot
 * lock a file: if two processes use one file, `save` of the second rejects with OplogError.
 */
export function fileState(path: string): State;

/** Return the operation as a line of JSON in bytes. Throws TypeError for an operation that an agent would refuse, as far as that can be checked here. */
export function encode(operation: NewOperation): Uint8Array;

/** Sends operations as datagrams. Nothing confirms that they arrive. */
export class UdpProducer {
  /**
   * Looks up the host, once. For example `await UdpProducer.open("udp://localhost:8042")`. Rejects with TypeError for a bad
   * address and with OplogError for an unknown host.
   */
  static open(url: string): Promise<UdpProducer>;
  constructor(address: string, port: number);
  readonly counters: { sent: number; delivered: number; dropped: number };
  /** Throws TypeError for an operation that an agent would refuse, and OplogError after `close`. */
  send(operation: NewOperation): void;
  /** Resolves when the system has taken every datagram. */
  flush(): Promise<void>;
  /** Refuses further operations, then flushes. */
  close(): Promise<void>;
}

export interface HttpProducerOptions {
  /** Overrides the password in the address. */
  password?: string;
  /** Seconds that a request may take, with its answer; 30. */
  timeout?: number;
  /** Operations in a request; 1,000. Fewer after an agent refuses a request as too large. */
  batchSize?: number;
  /** Operations that the buffer holds; 10,000. */
  maxBuffered?: number;
  /** The same bound in bytes; 64 MiB. */
  maxBufferedBytes?: number;
  /** What `send` does when the buffer is full; "block". */
  overflow?: "block" | "raise" | "drop_new" | "drop_old";
  /** Seconds between attempts, the first and the longest; [1, 30]. */
  backoff?: readonly [number, number];
  /** Receives a sentence when operations wait or the agent rejects them; console.warn. */
  log?: (message: string) => void;
}

/** Delivers at least once, in order. An option that is undefined or null counts as not given; a bad one throws TypeError. */
export class HttpProducer {
  /** A user name and a password in the address are sent in a header, and shown nowhere. */
  constructor(url: string | URL, options?: HttpProducerOptions);
  readonly counters: {
    sent: number; delivered: number; rejected: number; dropped: number; retried: number; buffered: number;
  };
  /**
   * Resolves when the operation is in the buffer. Rejects with TypeError for an operation that an agent would refuse, and with
   * OplogError when there is no room and the policy is "raise", or when the producer is closed, also while it waits for room.
   */
  send(operation: NewOperation): Promise<void>;
  /**
   * Resolves when all that was sent before is durable, or rejected by the agent. Rejects after `seconds` (30; Infinity is
   * possible), or at once if the agent refuses for good.
   */
  flush(seconds?: number): Promise<void>;
  /** Refuses further operations, then flushes. Rejects if operations are left. A later call resolves. */
  close(seconds?: number): Promise<void>;
}
