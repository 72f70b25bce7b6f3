/**
 * Which events are acknowledged. `position` is the id of the last event before the oldest that is not: a stream resumed
 * there brings that one again.
 */
export class Acks {
  #entries = new Map(); // event -> [id, acked], in the order in which they were handed out
  #last = null;

  constructor(position) {
    this.position = position;
    this.unacked = 0;
  }

  handedOut(event, id) {
    this.#last = event;
    this.#entries.set(event, [id, false]);
    this.unacked += 1;
  }

  /** The stream has reached a position that nobody needs to acknowledge; `mark` is any new object. */
  passed(mark, id) {
    if (this.#entries.size === 0) {
      this.position = id;
      return;
    }
    if (this.#entries.get(this.#last)?.[1]) this.#entries.delete(this.#last);
    this.#last = mark;
    this.#entries.set(mark, [id, true]);
  }

  /** Whether `position` moved. */
  ack(event) {
    const entry = this.#entries.get(event);
    if (!entry || entry[1]) return false;
    entry[1] = true;
    this.unacked -= 1;
    let moved = false;
    for (const [oldest, [id, acked]] of this.#entries) {
      if (!acked) break;
      this.#entries.delete(oldest);
      this.position = id;
      moved = true;
    }
    return moved;
  }
}
