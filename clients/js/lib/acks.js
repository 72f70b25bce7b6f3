/**
 * Which events are acknowledged. `position` is the id of the last event before the oldest that is not: a stream resumed
 * there brings that one again. Only the events that are not acknowledged take room.
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

  /** The stream has reached a position that nobody needs to acknowledge. */
  passed(id) {
    if (this.#newest) this.#newest.passed = id;
    else this.position = id;
  }

  /** Whether `position` moved. */
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
