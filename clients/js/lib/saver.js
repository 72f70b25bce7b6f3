import { OplogError } from "./errors.js";
import { after } from "./time.js";

/** Saves positions, one save after another, at most one in `interval` seconds. */
export class Saver {
  #state;
  #position;
  #interval;
  #log;
  #fail;
  #saved;
  #saving = Promise.resolve();
  #timer = null;
  #isFailing = false;
  #isClosed = false;

  /** `position` returns the position to save; `saved` is the one in the state. `fail` receives a permanent error. */
  constructor({ state, interval, log, position, saved, fail }) {
    this.#state = state;
    this.#interval = interval;
    this.#log = log;
    this.#position = position;
    this.#saved = saved;
    this.#fail = fail;
  }

  /** Note that the position has moved. */
  changed() {
    if (this.#timer !== null || this.#isClosed) return;
    this.#timer = after(this.#interval, () => {
      this.#timer = null;
      // One after another: a slow save must not end behind a newer one.
      this.#saving = this.#saving.then(() => this.#save()).then(
        () => (this.#isFailing = false),
        (error) => this.#failed(error),
      );
    });
    this.#timer.unref?.();
  }

  /** Save the position if it is not saved yet. Rejects if that fails. */
  async close() {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    await this.#saving;
    await this.#save();
  }

  #failed(error) {
    if (error instanceof OplogError) {
      this.#fail(error);
      return;
    }
    if (!this.#isFailing) this.#log(`cannot save the position: ${error.message}; trying again`);
    this.#isFailing = true;
    this.changed();
  }

  async #save() {
    const position = this.#position();
    if (!position || position === this.#saved) return;
    await this.#state.save(position);
    this.#saved = position;
  }
}
