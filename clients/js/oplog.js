// Follows an oplog agent and its topics, in browsers and in Node >= 20. No dependencies.

import { OplogError } from "./lib/errors.js";

export { Consumer } from "./lib/consumer.js";
export { NotAllowedError, TopicNotFoundError } from "./lib/errors.js";
export { TopicConsumer } from "./lib/topic_consumer.js";
export { OplogError };

/** Keeps the position in a browser, for one page at a time: each tab needs its own key. */
export function localStorageState(key) {
  return {
    load() {
      let position;
      try {
        position = localStorage.getItem(key);
      } catch (error) {
        throw new OplogError(`cannot read the position ${key} from the browser's storage: ${error.message}`);
      }
      if (position === "") throw new OplogError(`the position ${key} in the browser's storage is empty: remove it to begin anew`);
      return position;
    },
    save: (position) => localStorage.setItem(key, position),
  };
}
