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

/** Where a position is kept. A `load` without one gives "". */
export interface State {
  load(): string | null | Promise<string | null>;
  save(position: string): void | Promise<void>;
}

export interface ConsumerOptions {
  /** Only operations of these types. Empty: all. */
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
  password?: string;
  /** Seconds that connecting may take; 10. */
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
 * Iterating throws OplogError when the agent refuses for good (a wrong password) or is no agent.
 */
export class Consumer implements AsyncIterable<Event> {
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

/** The agent refuses for good, or what answers is no agent. */
export class OplogError extends Error {
  constructor(message: string, status?: number);
  readonly status?: number;
}

export interface Block {
  readonly id: string;
  readonly event: string;
  readonly data: string;
}

/** Blocks of an event stream from bytes in pieces of any size. */
export class BlockParser {
  feed(chunk: Uint8Array): Block[];
}

/** Which events are acknowledged, and the position from which nothing is lost. */
export class Acks {
  constructor(position: string);
  position: string;
  unacked: number;
  handedOut(event: object, id: string): void;
  passed(mark: object, id: string): void;
  ack(event: object): boolean;
}

export interface Backoff {
  next(atLeast?: number): number;
  reset(): void;
}

export function backoff(first: number, last: number): Backoff;
/** Keeps the position in a browser. */
export function localStorageState(key: string): State;
export function detailOf(response: Response): Promise<string>;
export function opsUrl(url: string | URL): URL;
export function toBase64(text: string): string;
