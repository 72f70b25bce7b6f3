/**
 * Keeps the acknowledgements. `position` is the id of the last event before the oldest unacknowledged one: a stream resumed
 * there brings that one again. Only unacknowledged events take memory.
 */
export class Acks {
  #unacked = new Map(); // event -> { passed, earlier, later }; passed: the last id before the next of them
  #newest = null;

  constructor(position) {
    this.position = position;
  }

  get unacked() {
    return this.#unacked.size;
  }

  handedOut(event, id) {
    const entry = { passed: id, earlier: this.#newest, later: null };
    if (this.#newest) this.#newest.later = entry;
    this.#newest = entry;
    this.#unacked.set(event, entry);
  }

  /** Note a position that the stream has reached. It needs no acknowledgement. */
  passed(id) {
    if (this.#newest) this.#newest.passed = id;
    else this.position = id;
  }

  /** Acknowledge an event. Returns whether `position` moved. */
  ack(event) {
    const entry = this.#unacked.get(event);
    if (!entry) return false;
    this.#unacked.delete(event);
    const { earlier, later, passed } = entry;
    if (later) later.earlier = earlier;
    else this.#newest = earlier;
    if (earlier) Object.assign(earlier, { later, passed });
    else this.position = passed;
    return !earlier;
  }
}
