import { OplogError } from "./errors.js";

const CR = 13;
const LF = 10;
const COLON = 58;

/** Blocks of an event stream from bytes in pieces of any size, by the rules of the HTML standard. */
export class BlockParser {
  #decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  #partial = new Uint8Array(256); // of a line that has not ended, #length bytes
  #length = 0;
  #block = null;
  #size = 0; // bytes of the block and of #partial
  #isFirstLine = true;
  #endedInCr = false;
  #maxBlock;

  /** `maxBlock`: the most bytes of a block. */
  constructor(maxBlock = 1 << 20) {
    this.#maxBlock = maxBlock;
  }

  /** Yield each block that `chunk` completes. `id` and `data` are null if it has none. Throws OplogError. */
  *feed(chunk) {
    let start = this.#endedInCr && chunk[0] === LF ? 1 : 0;
    if (chunk.length > 0) this.#endedInCr = false;
    let cr = chunk.indexOf(CR, start);
    let lf = chunk.indexOf(LF, start);
    while (cr >= 0 || lf >= 0) {
      const end = cr >= 0 && (lf < 0 || cr < lf) ? cr : lf;
      const block = end > start || this.#length > 0 ? this.#endLine(chunk.subarray(start, end)) : this.#endBlock();
      start = end + 1;
      if (end === cr) {
        if (start === chunk.length) this.#endedInCr = true;
        else if (chunk[start] === LF) start += 1;
        cr = chunk.indexOf(CR, start);
      }
      if (lf >= 0 && lf < start) lf = chunk.indexOf(LF, start);
      if (block) yield block;
    }
    this.#keep(chunk.subarray(start));
  }

  /** Read a line. Returns the block that it ends, if it is blank. */
  #endLine(rest) {
    let line = rest;
    if (this.#length > 0) {
      this.#keep(rest);
      line = this.#partial.subarray(0, this.#length);
      this.#length = 0;
    } else {
      this.#grow(rest.length);
    }
    if (this.#isFirstLine && line[0] === 0xef && line[1] === 0xbb && line[2] === 0xbf) line = line.subarray(3);
    this.#isFirstLine = false;
    if (line.length === 0) return this.#endBlock();
    if (line[0] === COLON) this.#size -= line.length;
    else this.#field(line);
    return null;
  }

  #endBlock() {
    const block = this.#block;
    this.#block = null;
    this.#size = 0;
    this.#isFirstLine = false;
    return block;
  }

  #field(line) {
    let text;
    try {
      text = this.#decoder.decode(line);
    } catch {
      throw new OplogError("the stream is not UTF-8");
    }
    const colon = text.indexOf(":");
    const name = colon < 0 ? text : text.slice(0, colon);
    if (name !== "id" && name !== "event" && name !== "data") return;
    const value = colon < 0 ? "" : text.slice(text[colon + 1] === " " ? colon + 2 : colon + 1);
    this.#block ??= { id: null, event: "", data: null };
    this.#block[name] = name === "data" && this.#block.data !== null ? `${this.#block.data}\n${value}` : value;
  }

  /** Copies the bytes: a view would keep the network's whole buffer in memory. */
  #keep(bytes) {
    this.#grow(bytes.length);
    if (this.#length + bytes.length > this.#partial.length) {
      const larger = new Uint8Array(2 * (this.#length + bytes.length));
      larger.set(this.#partial.subarray(0, this.#length));
      this.#partial = larger;
    }
    this.#partial.set(bytes, this.#length);
    this.#length += bytes.length;
  }

  #grow(size) {
    this.#size += size;
    if (this.#size > this.#maxBlock) throw new OplogError(`a block of the stream has more than ${this.#maxBlock >> 20} MiB`);
  }
}
