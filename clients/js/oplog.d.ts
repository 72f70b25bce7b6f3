/** An object was inserted, updated or deleted. */
export interface Operation {
  /** The position in the stream after it. */
  readonly eventId: string;
  readonly event: "insert" | "update" | "delete";
  readonly type: string;
  readonly id: string;
  readonly parents: readonly string[];
  /** When the object changed, as the producer says. */
  readonly timestamp: Date;
  /** The object's URL, where the agent is set up to send one. */
  readonly ref?: string;
}

/** A full copy follows, the objects as inserts, up to `live`: forget what is not in it. */
export interface Reset {
  readonly eventId: string;
  readonly event: "reset";
}

/** The copy, or what changed while away, is complete; operations follow as they happen. */
export interface Live {
  readonly eventId: string;
  readonly event: "live";
}

export type Event = Operation | Reset | Live;

/** Where a position is kept, for one consumer at a time. */
export interface State {
  /** null without a position. What it throws ends the iteration before the agent is asked. */
  load(): string | null | Promise<string | null>;
  /** An OplogError ends the iteration; after any other error the position is saved again later. */
  save(position: string): void | Promise<void>;
}

export interface ConsumerOptions {
  /** Only operations of these types, which count in lower case. Empty: all. */
  types?: readonly string[];
  /** Only operations with one of these parents. Empty: all. */
  parents?: readonly string[];
  /** "0" for a full copy of all objects, an event id, or a time. Not given: the next operation. */
  start?: string | Date;
  /**
   * Keeps the position; what it holds comes before `start`. Then every event must be acknowledged, `reset` and `live`
   * too: the position saved is that of the oldest event that is not.
   */
  state?: State;
  /** Comes before the password in the address. */
  password?: string;
  /** Seconds that connecting may take, redirects and refusals included; 10. */
  timeout?: number;
  /** Seconds of silence after which a connection counts as dead; 40. */
  heartbeatTimeout?: number;
  /** Seconds between attempts, the first and the longest; [1, 30]. */
  backoff?: readonly [number, number];
  /** Seconds between two saves; 1. */
  saveInterval?: number;
  /** With a state: how many events are handed out without an acknowledgement before iteration waits; 10,000. */
  maxUnacked?: number;
  fetch?: typeof fetch;
  /** Gets a sentence when something happens to the connection. */
  log?: (message: string) => void;
}

/**
 * Follows an agent, reconnects by itself, and loses nothing; an operation may come twice in a copy or after a crash.
 *
 * Iterating throws OplogError when the agent refuses for good (a wrong password), is no agent, or when the state cannot be used.
 * An option that is undefined or null counts as not given; a bad one throws TypeError.
 */
export class Consumer implements AsyncIterable<Event> {
  /** A user name and a password in the address are sent in a header, and shown nowhere. */
  constructor(url: string | URL, options?: ConsumerOptions);
  readonly start: string;
  /** The event id from which a new consumer loses nothing; "" before the agent has told the first. */
  get position(): string;
  ack(event: Event): void;
  /** End the iteration. */
  stop(): void;
  /** Stop and save the position. Rejects when that fails. */
  close(): Promise<void>;
  [Symbol.asyncIterator](): AsyncGenerator<Event, void, undefined>;
}

/** The agent refuses for good, what answers is no agent, or the state cannot be used. `status` is HTTP's, if any. */
export class OplogError extends Error {
  constructor(message: string, status?: number);
  readonly status?: number;
}

/** Keeps the position in the browser's localStorage, for one page at a time: two tabs need two keys. */
export function localStorageState(key: string): State;
