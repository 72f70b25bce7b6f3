import { randomBytes } from "node:crypto";
import { open, readFile, realpath, rename, rm, stat } from "node:fs/promises";
import { resolve } from "node:path";

import { OplogError } from "./errors.js";
import { isEventId } from "./events.js";
import { isTopicPosition } from "./messages.js";

const MOST_BYTES = 100; // a position has 40 at most

/**
 * Keeps the position in a file that holds only the id and is replaced atomically. A relative path is resolved here, once.
 *
 * Node cannot lock a file. Before it writes, `save` compares the file with the position that this process read or wrote last, and so notices
 * another process.
 */
export function fileState(path) {
  const suffix = `${process.pid}-${randomBytes(4).toString("hex")}.new`;
  let target = resolve(path);
  let known;

  /** Write a new file beside the old one, then have `finish` use it. */
  async function writeBeside(position, finish) {
    const temporary = `${target}.${suffix}`;
    try {
      const file = await open(temporary, "wx");
      try {
        await file.writeFile(position);
        await file.sync();
      } finally {
        await file.close();
      }
      await finish(temporary);
    } finally {
      await rm(temporary, { force: true });
    }
  }

  return {
    /** Return null without a file. Rejects with OplogError if the file cannot be used. */
    async load() {
      try {
        target = await realpath(target).catch(unlessMissing(target));
        known = await read(target);
      } catch (error) {
        throw new OplogError(`cannot read the state file ${target}: ${error.message}`);
      }
      const position = known?.replace(/\n$/, "") ?? null;
      if (position !== null && !isEventId(position) && !isTopicPosition(position)) {
        throw new OplogError(`the state file ${target} is empty or holds no position: move it away to begin anew`);
      }
      try {
        await writeBeside("", () => {});
      } catch (error) {
        throw new OplogError(`cannot write the state file ${target}: ${error.message}`);
      }
      return position;
    },

    /** Rejects with OplogError if another process has written the file. */
    async save(position) {
      const found = await read(target);
      if (known !== undefined && found !== null && found !== known) {
        throw new OplogError(`another process has written the state file ${target}: each consumer needs a file of its own`);
      }
      await writeBeside(position, (temporary) => rename(temporary, target));
      known = position;
    },
  };
}

/** Read the file. Return null if there is none. */
async function read(path) {
  const info = await stat(path).catch(unlessMissing(null));
  if (info === null) return null;
  if (!info.isFile()) throw new Error("it is no file");
  return info.size > MOST_BYTES ? "" : readFile(path, "latin1").catch(unlessMissing(null));
}

function unlessMissing(value) {
  return (error) => {
    if (error.code === "ENOENT") return value;
    throw error;
  };
}
