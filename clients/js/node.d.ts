import { OplogError, type Isolation, type Message, type State, type Token, type TopicConsumer, type TopicConsumerOptions } from "./oplog.js";

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
  /**
   * Instead of a password. A function is called before the first request, and again if the agent refuses its token. If it fails, the
   * operations wait and are tried again.
   */
  token?: Token;
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

/** A message to publish. A Uint8Array that is UTF-8 comes back as a string. */
export type NewMessage = string | Uint8Array | {
  payload: string | Uint8Array | null;
  key?: string | null;
  headers?: readonly (readonly [name: string, value: string])[] | null;
  /** Seconds that the message stays; never longer than the topic's own time. */
  ttl?: number | null;
};

export interface TopicOptions {
  /** For `poll` and `stream`, and for `publish` if there is no other. Overrides the password in the address. */
  password?: string;
  /** For `publish`. Without any other password it is for `poll` and `stream`, too. */
  ingestPassword?: string;
  /**
   * Instead of passwords. A function is called before the first request, again if the agent refuses its token, and before each
   * connection of a stream. A `publish` or a `poll` rejects with its error.
   */
  token?: Token;
  /** Seconds that a `publish` or a `poll` may take, with all its attempts; 30. */
  timeout?: number;
  /** Seconds between attempts, the first and the longest; [1, 30]. */
  backoff?: readonly [number, number];
}

export interface PollOptions {
  /** A message id, or a time as a Date or in ms since 1970. Not given: the oldest message. */
  startFrom?: string | number | Date | null;
  /** Whether the message at `startFrom` comes, too; true. */
  inclusive?: boolean;
  /** At most this number of messages; the agent's own limit is 1,000 unless it has another. */
  limit?: number | null;
  /** "read_committed". */
  isolation?: Isolation;
  /** Only messages of one shard, such as "3/8". The poll rejects with OplogError if the agent does not confirm the shard. */
  shard?: string | null;
  signal?: AbortSignal;
}

/**
 * Publishes to a topic, polls it and follows it. The topic must exist.
 *
 * Requests are repeated when the agent is unreachable or busy, not before its `Retry-After`. They reject with UnavailableError when the
 * time is over, and immediately with TopicNotFoundError, with NotAllowedError, with OplogError for any other refusal, and with the
 * reason of a signal that aborts. Bad arguments reject with TypeError.
 */
export class Topic {
  /**
   * `topic`: its namespace and name, such as "shop/orders"; without a namespace it is in `default`. Credentials in the address are sent
   * in a header, and shown nowhere.
   */
  constructor(url: string | URL, topic: string, options?: TopicOptions);
  /**
   * Publishes one message or a list of them. Resolves when all are durable. At least once: after a lost answer
   * they are sent again. With the topic system/oplog a message may be an operation.
   */
  publish(
    messages: NewMessage | NewOperation | readonly (NewMessage | NewOperation)[], options?: { signal?: AbortSignal },
  ): Promise<void>;
  /**
   * Resolves at once, also without messages. `gap`: messages that followed the position are gone. `position`: how far an answer with
   * a part of the messages reaches, such as with a shard: start the next poll there, with `inclusive` false. null: the agent told none.
   */
  poll(options?: PollOptions): Promise<{ messages: Message[]; gap: boolean; position: string | null }>;
  /** Follows the topic with the address and the password or token given here. */
  stream(options?: TopicConsumerOptions): TopicConsumer;
}

/** The agent was unreachable or busy for all of the time that a request may take. Published messages may be stored nevertheless. */
export class UnavailableError extends OplogError {}
