/** An object was inserted, updated or deleted. */
export interface Operation {
  /** A consumer that starts here gets the events after this one. */
  readonly eventId: string;
  readonly event: "insert" | "update" | "delete";
  readonly type: string;
  readonly id: string;
  readonly parents: readonly string[];
  /** When the object changed, as the producer says. */
  readonly timestamp: Date;
  /** The object's URL, if the agent sends one. */
  readonly ref?: string;
}

/** A copy of all objects follows, as inserts, until `live`: forget all objects known before. */
export interface Reset {
  readonly eventId: string;
  readonly event: "reset";
}

/** The copy, or the changes since the position, are complete; operations follow as they happen. */
export interface Live {
  readonly eventId: string;
  readonly event: "live";
}

export type Event = Operation | Reset | Live;

/** A token, or a function that gives a fresh one. */
export type Token = string | (() => string | Promise<string>);

/** Keeps a position, for one consumer at a time. */
export interface State {
  /** Returns null without a position. An error ends the iteration before the agent is asked. */
  load(): string | null | Promise<string | null>;
  /** An OplogError ends the iteration; after any other error the position is saved again later. */
  save(position: string): void | Promise<void>;
}

/** Options of everything that follows a stream. */
export interface StreamOptions {
  /**
   * Keeps the position; a position in it overrides `start`. Then every event must be acknowledged, `reset` and `live`
   * too: the saved position is that of the oldest unacknowledged event.
   */
  state?: State;
  /**
   * Name of this consumer in the agent's `/status` and `/metrics`: 1 to 100 ASCII letters, digits, `.`, `_` or `-`. Several
   * consumers may share it.
   */
  name?: string;
  /**
   * Only the entries of one shard: "3/8" is shard 3 of the shards 0 to 7; at most 256 shards. All entries of an object or a key are in
   * the same shard. `reset` and `live` come with every shard. Iterating throws OplogError if the agent does not confirm the shard.
   */
  shard?: string;
  /** Overrides the password in the address. */
  password?: string;
  /** Instead of a password. A function is called before each connection; if it fails or its token is refused, it is tried again. */
  token?: Token;
  /** Seconds that connecting may take, redirects and refusals included; 10. */
  timeout?: number;
  /** Seconds of silence after which a connection counts as dead; 40. */
  heartbeatTimeout?: number;
  /** Seconds between attempts, the first and the longest; [1, 30]. */
  backoff?: readonly [number, number];
  /** Seconds between two saves; 1. */
  saveInterval?: number;
  /** With a state: iteration waits while this number of events is unacknowledged; 10,000. */
  maxUnacked?: number;
  /** Ends the iteration when it aborts, as `stop` does. */
  signal?: AbortSignal;
  fetch?: typeof fetch;
  /** Receives a sentence when the connection fails or begins. */
  log?: (message: string) => void;
}

export interface ConsumerOptions extends StreamOptions {
  /** Only operations of these types, which count in lower case. Empty: all. */
  types?: readonly string[];
  /** Only operations with one of these parents. Empty: all. */
  parents?: readonly string[];
  /** "0" for a full copy of all objects, an event id, or a time. Not given: the next operation. */
  start?: string | Date;
}

/**
 * Follows an agent and reconnects by itself. No operation is lost; one may come twice in a copy or after a crash.
 *
 * Iterating throws OplogError if the agent refuses for good (a wrong password), the address is no agent, or the state cannot be used.
 * An option that is undefined or null counts as not given; a bad one throws TypeError.
 */
export class Consumer implements AsyncIterable<Event> {
  /** A user name and a password in the address are sent in a header, and shown nowhere. */
  constructor(url: string | URL, options?: ConsumerOptions);
  readonly start: string;
  /** The position from which a new consumer loses nothing; "" before the agent has sent the first one. */
  get position(): string;
  ack(event: Event): void;
  /** End the iteration. */
  stop(): void;
  /** Stop and save the position. Rejects if that fails. */
  close(): Promise<void>;
  [Symbol.asyncIterator](): AsyncGenerator<Event, void, undefined>;
}

/** The agent refuses for good, the address is no agent, or the state cannot be used. `status`: HTTP status, if any. */
export class OplogError extends Error {
  constructor(message: string, status?: number);
  readonly status?: number;
}

/** A message of a topic. */
export interface Message {
  /** 40 hexadecimal digits (24 in system/oplog). They sort in the order of delivery. */
  readonly id: string;
  /** Bytes for a payload that is not UTF-8. */
  readonly payload: string | Uint8Array | null;
  readonly key: string | null;
  readonly headers: readonly (readonly [name: string, value: string])[];
}

/** A message as it comes with a stream. */
export interface StreamedMessage extends Message {
  readonly event: "message";
}

/** Messages after the position are gone. All messages of the topic follow, from the oldest. */
export interface TopicReset {
  readonly id: string;
  readonly event: "reset";
}

export type TopicEvent = StreamedMessage | TopicReset;

/**
 * `read_uncommitted`: all messages, also those of transactions as soon as they are written. `read_committed`: the messages of
 * a transaction together, at its commit.
 */
export type Isolation = "read_committed" | "read_uncommitted";

export interface TopicConsumerOptions extends StreamOptions {
  /** "0" for the oldest message, the id of a message to start after, or a time. Not given: the next message. */
  start?: string | Date;
  /** "read_committed". */
  isolation?: Isolation;
}

/**
 * Follows a topic and reconnects by itself. Each message comes once, or a `reset` tells that messages are gone. A message may
 * come twice after a crash.
 *
 * Iterating throws TopicNotFoundError without such a topic or when it is deleted, NotAllowedError for a wrong password, and OplogError
 * as with a Consumer. An option that is undefined or null counts as not given; a bad one throws TypeError.
 */
export class TopicConsumer implements AsyncIterable<TopicEvent> {
  /**
   * `topic`: its namespace and name, such as "shop/orders"; without a namespace it is in `default`. Credentials in the address are sent
   * in a header, and shown nowhere.
   */
  constructor(url: string | URL, topic: string, options?: TopicConsumerOptions);
  readonly start: string;
  /** The position from which a new stream loses nothing; "" before the agent has sent the first one. */
  get position(): string;
  ack(event: TopicEvent): void;
  /** End the iteration. */
  stop(): void;
  /** Stop and save the position. Rejects if that fails. */
  close(): Promise<void>;
  [Symbol.asyncIterator](): AsyncGenerator<TopicEvent, void, undefined>;
}

/** There is no topic of this name, or it was deleted. `status` is 404. */
export class TopicNotFoundError extends OplogError {}

/** The password or the token is missing, wrong, or not for this request. `status` is 401 or 403. */
export class NotAllowedError extends OplogError {}

/** Keeps the position in the browser's localStorage, for one page at a time: each tab needs its own key. */
export function localStorageState(key: string): State;
