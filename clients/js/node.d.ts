import type { State } from "./oplog.js";

export * from "./oplog.js";

/** What a producer sends. `timestamp`: a Date or RFC 3339; not given: when it arrives. */
export interface NewOperation {
  event: "insert" | "update" | "delete";
  type: string;
  id: string;
  parents?: readonly string[];
  timestamp?: Date | string | null;
}

/** Keeps the position in a file that holds the id and nothing else. */
export function fileState(path: string): State;

/** One line of JSON as bytes. Throws TypeError for what an agent would refuse, as far as that is seen here. */
export function encode(operation: NewOperation): Uint8Array;

/** Sends operations as datagrams: fire and forget. */
export class UdpProducer {
  /** Looks the host up, once. For example `await UdpProducer.open("udp://localhost:8042")`. */
  static open(url: string): Promise<UdpProducer>;
  constructor(address: string, port: number);
  readonly counters: { sent: number; delivered: number; dropped: number };
  send(operation: NewOperation): void;
  flush(): Promise<void>;
  close(): Promise<void>;
}

export interface HttpProducerOptions {
  password?: string;
  /** Seconds that a request may take; 30. */
  timeout?: number;
  /** Operations in a request; 1,000. */
  batchSize?: number;
  /** Operations that the buffer holds; 10,000. */
  maxBuffered?: number;
  /** The same bound in bytes; 64 MiB. */
  maxBufferedBytes?: number;
  /** What `send` does when the buffer is full; "block". */
  overflow?: "block" | "raise" | "drop_new" | "drop_old";
  /** Seconds between attempts, the first and the longest; [1, 30]. */
  backoff?: readonly [number, number];
  log?: (message: string) => void;
}

/** Delivers at least once, in order. */
export class HttpProducer {
  constructor(url: string | URL, options?: HttpProducerOptions);
  readonly counters: {
    sent: number; delivered: number; rejected: number; dropped: number; retried: number; buffered: number;
  };
  send(operation: NewOperation): Promise<void>;
  /** Rejects after `seconds` (30), or at once when the agent refuses for a cause that does not pass by itself. */
  flush(seconds?: number): Promise<void>;
  close(seconds?: number): Promise<void>;
}
